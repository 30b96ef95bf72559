"""What the log says that the consume queues must hold.

Java counterparts (5.3.3): CommitLog.checkMessageAndReturnSize for the tags code, ConsumeQueue's
multiDispatchLmqQueue for light queues. Recovery puts records into queues by these rules;
`differences` proves that queues and log agree, in memory for each queue's ends only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...common.java_hash import tags_code
from ...common.message_properties import find_property
from ...remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from ..config import MessageStoreConfig
from ..format import UNIT
from ..log.commit_log import CommitLog
from ..log.log_scanner import LogScanner, ScannedRecord
from .consume_queue_store import ConsumeQueueStore

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Units of its queues hold the time of delivery, ms, instead of a tags code."""

TAGS_MAX = 65_536
"""Tags whose code is remembered."""

LIGHT_PREFIX = "%LMQ%"
"""Begins the names of light queues (LMQ): a message is put into them besides its own queue."""

_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Key = tuple[str, int]
"""(topic, queue id)."""


class Place(NamedTuple):
    """One queue unit that a record makes."""

    key: Key
    queue_offset: int
    tags_code: int


class Places:
    """Where records belong.

    Args:
      message_delay_level: the configured durations.
    """

    def __init__(self, message_delay_level: str) -> None:
        self._delays_ms = delay_levels_ms(message_delay_level)
        self._codes: dict[bytes, int] = {}

    def tags_code(self, topic: str, timestamp_ms: int, properties: bytes) -> int:
        """What the unit of a record says about its tags.

        Source: RocketMQ 5.3.3 store/CommitLog.java checkMessageAndReturnSize.
        """
        if topic == SCHEDULE_TOPIC:
            level = find_property(properties, b"DELAY")
            if level is not None and level.isdigit() and len(level) < 10 and int(level) > 0:
                return timestamp_ms + self._delays_ms[min(int(level), len(self._delays_ms)) - 1]
        tags = find_property(properties, b"TAGS")
        if tags is None:
            return 0
        code = self._codes.get(tags)
        if code is None:
            if len(self._codes) >= TAGS_MAX:
                self._codes.clear()
            code = self._codes[tags] = tags_code(str(tags, "utf-8", "replace"))
        return code

    def of(self, record: ScannedRecord) -> Iterator[Place]:
        """The places of a record: none for half and rolled back messages, more for light queues."""
        _, _, topic, queue_id, queue_offset, sys_flag, timestamp_ms, properties = record
        if not sys_flag & TRANSACTION_PREPARED_TYPE:
            code = self.tags_code(topic, timestamp_ms, properties)
            yield Place((topic, queue_id), queue_offset, code)
            if _MULTI_DISPATCH in properties:
                yield from light_places(properties, code)


def light_places(properties: bytes, code: int) -> Iterator[Place]:
    """The units that a record makes in light queues besides its own.

    Queues of other names are left out, though Apache would fill them: these properties come from
    the sender, who must not reach into the queues of others.

    Source: RocketMQ 5.3.3 store/ConsumeQueue.java multiDispatchLmqQueue.
    """
    more = find_property(properties, _MULTI_DISPATCH)
    offsets = find_property(properties, b"INNER_MULTI_QUEUE_OFFSET")
    if more is not None and offsets is not None:
        for topic, offset in zip(more.split(b","), offsets.split(b","), strict=False):
            if topic.startswith(b"%LMQ%") and offset.isdigit() and len(offset) < 19:
                yield Place((str(topic, "utf-8", "replace"), 0), int(offset), code)


def delay_levels_ms(text: str) -> list[int]:
    """The delays of messageDelayLevel, level 1 first.

    Args:
      text: such as "1s 5s 2h"; units s, m, h, d.

    Raises:
      ValueError: a duration is not a number and a unit.
    """
    return [int(word[:-1]) * _SECONDS[word[-1]] * 1000 for word in text.split()] or [1000]


class Span(NamedTuple):
    """What the log holds of one queue as it now is: since its topic was made the last time."""

    first: int  # queue offset of the oldest record
    end: int  # queue offset after the newest
    begins_at: int  # physical offset of the oldest


class Difference(NamedTuple):
    """One thing in which a queue is not what the log says.

    Attributes:
      key: (topic, queue id).
      queue_offset: where; -1: the queue as a whole.
      expected, found: (physical offset, size, tags code), or (min, max) offsets of the queue.
    """

    key: Key
    queue_offset: int
    expected: tuple[int, ...]
    found: tuple[int, ...]


def spans(log: CommitLog, places: Places) -> dict[Key, Span]:
    """Every queue that the log knows.

    Raises:
      StoreIOError: a file could not be read.
    """
    found: dict[Key, Span] = {}
    for record in LogScanner(log, log.min_offset, check_crc=False).scan():
        for key, queue_offset, _ in places.of(record):
            span = found.get(key)
            if span is None or queue_offset < span.end:
                found[key] = Span(queue_offset, queue_offset + 1, record[0])
            else:
                found[key] = span._replace(end=queue_offset + 1)
    return found


def differences(
    log: CommitLog, queue_store: ConsumeQueueStore, config: MessageStoreConfig
) -> Iterator[Difference]:
    """Everything in which the queues are not the projection of the log.

    Queues of batches are not looked at, and neither are messages that are not visible yet: call it
    on a store that is loaded and idle. Topics that were deleted show as missing queues.

    Raises:
      StoreIOError: a file could not be read.
    """
    places = Places(config.message_delay_level)
    known = spans(log, places)
    queues = {key: queue for key, queue in queue_store.queues.items() if not queue.is_batch}
    for key, span in known.items():
        queue = queues.get(key)
        ends = (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)
        if key[0] not in queue_store.batch_topics and ends != (span.first, span.end):
            yield Difference(key, -1, (span.first, span.end), ends)
    for key, queue in queues.items():
        if key not in known and queue.min_offset != queue.max_offset:
            yield Difference(key, -1, (), (queue.min_offset, queue.max_offset))
    for record in LogScanner(log, log.min_offset, check_crc=False).scan():
        physical_offset, size = record[:2]
        for key, queue_offset, code in places.of(record):
            queue = queues.get(key)
            if queue is None or physical_offset < known[key].begins_at:
                continue
            unit = UNIT.unpack(queue.read(queue_offset, 1).ljust(UNIT.size, b"\0"))
            found = queue.real_tags_code(unit[2])  # None: its extension is lost, and says nothing
            if unit[:2] != (physical_offset, size) or found not in (None, code):
                yield Difference(key, queue_offset, (physical_offset, size, code), unit)
