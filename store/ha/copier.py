"""The copier of a slave: validates a master's bytes, appends them and builds the queues.

Java counterparts: CommitLog.appendData and ReputMessageService of 5.3.3. Apache's appends all bytes
and validates them later; here:

- Only whole records are appended, after their checksums and fields were verified. So a slave's log
  always ends at a record's end, is never cut when it is opened again, and a bad record is never
  visible.
- A record that is not the next of its queue stops the copy: consumers would see a gap in the queue,
  which would never be filled.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...common.clock import StoreTimeMs
from ...common.java_hash import hash_prefix
from ...common.message_properties import DELAY_HEAD, INNER_MULTI_DISPATCH_NAME, TAGS_HEAD
from ...disk.errors import CopyError, StoreIOError
from ...disk.position import Position
from ...remoting.message_codec import MAGIC_BLANK, RECORD_PREFIX, RECORD_SIZE_MIN
from ...remoting.sys_flag import (
    INNER_BATCH,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from ..format import Key
from ..log.log_reader import NOWHERE, LogReader, ScannedRecord
from ..queues.batch_consume_queue import inner_batch
from ..queues.consume_queue import ConsumeQueue
from ..queues.projection import LIGHT_PREFIX, Places, light_places
from ..recovery.recovered_queues import LIGHT_BLANKS_MAX

if TYPE_CHECKING:
    from ..message_store import MessageStore

logger = logging.getLogger(__name__)

RECORD_SIZE_MAX = 32 * 1024 * 1024
"""Bytes of an incomplete record that are kept in memory. A message reaches its broker in a frame of
at most 16 MiB (com.rocketmq.remoting.frameMaxLength), so no record and no blank is nearly as long.
"""

_UNUSUAL = TRANSACTION_MASK | INNER_BATCH
_unpack_prefix = RECORD_PREFIX.unpack_from
_PREFIX_SIZE = RECORD_PREFIX.size

_FILE_SIZE = "set mappedFileSizeCommitLog to the master's value"


class LogCopier:
    """Copies the log from one connection. Owned by the store's task.

    Args:
      store: of a slave, loaded.
      is_ours: all following records were written by trocket.

    Attributes:
      received_offset: physical offset of the next byte.
    """

    def __init__(self, store: MessageStore, *, is_ours: bool) -> None:
        self.received_offset = store.max_physical_offset
        self._store = store
        self._queues = store.queue_store.queues
        self._is_ours = is_ours
        self._arrived = ReceiveBuffer(store.log.file_size)
        self._places = Places(store.config.message_delay_level)
        self._begin(self.received_offset)

    def begin_at(self, physical_offset: int) -> None:
        """Begin an empty log at this offset.

        Raises:
          CopyError: no file of this store begins here.
        """
        if physical_offset % self._store.log.file_size:
            raise CopyError(physical_offset, f"no file of this store begins here; {_FILE_SIZE}")
        self._begin(physical_offset)

    def _begin(self, physical_offset: int) -> None:
        self.received_offset = self._wanted_end = physical_offset
        self._arrived.start = self._arrived.whole_end = physical_offset
        self._reader = LogReader(
            self._arrived,
            physical_offset,
            stop=lambda: self._arrived.whole_end,
            own_from=0 if self._is_ours else NOWHERE,
        )

    def take(self, *pieces: bytes | memoryview) -> None:
        """Take the bytes at `received_offset`; whole records are in the file when this returns.

        Args:
          pieces: of memory that does not change any more.

        Raises:
          CopyError: they cannot be part of this log. Earlier bytes are stored; the copier cannot be
            used any more.
          StoreIOError: they could not be written; the copier cannot be used any more.
        """
        store, arrived = self._store, self._arrived
        reason = store.trouble
        if reason:
            raise StoreIOError(store.log.folder, reason)
        arrived.pieces += pieces
        self.received_offset += sum(map(len, pieces))
        if self.received_offset < self._wanted_end:
            return
        arrived.join()
        problem = self._find_whole_end()
        if arrived.whole_end > arrived.start:
            self._append()
        if problem:
            raise CopyError(arrived.whole_end, problem)

    def _find_whole_end(self) -> str:
        """Set `whole_end` to the end of the last whole record or blank that was received.

        Returns: why no record can begin there; "": one can.
        """
        arrived, file_size = self._arrived, self._arrived.file_size
        buffer, start, last = arrived.buffer, arrived.start, self.received_offset - _PREFIX_SIZE
        offset, problem = arrived.whole_end, ""
        self._wanted_end = 0
        while offset <= last:
            size, magic = _unpack_prefix(buffer, offset - start)
            # A blank fills its file to the end, so its size must be that of the room; no record
            # crosses the end.
            room = file_size - offset % file_size
            size_min = room if magic == MAGIC_BLANK else RECORD_SIZE_MIN
            if not size_min <= size <= room or size > RECORD_SIZE_MAX:
                problem = _why_no_record(size, magic, room)
                break
            if offset + size > self.received_offset:
                # The rest has not arrived yet: it is not looked at again before that.
                self._wanted_end = offset + size
                break
            offset += size
        arrived.whole_end = offset
        return problem

    def _append(self) -> None:
        """Append the whole records up to the first bad one."""
        store, arrived = self._store, self._arrived
        if store.max_physical_offset == 0:
            store.copies.begin(arrived.start)
        if not self._is_ours:
            store.checkpoints.note_foreign_records()
        try:
            end, problem = self._dispatch()
            self._commit(end)
        except Exception:  # the next connection begins where the log ends now
            store.roll_back()
            raise
        if problem:
            raise CopyError(end, f"{problem}; check the master's log with `trocket store fsck`")

    def _commit(self, end: int) -> None:
        """Write the bytes up to an offset, and make their units visible."""
        store, arrived = self._store, self._arrived
        for piece in arrived.take_until(end):
            store.copies.append(piece)
        visible = store.commit()
        if visible:
            store.on_visible(visible)

    # ---- queues --------------------------------------------------------------------------

    def _dispatch(self) -> tuple[int, str]:
        """Append the units of the whole records; a catching-up slave spends most of its time here.

        Returns: the end of the good records, and what is wrong with the next one; "": nothing.
        """
        store, reader, queues, places = self._store, self._reader, self._queues, self._places
        burst = store.writer.burst
        append = store.copies.append_record
        for record in reader.scan():
            (
                physical_offset, size, topic, queue_id, queue_offset, sys_flag, timestamp_ms,
                properties,
            ) = record  # fmt: skip
            if timestamp_ms > burst.store_time_ms:
                burst.store_time_ms = StoreTimeMs(timestamp_ms)
            # The usual case is inline, as the loop runs for every record.
            queue = queues.get((topic, queue_id))
            if (
                queue is None or not queue.is_plain or queue_offset != queue.next_offset
                or sys_flag & _UNUSUAL or INNER_MULTI_DISPATCH_NAME in properties
            ):  # fmt: skip
                problem = self._dispatch_unusual(record)
                if problem:
                    return physical_offset, problem
                continue
            code = 0
            if TAGS_HEAD in properties or DELAY_HEAD in properties:
                code = places.tags_code(topic, timestamp_ms, properties)
            append(queue, physical_offset, size, code, timestamp_ms, properties)
        if reader.end < self._arrived.whole_end:
            return reader.end, reader.reason or "zeros where a record should be"
        return reader.end, ""

    def _dispatch_unusual(self, record: ScannedRecord) -> str:
        """`_dispatch` of a record that is not the usual case; returns what is wrong."""
        (
            physical_offset, _, topic, queue_id, queue_offset, sys_flag, timestamp_ms, properties,
        ) = record  # fmt: skip
        # Half messages are in no queue of their topic, and rolled back ones are not indexed.
        if not sys_flag & TRANSACTION_PREPARED_TYPE:
            code = self._places.tags_code(topic, timestamp_ms, properties)
            problem = self._place((topic, queue_id), queue_offset, code, record)
            if problem:
                return problem
            if INNER_MULTI_DISPATCH_NAME in properties:
                for place in light_places(properties, code):
                    self._place(place.key, place.queue_offset, code, record)
        if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE:
            queue = self._queues.get((topic, queue_id))
            topic_hash = queue.topic_hash if queue is not None else hash_prefix(f"{topic}#")
            self._store.copies.append_index_item(
                topic_hash, properties, physical_offset, timestamp_ms
            )
        return ""

    def _place(self, key: Key, queue_offset: int, code: int, record: ScannedRecord) -> str:
        """Append one unit; returns why it cannot follow in its queue."""
        physical_offset, size, _, _, _, sys_flag, timestamp_ms, properties = record
        queue = self._queues.get(key)
        if queue is None or (sys_flag & INNER_BATCH and not queue.is_batch):
            queue = self._open(key, queue, record)
            if queue is None:
                return ""
        if queue.is_batch:
            queue_offset = (inner_batch(properties) or (queue_offset, 1))[0]
        if queue_offset < 0:
            return f"the record is message {queue_offset} of its queue"
        if queue_offset != queue.next_offset:
            # Light queues follow from properties, so one that does not fit is no damage of the log.
            if key[0].startswith(LIGHT_PREFIX):
                if not self._fit_light(queue, queue_offset, physical_offset):
                    return ""
            elif not self._fit(queue, queue_offset, physical_offset):
                return (
                    f"the record is message {queue_offset} of queue {key[1]} of topic {key[0]}, "
                    f"where {queue.next_offset} would be the next"
                )
        self._store.copies.append_unit(
            queue, queue_offset, physical_offset, size, code, timestamp_ms, properties
        )
        return ""

    def _open(
        self, key: Key, old: ConsumeQueue | None, record: ScannedRecord
    ) -> ConsumeQueue | None:
        physical_offset, _, _, _, _, sys_flag, _, _ = record
        queue_store = self._store.queue_store
        if old is not None:  # the topic was deleted and created again with batch queues
            self._empty(old, physical_offset)
        if sys_flag & INNER_BATCH:
            queue_store.batch_topics.add(key[0])
        queue = queue_store.create(*key)
        if queue is None:
            logger.error(
                "queue %(queue_id)d of topic %(topic)r is impossible; it is left out",
                {"queue_id": key[1], "topic": key[0]},
            )
        return queue

    def _fit(self, queue: ConsumeQueue, queue_offset: int, physical_offset: int) -> bool:
        """Prepare a queue for an offset that is not its next one; False: it cannot follow."""
        if queue.next_offset == 0:
            queue.begin_at(queue_offset)  # older messages are not in this log, or were deleted
        elif queue_offset == 0:
            self._empty(queue, physical_offset)
        elif not queue.is_batch:
            return False
        elif queue_offset < queue.next_offset:
            self._commit(physical_offset)
            self._store.copies.cut_queue(queue, queue_offset)
        return True

    def _fit_light(self, queue: ConsumeQueue, queue_offset: int, physical_offset: int) -> bool:
        """`_fit` of a light queue: senders control its offsets, and must not stop a slave."""
        gap = queue_offset - queue.next_offset
        if queue_offset > 0 > gap:
            return False
        if queue.next_offset > 0:
            if 0 < gap <= LIGHT_BLANKS_MAX:
                self._store.copies.append_blanks(queue, gap)
                return True
            self._empty(queue, physical_offset)
        queue.begin_at(queue_offset)
        return True

    def _empty(self, queue: ConsumeQueue, physical_offset: int) -> None:
        logger.info(
            "queue %(queue_id)d of topic %(topic)s begins again",
            {"queue_id": queue.key[1], "topic": queue.key[0]},
        )
        self._commit(physical_offset)
        self._store.copies.empty_queue(queue)


class ReceiveBuffer:
    """Received bytes that are not in the files yet, in the form of a log for `LogReader`.

    The bytes are joined once; the same bytes are checked and written.

    Attributes:
      start: physical offset of its first byte.
      whole_end: physical offset after the last whole record.
      file_size: bytes of a file of the log.
      buffer: the joined bytes.
      pieces: the bytes after them, not joined yet.
    """

    def __init__(self, file_size: int) -> None:
        self.start = 0
        self.whole_end = 0
        self.file_size = file_size
        self.buffer = b""
        self.pieces: list[bytes | memoryview] = []

    def join(self) -> None:
        """Move the pieces to `buffer`."""
        self.buffer = b"".join([self.buffer, *self.pieces])
        self.pieces = []

    @property
    def files(self) -> dict[int, ReceivedFile]:
        """The files of the whole records."""
        first = self.start - self.start % self.file_size
        bases = range(first, self.whole_end, self.file_size)
        return {base: ReceivedFile(self, base) for base in bases}

    def take_until(self, end: int) -> list[memoryview]:
        """Remove and return the bytes before a physical offset, one piece for each file."""
        pieces = []
        view, begin = memoryview(self.buffer), self.start
        while self.start < end:
            room = self.file_size - self.start % self.file_size
            size = min(room, end - self.start)
            pieces.append(view[self.start - begin : self.start - begin + size])
            self.start += size
        self.buffer = self.buffer[self.start - begin :]
        return pieces


class ReceivedFile:
    """The received bytes of one file."""

    def __init__(self, arrived: ReceiveBuffer, base: int) -> None:
        self._arrived = arrived
        self._base = base

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes."""
        at = self._base + position - self._arrived.start
        return self._arrived.buffer[at : at + size]

    def next_data(self, position: Position) -> Position:
        """Received bytes have no holes."""
        return position


def _why_no_record(size: int, magic: int, room: int) -> str:
    if size == magic == 0:
        return "the master sends zeros where a record should begin"
    if magic == MAGIC_BLANK:
        return f"a blank of {size} bytes with {room} left in the file; {_FILE_SIZE}"
    return (
        f"a record of {size} bytes with {room} left in the file: the bytes are damaged, or "
        f"{_FILE_SIZE}"
    )
