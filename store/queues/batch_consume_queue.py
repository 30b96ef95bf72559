"""Batch consume queues (BatchCQ): one unit per record, and a record may hold many messages.

Java counterpart: store/queue/BatchConsumeQueue.java of 5.3.3, with 5.5.0's rule for records that
are not an inner batch: they count as a batch of one. Layout: docs/formats/batch_consume_queue.md.

A producer's batch is stored as one record, an inner batch: its body holds the messages, its
properties their number (INNER_NUM) and the queue offset of the first (INNER_BASE). A get of any of
these queue offsets answers the whole record; the consumer splits it.

A unit's position in the files does not depend on its queue offset, so units are found by binary
search. Files are named by the byte offset of their first unit, beginning with 0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from ...common.message_properties import INNER_BASE_NAME, INNER_NUM_NAME, find_property
from ...disk.errors import CorruptRecordError
from ...disk.position import Position
from ...remoting.sys_flag import INNER_BATCH
from ..format import BATCH_UNIT, BATCH_UNIT_SIZE, PRE_BLANK_SIZE, UNIT
from ..log.log_reader import LogRecord
from ..status import BoundaryType
from .consume_queue import ConsumeQueue, QueueFiles, halve, wipe

logger = logging.getLogger(__name__)

BATCH_SIZE_MAX = 0x7FFF
"""Messages in one record. Source: DispatchRequest.java, batchSize is a short."""

NOT_COMPACTED = -1

READ_COUNT = 100
"""Units read from a file at once, 4.5 KiB."""


class BatchUnit(NamedTuple):
    """One unit.

    Attributes:
      physical_offset, size: of the record, bytes.
      base_offset: queue offset of its first message.
      batch_size: messages in it, >= 1 in a valid unit.
    """

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    base_offset: int
    batch_size: int

    @property
    def end_offset(self) -> int:
        """Queue offset after its last message."""
        return self.base_offset + self.batch_size

    def to_bytes(self) -> bytes:
        return BATCH_UNIT.pack(*self, NOT_COMPACTED, 0)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray, position: int = 0) -> BatchUnit:
        """The unit at a position; zeros where none was written."""
        return cls(*BATCH_UNIT.unpack_from(data, position)[:6])


def inner_batch(properties: bytes) -> tuple[int, int] | None:
    """(base_offset, batch_size) of a record's properties; None: it is not a valid inner batch.

    Source: RocketMQ 5.3.3 store/CommitLog.java setBatchSizeIfNeeded.
    """
    base = find_property(properties, INNER_BASE_NAME)
    count = find_property(properties, INNER_NUM_NAME)
    if base is None or count is None or not (base.isdigit() and count.isdigit()):
        return None
    if len(base) > 18 or len(count) > 5 or not 0 < int(count) <= BATCH_SIZE_MAX:
        return None
    return int(base), int(count)


def with_inner_base(properties: bytes, base_offset: int) -> bytes:
    """The properties of an inner batch with the queue offset of its first message.

    Source: RocketMQ 5.3.3 store/queue/BatchConsumeQueue.java assignQueueOffset; as there, a value
      of the sender is overruled (the last of two values counts).
    """
    separator = b"\x02" if properties and not properties.endswith(b"\x02") else b""
    return b"%s%sINNER_BASE\x01%d\x02" % (properties, separator, base_offset)


def batch_refusal(queue: ConsumeQueue, properties: bytes, sys_flag: int) -> str:
    """Why a record must not be put into a queue; "" when it may.

    Source: RocketMQ 5.3.3 store/DefaultMessageStore.java asyncPutMessage.
    """
    if sys_flag & INNER_BATCH and not queue.is_batch:
        return f"an inner batch, and {queue.key[0]} is not a topic of batches (queue.type=BatchCQ)"
    count = find_property(properties, INNER_NUM_NAME)
    if count is None:
        return ""
    if not sys_flag & INNER_BATCH:
        return "INNER_NUM on a message that is not an inner batch"
    if not count.isdigit() or len(count) > 5 or not 0 < int(count) <= BATCH_SIZE_MAX:
        return f"a batch of {count[:20]!r} messages"
    return ""


def unit_of_record(record: LogRecord, tags_code: int) -> BatchUnit:
    """The unit of a record.

    A record that is not an inner batch has a unit of one message at its own queue offset. That is
    5.5.0's rule; earlier versions wrote no unit for it.

    Source: RocketMQ 5.5.0 store/DispatchRequest.java, CommitLog.java setBatchSizeIfNeeded.
    """
    base, count = inner_batch(record.properties) or (record.queue_offset, 1)
    return BatchUnit(
        record.physical_offset,
        record.size,
        tags_code,
        record.store_timestamp_ms,
        base,
        count,
    )


def blanks_between(start: int, end: int, physical_offset: int) -> Iterator[BatchUnit]:
    """Units for queue offsets whose records are in a hole of the log; in memory only.

    Args:
      start, end: the queue offsets, end not included.
      physical_offset: of the record behind the hole.
    """
    while start < end:
        count = min(end - start, BATCH_SIZE_MAX)
        yield BatchUnit(physical_offset, PRE_BLANK_SIZE, 0, 0, start, count)
        start += count


class BatchConsumeQueue(ConsumeQueue):
    """One queue of batches. Owned by the store's task; for the arguments see `ConsumeQueue`.

    Offsets count messages, as in any queue; only the units in `tail` differ.

    Attributes:
      tail_unit: number of the first unit in `tail`, counted from the queue's first unit ever.
    """

    is_plain = False
    is_batch = True
    _size_key = "mapperFileSizeBatchConsumeQueue"
    _size_error = CorruptRecordError

    __slots__ = ("tail_unit",)

    def __init__(
        self,
        topic: str,
        queue_id: int,
        *,
        folder: str,
        files: QueueFiles,
        topic_field: bytes,
        topic_hash: int,
    ) -> None:
        super().__init__(
            topic,
            queue_id,
            folder=folder,
            files=files,
            topic_field=topic_field,
            magic=0,
            topic_hash=topic_hash,
            unit_size=BATCH_UNIT_SIZE,
        )
        self.tail_unit = 0

    def load(self) -> None:
        """Find the files, and the last unit written into the newest.

        A unit is valid when its offset is >= 0, its size > 0, its base >= 0 and its batch size > 0,
        as in Apache.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: a file has another size than configured, or one is missing between
            two others.
        """
        self._find_files()
        units_per_file = self.files.file_size // BATCH_UNIT_SIZE
        self.tail.clear()
        self.tail_unit = 0
        # A crash may leave files without units: the newest that begins with a unit is the last.
        while len(self.file_offsets) > 1 and not self._is_written(self._first_of_newest()):
            self.files.remove(self.path_of(self.file_offsets.pop()))
        if self.file_offsets:
            low = self._first_of_newest()
            self.tail_unit = halve(low, low + units_per_file, self._is_written)
        self._note_end(0)

    def physical_end(self) -> int:
        """First byte of the log after the last record of this queue; 0 when it has none."""
        if self._unit_end == self._first_unit:
            return 0
        unit = self._unit(self._unit_end - 1)
        return unit.physical_offset + unit.size

    def unit_at(self, queue_offset: int) -> tuple[int, int, int]:
        """(physical_offset, size, tags_code) of the record that holds a message; zeros if none.

        Raises:
          StoreIOError: the file could not be read.
        """
        for unit in self.units(queue_offset):
            if unit.base_offset <= queue_offset:
                return unit[:3]
            break
        return (0, 0, 0)

    def read(self, queue_offset: int, count_max: int) -> bytes:
        """Units in the format of a plain queue, one per queue offset: repeated within a batch.

        Raises:
          StoreIOError: a file could not be read.
        """
        found = bytearray()
        end = min(queue_offset + count_max, self.next_offset)
        for unit in self.units(queue_offset):
            if unit.base_offset > queue_offset or queue_offset >= end:
                break
            count = min(unit.end_offset, end) - queue_offset
            found += UNIT.pack(*unit[:3]) * count
            queue_offset += count
        return bytes(found)

    def units(self, queue_offset: int) -> Iterator[BatchUnit]:
        """The units from the one that holds a queue offset, or from the first after it.

        Includes units that are not visible yet; the caller stops at `max_offset`.

        Raises:
          StoreIOError: a file could not be read.
        """
        number = halve(
            self._first_unit,
            self._unit_end,
            lambda middle: self._unit(middle).end_offset <= queue_offset,
        )
        while number < self._unit_end:
            data = self._read_units(number)
            for position in range(0, len(data), BATCH_UNIT_SIZE):
                yield BatchUnit.from_bytes(data, position)
                number += 1

    def unit_before(self, queue_offset: int) -> BatchUnit | None:
        """The unit before the one that `units` begins with; None: that one is the first.

        Raises:
          StoreIOError: a file could not be read.
        """
        number = halve(
            self._first_unit,
            self._unit_end,
            lambda middle: self._unit(middle).end_offset <= queue_offset,
        )
        return self._unit(number - 1) if number > self._first_unit else None

    def write(self) -> None:
        """Write the visible part of the tail to its files (not synced yet: `files.unsynced`).

        Raises:
          StoreIOError: a file could not be created or written; the tail is kept.
        """
        size = self.files.file_size
        while self.tail_offset < self.max_offset:
            position = self.tail_unit * BATCH_UNIT_SIZE
            base = position // size * size
            take = min(self._visible_size(), base + size - position)
            path = self.path_of(base)
            file = self.files.get(path, create=True)
            if base not in self.file_offsets:
                self.file_offsets.append(base)
            file.pwrite(bytes(self.tail[:take]), Position(position - base))
            self.files.unsynced.add(path)
            del self.tail[:take]
            self.tail_unit += take // BATCH_UNIT_SIZE
            self._note_tail()

    def append_put(
        self, physical_offset: int, size: int, tags_code: int, now_ms: int, properties: bytes
    ) -> None:
        """Append the unit of a put, not visible yet; see `ConsumeQueue.append_put`."""
        base = self.next_offset
        named = inner_batch(properties)
        count = named[1] if named is not None else 1
        unit = BatchUnit(physical_offset, size, tags_code, now_ms, base, count)
        self.tail += unit.to_bytes()
        self.next_offset = base + count

    def roll_back(self) -> None:
        """Remove the units since the last commit."""
        while self.tail and self._unit(self._unit_end - 1).base_offset >= self.committed_offset:
            del self.tail[-BATCH_UNIT_SIZE:]
        self.next_offset = self.committed_offset
        self._note_tail()

    def append_recovered(self, queue_offset: int, unit: bytes) -> None:
        """Append a unit during recovery, visible at once.

        Queue offsets may be left out (an older broker assigned some to records without a unit). A
        record replaces earlier ones with the same queue offsets.

        Args:
          queue_offset: the unit's base offset.
          unit: in the format of this queue.
        """
        if queue_offset < self.max_offset:
            self.cut_at(queue_offset)
        if self._unit_end == self._first_unit:
            self.min_offset = queue_offset
        self.tail += unit
        self.next_offset = queue_offset + BatchUnit.from_bytes(unit).batch_size
        self.max_offset = self.committed_offset = self.next_offset
        self._note_tail()

    def cut(self, physical_end: int) -> None:
        """Remove units of records that end after `physical_end`, on disk, too (zeros).

        Raises:
          StoreIOError: a file could not be read or written.
        """
        self._truncate(self._number_after(physical_end))

    def end_before(self, physical_end: int, end: int | None = None) -> int:
        """As `ConsumeQueue.end_before`; all units are considered."""
        number = self._number_after(physical_end)
        if number > self._first_unit:
            return self._unit(number - 1).end_offset
        return self._unit(number).base_offset if number < self._unit_end else self.max_offset

    def _number_after(self, physical_end: int) -> int:
        """The number of the first unit whose record ends after a physical offset."""

        def stays(number: int) -> bool:
            unit = self._unit(number)
            return unit.physical_offset + unit.size <= physical_end

        return halve(self._first_unit, self._unit_end, stays)

    def cut_at(self, queue_offset: int) -> None:
        """Remove the units of records with messages from a queue offset on, on disk, too (zeros).

        Raises:
          StoreIOError: a file could not be read or written.
        """
        self._truncate(
            halve(
                self._first_unit,
                self._unit_end,
                lambda middle: self._unit(middle).end_offset <= queue_offset,
            )
        )

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Set `min_offset` to the first message that is still in the log.

        Raises:
          StoreIOError: a file could not be read.
        """
        number = halve(
            self._first_unit,
            self._unit_end,
            lambda middle: 0 <= self._unit(middle).physical_offset < min_physical_offset,
        )
        end = number == self._unit_end
        self.min_offset = self.max_offset if end else self._unit(number).base_offset
        self.note_change()

    def _is_expired(self, base: int, min_physical_offset: int) -> bool:
        last = (base + self.files.file_size) // BATCH_UNIT_SIZE - 1
        return self._unit(last).physical_offset < min_physical_offset

    def reset(self) -> None:
        """Become empty without touching the disk."""
        super().reset()
        self.tail_unit = 0

    def offset_by_time(self, timestamp_ms: int, boundary: BoundaryType) -> int:
        """The queue offset for a store timestamp, see `offset_by_time`: the first of a batch.

        Raises:
          StoreIOError: a file could not be read.
        """
        after = boundary is BoundaryType.LOWER

        def is_before(number: int) -> bool:
            unit = self._unit(number)
            if unit.base_offset < self.min_offset or unit.store_timestamp_ms < timestamp_ms:
                return True
            return not after and unit.store_timestamp_ms == timestamp_ms

        number = halve(self._first_unit, self._unit_end, is_before)
        if not after:
            number = max(number - 1, self._first_unit)
        if number == self._unit_end:
            return self.max_offset
        return min(max(self._unit(number).base_offset, self.min_offset), self.max_offset)

    # ---- units by number -----------------------------------------------------------------

    @property
    def _first_unit(self) -> int:
        return self.file_offsets[0] // BATCH_UNIT_SIZE if self.file_offsets else self.tail_unit

    @property
    def _unit_end(self) -> int:
        return self.tail_unit + len(self.tail) // BATCH_UNIT_SIZE

    def _first_of_newest(self) -> int:
        return self.file_offsets[-1] // BATCH_UNIT_SIZE

    def _unit(self, number: int) -> BatchUnit:
        if number >= self.tail_unit:
            return BatchUnit.from_bytes(self.tail, (number - self.tail_unit) * BATCH_UNIT_SIZE)
        return BatchUnit.from_bytes(self._pread(number, 1))

    def _read_units(self, number: int) -> bytes:
        """Units from a number on: the rest of the tail, or up to `READ_COUNT` of one file."""
        if number >= self.tail_unit:
            return bytes(self.tail[(number - self.tail_unit) * BATCH_UNIT_SIZE :])
        units_per_file = self.files.file_size // BATCH_UNIT_SIZE
        file_end = (number // units_per_file + 1) * units_per_file
        return self._pread(number, min(READ_COUNT, file_end - number, self.tail_unit - number))

    def _pread(self, number: int, count: int) -> bytes:
        position = number * BATCH_UNIT_SIZE
        base = position // self.files.file_size * self.files.file_size
        size = count * BATCH_UNIT_SIZE
        return self.files.get(self.path_of(base)).pread(size, Position(position - base))

    def _is_written(self, number: int) -> bool:
        unit = BatchUnit.from_bytes(self._pread(number, 1))
        where = unit.physical_offset >= 0 and unit.size > 0
        return where and unit.base_offset >= 0 and unit.batch_size > 0

    def _visible_size(self) -> int:
        size = len(self.tail)
        while size and BatchUnit.from_bytes(self.tail, size - BATCH_UNIT_SIZE).end_offset > (
            self.max_offset
        ):
            size -= BATCH_UNIT_SIZE
        return size

    def _truncate(self, number: int) -> None:
        """Remove the units from this number on, on disk, too, valid or not."""
        if number == self._unit_end:
            self._zero_from(number * BATCH_UNIT_SIZE)
            return
        end_offset = self._unit(number).base_offset
        self._zero_from(number * BATCH_UNIT_SIZE)
        if number >= self.tail_unit:
            del self.tail[(number - self.tail_unit) * BATCH_UNIT_SIZE :]
        else:
            self.tail.clear()
            self.tail_unit = number
        self._note_end(end_offset)

    def _zero_from(self, position: int) -> None:
        size = self.files.file_size
        for base in reversed(list(self.file_offsets)):
            path = self.path_of(base)
            if base > position or (base == position and base != self.file_offsets[0]):
                self.files.remove(path)
                self.file_offsets.remove(base)
            elif base + size > position and wipe(
                self.files.get(path), Position(max(position - base, 0))
            ):
                self.files.unsynced.add(path)

    def _note_end(self, if_empty: int) -> None:
        """Set the offsets after units were loaded or removed."""
        end = if_empty
        if self._unit_end > self._first_unit:
            end = self._unit(self._unit_end - 1).end_offset
        self.max_offset = self.committed_offset = self.next_offset = end
        self._note_tail()

    def _note_tail(self) -> None:
        first = BatchUnit.from_bytes(self.tail).base_offset if self.tail else self.next_offset
        self.tail_offset = first
        # Offsets may be left out, so it may be after `max_offset`: then the queue ends here.
        self.note_change()
