"""One hash index file: from a key's hash to the physical offsets of its messages.

Java counterparts: store/index/IndexFile.java and IndexHeader.java of 5.3.3. Layout in
docs/formats/index_file.md: a header of 40 B, a table of slots, a table of entries; each slot holds
the newest entry's number, each entry the number of the one before it in its slot.

While a file is being filled its slot table lives in anonymous memory and its newest entries in a
buffer; slots and header reach the file at a roll and at close (`finish`). A crash in between loses
only what the log can give again.

Invariant beyond Apache's: a chain must strictly fall, or reading it stops (a damaged file cannot
make the broker spin).
"""

from __future__ import annotations

import mmap
import sys
from array import array

from .disk import Disk, DiskFile
from .errors import StoreIOError
from .format import (
    ENTRY,
    ENTRY_SIZE,
    INDEX_HEAD,
    INDEX_HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
)

PENDING_BYTES_MAX = 64 * 1024
"""Entries are written to the file in pieces of about this size."""

SLOTS_CHUNK = 256 * 1024

CHAIN_LENGTH_MAX = 1_000_000
"""Entries of one slot looked at per query; Apache's only limit is the file's 20 million."""

_INT32_MAX = 0x7FFFFFFF
_pack_entry = ENTRY.pack


class IndexFile:
    """One file, being filled or full.

    Args:
      disk: where it lies.
      path: its path; the name is its creation's local time.
      slot_count: slots of the table (maxHashSlotNum), > 0.
      index_count_max: entries it can number (maxIndexNum); number 0 is never used.
    """

    def __init__(self, disk: Disk, path: str, *, slot_count: int, index_count_max: int) -> None:
        self.path = path
        self.slot_count = slot_count
        self.index_count_max = index_count_max
        self.entries_position = INDEX_HEADER_SIZE + slot_count * SLOT_SIZE
        self.begin_timestamp_ms = 0
        self.end_timestamp_ms = 0
        self.begin_physical_offset = 0
        self.end_physical_offset = 0
        self.hash_slot_count = 0
        self.index_count = 1
        self.is_finished = True
        self._disk = disk
        self._file: DiskFile | None = None
        self._slots: memoryview | None = None
        self._pending = bytearray()
        self._pending_index = 1

    def create(self, *, end_physical_offset: int, end_timestamp_ms: int) -> None:
        """Make the file; its header goes on from the previous file's end, as Apache's does.

        Raises:
          StoreIOError: it could not be made.
        """
        file = self._disk.open(self.path, create=True)
        try:
            file.resize(self.entries_position + self.index_count_max * ENTRY_SIZE)
        except StoreIOError:
            file.close()
            self._disk.unlink(self.path)
            raise
        self._file = file
        self.begin_physical_offset = self.end_physical_offset = end_physical_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = end_timestamp_ms
        self._slots = self._anonymous_slots()
        self.is_finished = False

    def load(self) -> bool:
        """Read the header.

        Returns: False when the file's size is not that of the configured counts.

        Raises:
          StoreIOError: it could not be read.
        """
        self._file = self._disk.open(self.path)
        if self._file.size() != self.entries_position + self.index_count_max * ENTRY_SIZE:
            return False
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        ) = INDEX_HEAD.unpack(self._file.pread(INDEX_HEADER_SIZE, 0))
        self.index_count = min(max(self.index_count, 1), self.index_count_max)
        self._pending_index = self.index_count
        return True

    def reopen(self) -> None:
        """Take up filling again where the header ends.

        Raises:
          StoreIOError: it could not be read.
        """
        assert self._file is not None
        slots = self._anonymous_slots()
        position, size = INDEX_HEADER_SIZE, self.slot_count * SLOT_SIZE
        while position < INDEX_HEADER_SIZE + size:
            position = min(self._file.next_data(position), INDEX_HEADER_SIZE + size)
            position -= (position - INDEX_HEADER_SIZE) % SLOT_SIZE
            raw = self._file.pread(min(SLOTS_CHUNK, INDEX_HEADER_SIZE + size - position), position)
            if not raw:
                break
            values = array("i", raw[: len(raw) // SLOT_SIZE * SLOT_SIZE])
            if sys.byteorder == "little":
                values.byteswap()
            first = (position - INDEX_HEADER_SIZE) // SLOT_SIZE
            if raw.count(0) != len(raw):
                slots[first : first + len(values)] = memoryview(values)
            position += len(values) * SLOT_SIZE
        self._slots = slots
        self.is_finished = False

    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        return self.index_count >= self.index_count_max

    def put_many(self, entries: list[tuple[int, int, int]]) -> int:
        """Append entries, as many as fit.

        Args:
          entries: (key_hash, physical_offset, store_timestamp_ms): what `index_key_hash` gives,
            0 … 2^31 - 1; the message's, bytes >= 0; its time, kept as seconds since the file's
            begin (int32, clamped).

        Returns: how many were appended; fewer than given when the file is full then.

        Raises:
          StoreIOError: entries could not be written.

        Source: RocketMQ 5.3.3 store/index/IndexFile.java putKey.
        """
        slots, pending, slot_count = self._slots, self._pending, self.slot_count
        assert slots is not None
        first = count = self.index_count
        entries = entries[: self.index_count_max - count]
        if not entries:
            return 0
        begin = self.begin_timestamp_ms
        new_slots = 0
        for key_hash, physical_offset, store_timestamp_ms in entries:
            slot = key_hash % slot_count
            previous = slots[slot]
            if not 0 < previous < count:
                previous = 0
                new_slots += 1
            seconds = (store_timestamp_ms - begin) // 1000 if begin > 0 else 0
            if not 0 <= seconds <= _INT32_MAX:
                seconds = 0 if seconds < 0 else _INT32_MAX
            pending += _pack_entry(key_hash, physical_offset, seconds, previous)
            slots[slot] = count
            if count == 1:
                self.begin_physical_offset = physical_offset
                self.begin_timestamp_ms = begin = store_timestamp_ms
            count += 1
        self.hash_slot_count += new_slots
        self.index_count = count
        self.end_physical_offset = entries[-1][1]
        self.end_timestamp_ms = entries[-1][2]
        if len(pending) >= PENDING_BYTES_MAX:
            self.write_entries()
        return count - first

    def write_entries(self) -> None:
        """Write the entries that are in memory only.

        Raises:
          StoreIOError: they could not be written; they are kept.
        """
        if self._pending:
            assert self._file is not None
            position = self.entries_position + self._pending_index * ENTRY_SIZE
            self._file.pwrite(self._pending, position)
            self._pending = bytearray()
            self._pending_index = self.index_count

    def finish(self) -> None:
        """Write everything out, header last, and sync. Filling may go on after `reopen`.

        Raises:
          StoreIOError: it could not be written or synced.
        """
        if self.is_finished:
            return
        assert self._file is not None
        assert self._slots is not None
        self.write_entries()
        for first in range(0, self.slot_count, SLOTS_CHUNK // SLOT_SIZE):
            chunk = self._slots[first : first + SLOTS_CHUNK // SLOT_SIZE]
            raw = bytes(chunk.cast("B"))
            if raw.count(0) == len(raw):
                continue
            values = array("i", raw)
            if sys.byteorder == "little":
                values.byteswap()
            self._file.pwrite(values.tobytes(), INDEX_HEADER_SIZE + first * SLOT_SIZE)
        self._file.sync()
        self._file.pwrite(
            INDEX_HEAD.pack(
                self.begin_timestamp_ms,
                self.end_timestamp_ms,
                self.begin_physical_offset,
                self.end_physical_offset,
                self.hash_slot_count,
                self.index_count,
            ),
            0,
        )
        self._file.sync()
        self._slots = None
        self.is_finished = True

    def is_time_matched(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file's time span and the given one meet.

        Source: RocketMQ 5.3.3 store/index/IndexFile.java isTimeMatched.
        """
        return begin_ms <= self.end_timestamp_ms and end_ms >= self.begin_timestamp_ms

    def select(
        self, key_hash: int, found: list[int], count_max: int, begin_ms: int, end_ms: int
    ) -> None:
        """Append physical offsets of entries with this hash, newest first.

        Args:
          found: where to append; looked at no further once it holds `count_max`.
          begin_ms, end_ms: store times wanted, both included, compared in whole seconds.

        Raises:
          StoreIOError: the file could not be read.

        Source: RocketMQ 5.3.3 store/index/IndexFile.java selectPhyOffset.
        """
        index = self._slot_value(key_hash % self.slot_count)
        if not 0 < index < self.index_count:
            return
        for _ in range(CHAIN_LENGTH_MAX):
            if len(found) >= count_max:
                return
            entry_hash, physical_offset, seconds, previous = self._entry(index)
            if seconds < 0:
                return
            time_ms = self.begin_timestamp_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found.append(physical_offset)
            if not 0 < previous < index or time_ms < begin_ms:
                return
            index = previous

    def close(self) -> None:
        """Close the file; what was not finished is lost."""
        self._slots = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _slot_value(self, slot: int) -> int:
        if self._slots is not None:
            return int(self._slots[slot])
        assert self._file is not None
        raw = self._file.pread(SLOT_SIZE, INDEX_HEADER_SIZE + slot * SLOT_SIZE)
        return int(SLOT.unpack(raw)[0])

    def _entry(self, index: int) -> tuple[int, int, int, int]:
        if index >= self._pending_index:
            at = (index - self._pending_index) * ENTRY_SIZE
            key_hash, physical_offset, seconds, previous = ENTRY.unpack_from(self._pending, at)
        else:
            assert self._file is not None
            position = self.entries_position + index * ENTRY_SIZE
            raw = self._file.pread(ENTRY_SIZE, position)
            key_hash, physical_offset, seconds, previous = ENTRY.unpack(raw)
        return key_hash, physical_offset, seconds, previous

    def _anonymous_slots(self) -> memoryview:
        # Anonymous memory: pages cost nothing until a slot in them is used.
        return memoryview(mmap.mmap(-1, self.slot_count * SLOT_SIZE)).cast("i")
