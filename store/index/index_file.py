"""Hash index files: map a key's hash to the physical offsets of its messages.

Java counterparts: store/index/IndexFile.java and IndexHeader.java of 5.3.3. Layout in
docs/formats/index_file.md: a header of 40 B, a table of slots, a table of entries; each slot holds
the newest entry's number, each entry the number of the previous one in its slot.

While a file is being filled its slot table is in anonymous memory and its newest entries in a
buffer; slots and header are written when the file is full and at close (`finish`). After a crash
the table is rebuilt from the entries that the checkpoint covers (`resume`, `rebuild_slots`): an
entry holds its hash, and a slot the newest entry of its hashes.

Invariant beyond Apache's: the entry numbers of a slot's chain must decrease, or reading stops, so
that a damaged file cannot put the broker into an endless loop.
"""

from __future__ import annotations

import mmap
import struct
import sys
import zlib
from array import array

from ...common.java_integers import INT32_MAX
from ...common.steps import Steps
from ...disk.errors import CorruptRecordError, StoreIOError
from ...disk.os_disk import Disk, DiskFile
from ...disk.position import START, Position
from ...native import Extension
from ..format import (
    ENTRY,
    ENTRY_SIZE,
    INDEX_HEAD,
    INDEX_HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
)
from ..recovery.checkpoint import IndexProgress

PENDING_BYTES_MAX = 64 * 1024
"""Entries are written to the file in pieces of about this size."""

SLOTS_CHUNK = 256 * 1024

REBUILD_COUNT = 2048
"""Entries per step of `rebuild_slots`: about 1 ms in a table of the usual size."""

SECOND_MS = 1_000

CHAIN_LENGTH_MAX = 1_000_000
"""Entries of one slot read per query; Apache's only limit is the file's 20 million."""

CHAIN_STEP_COUNT = 2_000
"""Entries of one step of a query, 3 ms. A query for a common tag in the past reads many."""

PACKED_ENTRY = struct.Struct("=Iqq")
"""(key hash, physical offset, store timestamp ms): an entry as the C extension packs it for
`put_packed`, in the machine's byte order. It is never in a file."""

_NO_HEADER = bytes(INDEX_HEADER_SIZE)
_pack_entry = ENTRY.pack


def _open_header(begin_timestamp_ms: int, begin_physical_offset: int) -> bytes:
    """The header on disk of a file that is being filled: no entries, and its first offset.

    Apache's broker writes its new files with such a header. When it finds one after a kill of this
    program, it fills the file from its first entry on, with the messages from that offset on.
    """
    times, offsets = (begin_timestamp_ms,) * 2, (begin_physical_offset,) * 2
    return INDEX_HEAD.pack(*times, *offsets, 0, 0)


