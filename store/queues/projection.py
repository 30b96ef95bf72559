"""The queue units that a record of the log has: the rules of dispatching.

Java counterparts (5.3.3): CommitLog.checkMessageAndReturnSize for the tags code, ConsumeQueue's
multiDispatchLmqQueue for light queues. Recovery builds queues by these rules, and units are checked
by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...common.delay_levels import delay_levels_ms
from ...common.java_hash import tags_code
from ...common.message_properties import (
    DELAY_NAME,
    INNER_MULTI_DISPATCH_NAME,
    PROPERTY_REAL_DUE_MS,
    TAGS_NAME,
    find_property,
)
from ...common.topic_names import SCHEDULE_TOPIC
from ...remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from ..format import Key
from ..log.log_reader import ScannedRecord

TAGS_MAX = 65_536
"""Tags whose code is cached."""

LIGHT_PREFIX = "%LMQ%"
"""Prefix of light queues (LMQ): a message is put into them in addition to its own queue."""

_REAL_DUE_MS = PROPERTY_REAL_DUE_MS.encode()
_DUE_DIGITS_MAX = 15  # beyond the end of `LATEST_MS`


class Place(NamedTuple):
    """One queue unit of a record: its queue, offset and tags code."""

    key: Key
    queue_offset: int
    tags_code: int


class Places:
    """Computes the queue units of records.

    Args:
      message_delay_level: the configured durations.
    """

    def __init__(self, message_delay_level: str) -> None:
        self._delays_ms = delay_levels_ms(message_delay_level)
        self._codes: dict[bytes, int] = {}

    def tags_code(self, topic: str, timestamp_ms: int, properties: bytes) -> int:
        """The tags code in the unit of a record.

        Source: RocketMQ 5.3.3 store/CommitLog.java checkMessageAndReturnSize.
        """
        # Units of delayed messages hold the time of delivery, ms, instead of a tags code.
        if topic == SCHEDULE_TOPIC:
            level = find_property(properties, DELAY_NAME)
            if level is not None and level.isdigit() and len(level) < 10 and int(level) > 0:
                delay_ms = self._delays_ms[min(int(level), len(self._delays_ms)) - 1]
                return _kept_due_ms(properties, timestamp_ms + delay_ms)
        tags = find_property(properties, TAGS_NAME)
        if tags is None:
            return 0
        code = self._codes.get(tags)
        if code is None:
            if len(self._codes) >= TAGS_MAX:
                self._codes.clear()
            code = self._codes[tags] = tags_code(str(tags, "utf-8", "replace"))
        return code

    def code_of(self, record: ScannedRecord) -> int:
        """The tags code in the unit of a record in its own queue."""
        _, _, topic, _, _, _, timestamp_ms, properties = record
        return self.tags_code(topic, timestamp_ms, properties)

    def of(self, record: ScannedRecord) -> Iterator[Place]:
        """The units of a record: none for half and rolled back messages, more for light queues."""
        _, _, topic, queue_id, queue_offset, sys_flag, timestamp_ms, properties = record
        if not sys_flag & TRANSACTION_PREPARED_TYPE:
            code = self.tags_code(topic, timestamp_ms, properties)
            yield Place((topic, queue_id), queue_offset, code)
            if INNER_MULTI_DISPATCH_NAME in properties:
                yield from light_places(properties, code)

    def place_in(self, record: ScannedRecord, key: Key, queue_offset: int) -> Place | None:
        """The unit of a record at this place; None: the record has no unit there."""
        _, _, topic, queue_id, its_offset, sys_flag, timestamp_ms, properties = record
        if (
            its_offset == queue_offset and (topic, queue_id) == key
        ):  # the usual case, in half the time
            if sys_flag & TRANSACTION_PREPARED_TYPE:
                return None
            return Place(key, queue_offset, self.tags_code(topic, timestamp_ms, properties))
        for place in self.of(record):
            if place.key == key and place.queue_offset == queue_offset:
                return place
        return None


def _kept_due_ms(properties: bytes, latest_ms: int) -> int:
    """The due time that a broker kept as a property, because the store timestamp was ahead of the
    time of day; without one, that by the store timestamp and the delay."""
    kept = find_property(properties, _REAL_DUE_MS) if _REAL_DUE_MS in properties else None
    if kept is None or not kept.isdigit() or len(kept) > _DUE_DIGITS_MAX:
        return latest_ms
    return min(int(kept), latest_ms)


def light_places(properties: bytes, code: int) -> Iterator[Place]:
    """The units of a record in light queues.

    Queues of other names are left out, though Apache would fill them: the sender controls these
    properties, and must not write into other queues.

    Source: RocketMQ 5.3.3 store/ConsumeQueue.java multiDispatchLmqQueue.
    """
    more = find_property(properties, INNER_MULTI_DISPATCH_NAME)
    offsets = find_property(properties, b"INNER_MULTI_QUEUE_OFFSET")
    if more is not None and offsets is not None:
        for topic, offset in zip(more.split(b","), offsets.split(b","), strict=False):
            if topic.startswith(b"%LMQ%") and offset.isdigit() and len(offset) < 19:
                yield Place((str(topic, "utf-8", "replace"), 0), int(offset), code)
