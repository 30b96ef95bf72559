"""RecordedPositions: after a crash pops continue behind the check points in the log.

The committed offset of a popped queue is saved every few seconds. A pop that began at the saved one
would give out messages again that were acknowledged since. Where acknowledgements are durable
(`RecordPuts.are_acks_durable`), the record of a check point therefore says where the next pop
begins, and a start reads the records that are newer than the saved offsets. Their messages need no
pop: they are acknowledged by records, or revived.

How far the saved offsets include the records is saved with them, as offsets of the group
POSITIONS_GROUP in the topics that have records: as they are when a save begins, so that all others
in the file are as new, or newer.

RocketMQ's broker has nothing of the kind: it saves offsets every five seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from ...common.message_properties import (
    PROPERTY_POP_NEXT_OFFSET,
    REAL_TOPIC_NAME,
    TIMER_OUT_NAME,
    find_property,
)
from ...common.topic_names import TIMER_TOPIC
from ...disk.errors import CorruptRecordError
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_record
from ...store.message_store import MessageStore
from ..tables.consumer_offset_manager import ConsumerOffsetManager, key_of
from .buffer import PopBuffer
from .check_point import CheckPoint
from .record_puts import RecordPuts
from .records import read_record
from .revive_service import ReviveService

logger = logging.getLogger(__name__)

POSITIONS_GROUP: Final = "CID_RMQ_SYS_POP_POSITIONS"
"""Has the offsets up to which records are included in the saved table."""

NOTE_INTERVAL_S: Final = 1.0
"""Between two notes: a start reads the records of the last seconds before a crash only."""

READ_COUNT: Final = 32
"""Records of one read."""

_NEXT: Final = PROPERTY_POP_NEXT_OFFSET.encode()
_DIGITS_MAX: Final = 18
_Queue = tuple[str, int]


class _Mark(NamedTuple):
    """The ends of all queues with records, of a moment.

    Attributes:
      log_end: physical offset to which the log must be on the device, so that the committed offsets
        include the records.
      ends: by queue.
    """

    log_end: int
    ends: dict[_Queue, int]


class RecordedPositions:
    """Restores the positions of pops at the start of a master.

    Args:
      store: already loaded when `load` is called.
      buffer: commits the offsets.
      revive: knows the queues of the revive topic.
    """

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        buffer: PopBuffer,
        revive: ReviveService,
        puts: RecordPuts,
    ) -> None:
        self._puts = puts
        self._store = store
        self._offsets = offsets
        self._buffer = buffer
        self._revive = revive
        self._topic = puts.topic
        self._mark: _Mark | None = None

    def load(self) -> None:
        """Move the committed offsets past the check points that were recorded after their save.

        The offsets and the revive service are loaded, and nothing is popped yet. Without durable
        acknowledgements what is saved of the records is dropped, because it would grow old.
        """
        if not self._puts.are_acks_durable:
            for topic, queue_id in self._queues():
                self._offsets.drop_offset(key_of(topic, POSITIONS_GROUP), queue_id)
            return
        count = 0
        for topic, queue_id in self._queues():
            saved = self._offsets.query_offset(POSITIONS_GROUP, topic, queue_id)
            for message in self._records(topic, queue_id, saved):
                count += self._pass(message)
        if count:
            logger.info(
                "%(count)d pops are newer than the saved offsets: what they gave out is not popped "
                "again",
                {"count": count},
            )
        self._offsets.on_reset = self.leave_behind
        topics = (TIMER_TOPIC, self._topic)
        # Saved as they are when a save begins: a position must not be newer than the offsets beside
        # it.
        self._offsets.first_keys = tuple(key_of(topic, POSITIONS_GROUP) for topic in topics)
        self._commit(self._ends())

    def note(self) -> None:
        """Record which records the committed offsets include; call this again and again."""
        if not self._puts.are_acks_durable:
            return
        mark = self._mark
        if mark is not None:
            if self._store.flusher.flushed_offset < mark.log_end:
                return
            self._buffer.synced()
            self._commit(mark.ends)
        self._mark = _Mark(self._store.max_physical_offset, self._ends())

    def leave_behind(self) -> None:
        """Regard all records as included, because offsets were dropped, or set to another place.

        The records of a deleted topic or group must not set offsets of one that is created again.
        """
        if self._puts.are_acks_durable:
            self._buffer.synced()
            self._mark = None
            self._commit(self._ends())

    def note_all(self) -> None:
        """Record that all records are included, at a clean stop; the log is on the device."""
        if self._puts.are_acks_durable and self._store.flusher.failure is None:
            self._buffer.synced()
            self._commit(self._ends())

    def _queues(self) -> list[_Queue]:
        return [(TIMER_TOPIC, 0), *((self._topic, each) for each in self._revive.queue_ids)]

    def _ends(self) -> dict[_Queue, int]:
        return {queue: self._store.max_offset(*queue) for queue in self._queues()}

    def _commit(self, ends: dict[_Queue, int]) -> None:
        for (topic, queue_id), end in ends.items():
            if self._offsets.query_offset(POSITIONS_GROUP, topic, queue_id) != end:
                self._offsets.commit_offset(POSITIONS_GROUP, topic, queue_id, end)

    def _records(self, topic: str, queue_id: int, saved: int) -> Iterator[MessageExt]:
        """The records of check points from an offset on that say where the next pop begins."""
        store = self._store
        offset, end = (
            max(saved, store.min_offset(topic, queue_id)),
            store.max_offset(topic, queue_id),
        )
        while offset < end:
            try:
                result = store.get_message(topic, queue_id, offset, READ_COUNT)
                for buffer in result.buffers:
                    yield from _with_position(bytes(buffer), self._topic.encode())
            except (CorruptRecordError, RemoteProtocolError) as error:
                logger.error(
                    "record %(offset)d of %(topic)s queue %(queue_id)d, or one of the next "
                    "%(count)d, cannot be read: %(error)s. If they are check points of pops, "
                    "messages that were acknowledged just before the crash may come again",
                    {
                        "offset": offset,
                        "topic": topic,
                        "queue_id": queue_id,
                        "count": READ_COUNT - 1,
                        "error": error,
                    },
                )
                # Skipped as a whole: one of these is damaged, and a start must not fail for it.
                offset += READ_COUNT
                continue
            offset = max(result.next_begin_offset, offset + 1)

    def _pass(self, message: MessageExt) -> bool:
        """Move a committed offset past a check point; return whether it was behind."""
        text = find_property(message.properties_bytes, _NEXT) or b""
        try:
            check_point = read_record(message)
        except RemoteProtocolError:
            return False  # the revive service reports it
        if not isinstance(check_point, CheckPoint) or not _is_offset(text):
            return False
        topic, group, queue_id = check_point.topic, check_point.group, check_point.queue_id
        next_offset = min(int(text), self._store.queue_store.end_of(topic, queue_id))
        if next_offset <= self._offsets.query_offset(group, topic, queue_id):
            return False
        self._offsets.commit_offset(group, topic, queue_id, next_offset)
        return True


def _with_position(buffer: bytes, revive_topic: bytes) -> Iterator[MessageExt]:
    """The messages of whole records that say where the next pop begins."""
    at = 0
    while at < len(buffer):
        message = decode_record(buffer, at)
        at += message.store_size
        properties = message.properties_bytes
        # A client's timer message has another topic, whatever its tags and properties. Records that
        # the timer service has delivered are copies of older ones.
        if message.topic == TIMER_TOPIC:
            is_record = find_property(properties, REAL_TOPIC_NAME) == revive_topic
        else:
            is_record = find_property(properties, TIMER_OUT_NAME) is None
        if is_record and find_property(properties, _NEXT) is not None:
            yield message


def _is_offset(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _DIGITS_MAX