class IndexFile:
    """One file, being filled or full.

    Args:
      path: its path; the name is the local time of its creation.
      slot_count: slots of the table (maxHashSlotNum), > 0.
      index_count_max: largest entry number + 1 (maxIndexNum); number 0 is never used.

    Attributes:
      begin_timestamp_ms, end_timestamp_ms, begin_physical_offset, end_physical_offset,
        hash_slot_count, index_count: the current fields of the header, on disk or not.
      is_finished: slots and header are in the file.
      header_crc: CRC32 of the header in the file.
      has_failed_sync: an fsync failed, so written bytes may be lost; no checkpoint may cover the
        file any more.
      has_right_size: the size matches the counts; set by `load`.
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
        self.header_crc = 0
        self.has_right_size = True
        self.has_failed_sync = False
        self._disk = disk
        self._file: DiskFile | None = None
        self._slots: memoryview | None = None
        self._pending = bytearray()
        self._pending_index = 1
        self._rebuilt_index = 0
        self._is_new = False

    @property
    def name(self) -> int:
        """The file's name, the 17 digits of a time, as a number."""
        return int(self.path.rpartition("/")[2])

    @property
    def is_rebuilding(self) -> bool:
        """Whether `rebuild_slots` has something to do; entries must not be put before."""
        return self._rebuilt_index > 0

    def create(self, *, end_physical_offset: int, end_timestamp_ms: int) -> None:
        """Create the file; its header begins with the previous file's end, as Apache's does.

        Raises:
          StoreIOError: it could not be created.
        """
        file = self._disk.open(self.path, create=True)
        try:
            file.resize(self.entries_position + self.index_count_max * ENTRY_SIZE)
            file.pwrite(_open_header(end_timestamp_ms, end_physical_offset), START)
        except StoreIOError:
            file.close()
            self._disk.unlink(self.path)
            raise
        self._file = file
        self.begin_physical_offset = self.end_physical_offset = end_physical_offset
        self.begin_timestamp_ms = self.end_timestamp_ms = end_timestamp_ms
        self._slots = self._anonymous_slots()
        self.is_finished = False
        self._is_new = True

    def load(self) -> str:
        """Open the file and read its header.

        Returns: "" or why the file cannot be used: its size does not match the configured counts,
          or its header is impossible in a finished file.

        Raises:
          StoreIOError: it could not be read.
        """
        self._file = self._disk.open(self.path)
        size, wanted = self._file.size(), self.entries_position + self.index_count_max * ENTRY_SIZE
        self.has_right_size = size == wanted
        if size != wanted:
            return f"it is {size} bytes long, with the configured counts it would be {wanted}"
        header = self._file.pread(INDEX_HEADER_SIZE, START)
        self.header_crc = zlib.crc32(header)
        (
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            index_count,
        ) = INDEX_HEAD.unpack(header)
        # A new file by Apache has a count of 0 and the previous file's end.
        self.index_count = self._pending_index = max(index_count, 1)
        if header == _NO_HEADER:
            return "it has no header: it was being filled when the process died"
        if not (
            min(self.begin_timestamp_ms, self.end_timestamp_ms) >= 0
            and 0 <= self.begin_physical_offset <= self.end_physical_offset
            and 0 <= self.hash_slot_count <= self.index_count_max
            and 0 <= index_count <= self.index_count_max
        ):
            return f"its header is impossible: {INDEX_HEAD.unpack(header)}"
        return ""

    def resume(self, progress: IndexProgress, *, clean: bool, read_only: bool) -> str:
        """Resume the file that was being filled, from the checkpoint's state.

        After an unclean exit the slot table is not read but rebuilt, see `rebuild_slots`, and a
        contradicting header is removed from the file.

        Args:
          progress: names this file, which is loaded and `has_right_size`.
          clean: the last exit was clean.
          read_only: nothing may be written.

        Returns: "" or why the file cannot be used.

        Raises:
          StoreIOError: it could not be read or written.
        """
        assert self._file is not None
        if not 1 <= progress.index_count <= self.index_count_max:
            return f"the checkpoint gives it {progress.index_count - 1} entries, which do not fit"
        as_on_disk = (
            self.begin_timestamp_ms == progress.begin_timestamp_ms
            and self.end_timestamp_ms == progress.end_timestamp_ms
            and self.begin_physical_offset == progress.begin_physical_offset
            and self.end_physical_offset == progress.end_physical_offset
            and self.hash_slot_count == progress.hash_slot_count
            and self.index_count == progress.index_count
        )
        self.begin_timestamp_ms = progress.begin_timestamp_ms
        self.end_timestamp_ms = progress.end_timestamp_ms
        self.begin_physical_offset = progress.begin_physical_offset
        self.end_physical_offset = progress.end_physical_offset
        self.hash_slot_count = progress.hash_slot_count
        self.index_count = self._pending_index = progress.index_count
        # The header may be older than the checkpoint, but the entries must be those that it counts.
        if self.index_count > 1 and (
            self._entry(1)[1] != self.begin_physical_offset
            or self._entry(self.index_count - 1)[1] != self.end_physical_offset
        ):
            return "its entries are not those of the checkpoint"
        if as_on_disk and (clean or self.is_full()):
            return ""
        if not read_only:
            self._clear_header()
        self._slots = self._anonymous_slots()
        self._rebuilt_index = 1 if self.index_count > 1 else 0
        self.is_finished = False
        return ""

    def rebuild_slots(self) -> None:
        """Enter the next `REBUILD_COUNT` entries into the slot table.

        Raises:
          StoreIOError: entries could not be read.
          CorruptRecordError: the file is shorter than it was.
        """
        slots, slot_count = self._slots, self.slot_count
        assert slots is not None
        assert self._file is not None
        index = self._rebuilt_index
        count = min(REBUILD_COUNT, self.index_count - index)
        raw = self._file.pread(
            count * ENTRY_SIZE, Position(self.entries_position + index * ENTRY_SIZE)
        )
        if len(raw) != count * ENTRY_SIZE:
            raise self._too_short(index)
        words = array("i", raw)
        if sys.byteorder == "little":
            words.byteswap()
        # An entry is five such words, the first is its hash.
        for index, key_hash in enumerate(words[:: ENTRY_SIZE // SLOT_SIZE], index):  # noqa: B020
            slots[key_hash % slot_count] = index
        self._rebuilt_index += count
        if self._rebuilt_index == self.index_count:
            self._rebuilt_index = 0

    def reopen(self) -> None:
        """Continue to fill a finished file.

        Raises:
          StoreIOError: it could not be read.
        """
        assert self._file is not None
        slots = self._anonymous_slots()
        position, size = INDEX_HEADER_SIZE, self.slot_count * SLOT_SIZE
        while position < INDEX_HEADER_SIZE + size:
            # The slot table is mostly holes where few keys were put.
            position = min(self._file.next_data(Position(position)), INDEX_HEADER_SIZE + size)
            position -= (position - INDEX_HEADER_SIZE) % SLOT_SIZE
            raw = self._file.pread(
                min(SLOTS_CHUNK, INDEX_HEADER_SIZE + size - position), Position(position)
            )
            if not raw:
                break
            values = array("i", raw[: len(raw) // SLOT_SIZE * SLOT_SIZE])
            # The file is big-endian, the table in memory has the machine's order.
            if sys.byteorder == "little":
                values.byteswap()
            first = (position - INDEX_HEADER_SIZE) // SLOT_SIZE
            if raw.count(0) != len(raw):
                slots[first : first + len(values)] = memoryview(values)
            position += len(values) * SLOT_SIZE
        self._slots = slots
        self.is_finished = False
        self._clear_header()

    def _clear_header(self) -> None:
        """Write a header without entries: the slots are about to be overwritten."""
        assert self._file is not None
        header = _open_header(self.begin_timestamp_ms, self.begin_physical_offset)
        if self._file.pread(INDEX_HEADER_SIZE, START) != header:
            self._file.pwrite(header, START)
            self._file.sync()

    def is_full(self) -> bool:
        """Whether no more entries fit."""
        return self.index_count >= self.index_count_max

    def put_many(self, entries: list[tuple[int, int, int]]) -> int:
        """Append entries, as many as fit.

        Args:
          entries: (key_hash, physical_offset, store_timestamp_ms): the result of `index_key_hash`,
            0 … 2^31 - 1; the message's offset, bytes >= 0; its time, kept as seconds since the
            file's begin (int32, clamped).

        Returns: the number of appended entries; fewer than given when the file is full.

        Source: RocketMQ 5.3.3 store/index/IndexFile.java putKey.
        """
        slots, pending, slot_count = self._slots, self._pending, self.slot_count
        assert slots is not None
        assert not self.is_rebuilding
        first = count = self.index_count
        entries = entries[: self.index_count_max - count]
        if not entries:
            return 0
        begin = self.begin_timestamp_ms
        new_slots = 0
        known_ms, seconds = -1, 0
        for key_hash, physical_offset, store_timestamp_ms in entries:
            slot = key_hash % slot_count
            previous = slots[slot]
            if not 0 < previous < count:
                previous = 0
                new_slots += 1
            if store_timestamp_ms != known_ms:
                known_ms = store_timestamp_ms
                seconds = (store_timestamp_ms - begin) // 1000 if begin > 0 else 0
                if not 0 <= seconds <= INT32_MAX:
                    seconds = 0 if seconds < 0 else INT32_MAX
            pending += _pack_entry(key_hash, physical_offset, seconds, previous)
            slots[slot] = count
            if count == 1:
                self.begin_physical_offset = physical_offset
                self.begin_timestamp_ms = begin = store_timestamp_ms
                known_ms = -1  # the first entry counts from the previous file's end
            count += 1
        self.hash_slot_count += new_slots
        self.index_count = count
        self.end_physical_offset = entries[-1][1]
        self.end_timestamp_ms = entries[-1][2]
        return count - first

    def put_packed(self, native: Extension, entries: bytes, first: int) -> int:
        """As `put_many`, for entries that the C extension packed.

        Args:
          entries: PACKED_ENTRY_SIZE bytes each.
          first: the number of the first one to append.
        """
        assert self._slots is not None
        assert not self.is_rebuilding
        packed, count, new_slots = native.index_put(
            self._slots, self.slot_count, self.index_count, self.index_count_max,
            self.begin_timestamp_ms, entries, first,
        )  # fmt: skip
        if not count:
            return 0
        unpack, size = PACKED_ENTRY.unpack_from, PACKED_ENTRY.size
        if self.index_count == 1:
            _, self.begin_physical_offset, self.begin_timestamp_ms = unpack(entries, first * size)
        _, self.end_physical_offset, self.end_timestamp_ms = unpack(
            entries, (first + count - 1) * size
        )
        self._pending += packed
        self.hash_slot_count += new_slots
        self.index_count += count
        return count

    @property
    def has_much_pending(self) -> bool:
        """Whether enough entries are in memory only that `write_entries` is due."""
        return len(self._pending) >= PENDING_BYTES_MAX

    def write_entries(self) -> None:
        """Write the entries that are in memory only.

        Raises:
          StoreIOError: they could not be written; they are kept.
        """
        if self._pending:
            assert self._file is not None
            position = Position(self.entries_position + self._pending_index * ENTRY_SIZE)
            self._file.pwrite(self._pending, position)
            self._pending = bytearray()
            self._pending_index = self.index_count

    def finish(self) -> None:
        """Write entries, slots, then the header, and sync. `reopen` continues to fill it.

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
            # Left as a hole: a table of 20 MB would be written for a few keys.
            if raw.count(0) == len(raw):
                continue
            values = array("i", raw)
            if sys.byteorder == "little":
                values.byteswap()
            self._file.pwrite(values.tobytes(), Position(INDEX_HEADER_SIZE + first * SLOT_SIZE))
        self._sync(self._file)
        # The header last and after a sync: it vouches for entries and slots.
        header = INDEX_HEAD.pack(
            self.begin_timestamp_ms,
            self.end_timestamp_ms,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.hash_slot_count,
            self.index_count,
        )
        self._file.pwrite(header, START)
        self._sync(self._file)
        self.header_crc = zlib.crc32(header)
        self._slots = None
        self.is_finished = True

    def sync_entries(self) -> None:
        """Sync the entries written so far; may run in a worker thread beside `finish`.

        Raises:
          StoreIOError: it could not be synced.
        """
        file = self._disk.open(self.path)
        try:
            self._sync(file)
        finally:
            file.close()

    def _sync(self, file: DiskFile) -> None:
        try:
            file.sync()
            if self._is_new:  # its name, and the removal of files that it replaces
                folder = self.path.rpartition("/")[0]
                self._disk.sync_folder(folder)
                self._disk.sync_folder(folder.rpartition("/")[0])
                self._is_new = False
        except StoreIOError:
            self.has_failed_sync = True
            raise

    def count_at_end(self, physical_offset: int) -> int:
        """The number of entries at the end that are of the message at this offset.

        Raises:
          StoreIOError, CorruptRecordError: an entry could not be read.
        """
        index = self.index_count - 1
        while index > 0 and self._entry(index)[1] == physical_offset:
            index -= 1
        return self.index_count - 1 - index

    def is_time_matched(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file's time span and the given one overlap.

        Source: RocketMQ 5.3.3 store/index/IndexFile.java isTimeMatched.
        """
        return begin_ms <= self.end_timestamp_ms and end_ms >= self.begin_timestamp_ms

    def select(
        self, key_hash: int, found: dict[int, None], count_max: int, begin_ms: int, end_ms: int
    ) -> Steps[None]:
        """Steps that add physical offsets of entries with this hash, newest first.

        A file that is closed between two steps, because retention removed it, has no more entries.

        Args:
          found: what to add to, as its keys, up to `count_max`.
          begin_ms, end_ms: store times, both included. An entry has whole seconds since the file's
            begin: it is taken if its second begins in that time or has `begin_ms`, so its message
            may be up to 999 ms earlier than `begin_ms`, or later than `end_ms`.

        Raises:
          StoreIOError: the file could not be read.
          CorruptRecordError: the file is shorter than it was.

        Source: RocketMQ 5.3.3 store/index/IndexFile.java selectPhyOffset.
        """
        if self._file is None:
            return
        index = self._slot_value(key_hash % self.slot_count)
        if not 0 < index < self.index_count:
            return
        for count in range(1, CHAIN_LENGTH_MAX + 1):
            if len(found) >= count_max:
                return
            if not count % CHAIN_STEP_COUNT:
                yield
                if self._file is None:
                    return
            entry_hash, physical_offset, seconds, previous = self._entry(index)
            if seconds < 0:
                return
            time_ms = self.begin_timestamp_ms + seconds * SECOND_MS
            if entry_hash == key_hash and begin_ms < time_ms + SECOND_MS and time_ms <= end_ms:
                found[physical_offset] = None
            # A chain only leads to earlier entries; a damaged one must not lead round in a circle.
            if not 0 < previous < index or time_ms + SECOND_MS <= begin_ms:
                return
            index = previous

    def close(self) -> None:
        """Close the file; entries in memory are lost unless it is finished."""
        self._slots = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _slot_value(self, slot: int) -> int:
        slots = self._slots  # `finish` may run in a thread
        if slots is not None:
            return int(slots[slot])
        assert self._file is not None
        raw = self._file.pread(SLOT_SIZE, Position(INDEX_HEADER_SIZE + slot * SLOT_SIZE))
        if len(raw) < SLOT_SIZE:
            raise self._too_short(0)
        return int(SLOT.unpack(raw)[0])

    def _entry(self, index: int) -> tuple[int, int, int, int]:
        if index >= self._pending_index:
            at = (index - self._pending_index) * ENTRY_SIZE
            key_hash, physical_offset, seconds, previous = ENTRY.unpack_from(self._pending, at)
        else:
            assert self._file is not None
            position = Position(self.entries_position + index * ENTRY_SIZE)
            raw = self._file.pread(ENTRY_SIZE, position)
            if len(raw) < ENTRY_SIZE:
                raise self._too_short(index)
            key_hash, physical_offset, seconds, previous = ENTRY.unpack(raw)
        return key_hash, physical_offset, seconds, previous

    def _too_short(self, index: int) -> CorruptRecordError:
        position = self.entries_position + index * ENTRY_SIZE
        reason = "the file was cut while it was open; restart the broker to rebuild it"
        return CorruptRecordError(self.path, position, reason)

    def _anonymous_slots(self) -> memoryview:
        # Anonymous memory: pages cost nothing until a slot in them is used.
        return memoryview(mmap.mmap(-1, self.slot_count * SLOT_SIZE)).cast("i")
