"""Consume queue extensions: data for message filters beyond the tags code.

Java counterpart: store/ConsumeQueueExt.java of 5.3.3 and its use in ConsumeQueue.java. A unit holds
the tags code, the store timestamp and a bit map of the subscriptions that the message matches; the
queue's unit then holds the extension unit's address in place of the tags code. Layout:
docs/formats/consume_queue_ext.md.

Units are written with `enableConsumeQueueExt=true`; existing ones are always read. A lost or
damaged unit only costs work: its message passes every tag filter here, and the consumer filters
again. An address is never reused for another unit.

The broker defines the bits of a bit map (broker/filters/filter_bit_maps.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ...disk.errors import CorruptRecordError, StoreIOError
from ...disk.position import Position
from ..format import EXT_END, EXT_HEAD, EXT_HEAD_SIZE, UNIT, UNIT_SIZE
from .consume_queue import ConsumeQueue, QueueFiles, QueueSizeError, wipe

logger = logging.getLogger(__name__)

EXT_ADDRESS_MAX = -(1 << 31) - 1
"""A tags code up to here is an address. Source: ConsumeQueueExt.java MAX_ADDR."""

_ADDRESS_BASE = -(1 << 63)
POSITION_MAX = EXT_ADDRESS_MAX - _ADDRESS_BASE
"""Bytes of extension that one queue can address. Source: ConsumeQueueExt.java MAX_REAL_OFFSET."""

UNIT_SIZE_MAX = 0x7FFF
USUAL_SIZE_MAX = 256
"""Bytes of the first read of a unit; 64 consumer groups take 280 bits."""

END_ROOM = 4
"""Bytes kept free at a file's end. Source: ConsumeQueueExt.java END_BLANK_DATA_LENGTH."""

READ_AHEAD = 16 * 1024
SCAN_COUNT = 1000
"""Queue units per read in the search for the newest address."""

BitMapOf = Callable[[str, bytes], bytes | None]
"""(topic, encoded properties) to the bit map of a message, None for none; does not raise."""


def is_ext_address(tags_code: int) -> bool:
    """Whether a queue unit's tags code is the address of an extension unit."""
    return tags_code <= EXT_ADDRESS_MAX


class ExtUnit(NamedTuple):
    """One extension unit.

    Attributes:
      bit_map: the subscriptions that it matches; None when it was not computed.
    """

    tags_code: int
    store_timestamp_ms: int
    bit_map: bytes | None

    def to_bytes(self) -> bytes:
        """The unit's bytes in a file, at most `UNIT_SIZE_MAX`."""
        bit_map = self.bit_map or b""
        size = EXT_HEAD_SIZE + len(bit_map)
        return EXT_HEAD.pack(size, self.tags_code, self.store_timestamp_ms, len(bit_map)) + bit_map

    @classmethod
    def from_bytes(cls, data: bytes, position: int) -> ExtUnit | None:
        """The unit at a position; None when there is no whole one."""
        if position + EXT_HEAD_SIZE > len(data):
            return None
        size, tags_code, timestamp_ms, bit_map_size = EXT_HEAD.unpack_from(data, position)
        if size != EXT_HEAD_SIZE + max(bit_map_size, 0) or position + size > len(data):
            return None
        bit_map = data[position + EXT_HEAD_SIZE : position + size] or None
        return cls(tags_code, timestamp_ms, bit_map)


class ConsumeQueueExt:
    """The extension units of one queue, addressed by their positions.

    Args:
      files: the pool of open files.

    Attributes:
      end: position of the next unit, bytes from the start of the extension.
      written_end: position up to which units are in the files; the rest is in memory.
    """

    def __init__(self, folder: str, files: QueueFiles) -> None:
        self.folder = folder
        self.end = 0
        self.written_end = 0
        self._files = files
        self._file_offsets: list[int] = []
        self._tail = bytearray()

    def load(self) -> None:
        """Find the files; `cut` sets the end, which only the queue knows.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: a file has another size than configured.
        """
        size = self._files.file_size
        self._file_offsets = []
        names = [n for n in self._files.disk.list(self.folder) if n.isascii() and n.isdigit()]
        for name in names:
            path = f"{self.folder}/{name}"
            file = self._files.get(path)
            found = file.size()
            if found == 0 and name == names[-1]:  # being created when the process died
                file.resize(size)
            elif found != size or int(name) % size:
                raise QueueSizeError(
                    path,
                    0,
                    f"the file is not {size} bytes long; set mappedFileSizeConsumeQueueExt to the "
                    "size it was written with, or remove this folder while the broker is down",
                )
            self._file_offsets.append(int(name))

    def unit_at(self, address: int) -> ExtUnit | None:
        """The unit at an address; None if there is none.

        Raises:
          StoreIOError: the file could not be read.
        """
        position = address - _ADDRESS_BASE
        data = self._read(position, USUAL_SIZE_MAX)
        unit = ExtUnit.from_bytes(data, 0)
        if unit is None and len(data) == USUAL_SIZE_MAX:
            unit = ExtUnit.from_bytes(self._read(position, UNIT_SIZE_MAX), 0)
        return unit

    def append(self, unit: ExtUnit) -> int | None:
        """Append a unit in memory.

        Returns: its address; None when it is too large, or all addresses are used up.
        """
        file_size = self._files.file_size
        if EXT_HEAD_SIZE + len(unit.bit_map or b"") > min(UNIT_SIZE_MAX, file_size - END_ROOM):
            return None
        data = unit.to_bytes()
        room = file_size - self.end % file_size
        if len(data) > room - END_ROOM:
            if self.end + room + len(data) > POSITION_MAX:
                return None
            self._tail += EXT_END[:room].ljust(room, b"\0")
            self.end += room
        position = self.end
        self._tail += data
        self.end += len(data)
        return position + _ADDRESS_BASE

    def write(self, until: int) -> None:
        """Write the units in memory before a position to the files (not synced yet).

        Raises:
          StoreIOError: a file could not be created or written; unwritten units are kept.
        """
        size = self._files.file_size
        while self.written_end < until:
            position = self.written_end
            base = position - position % size
            take = min(until, base + size) - position
            path = self._path(base)
            file = self._files.get(path, create=True)
            if base not in self._file_offsets:
                self._file_offsets.append(base)
            file.pwrite(bytes(self._tail[:take]), Position(position - base))
            self._files.unsynced.add(path)
            del self._tail[:take]
            self.written_end += take

    def cut(self, end: int) -> None:
        """Remove all units from a position on, on disk, too.

        Raises:
          StoreIOError: a file could not be written.
        """
        size = self._files.file_size
        for base in list(self._file_offsets):
            path = self._path(base)
            if base >= end:
                self._files.remove(path)
                self._file_offsets.remove(base)
            elif base + size > end and wipe(self._files.get(path), Position(end - base)):
                self._files.unsynced.add(path)
        self._tail.clear()
        self.end = self.written_end = end

    def forget(self, end: int) -> None:
        """Remove all units from a position on, none of which is in a file."""
        del self._tail[end - self.written_end :]
        self.end = end

    def remove_before(self, address: int) -> None:
        """Remove the files that end before an address.

        Raises:
          StoreIOError: a file could not be removed.
        """
        size = self._files.file_size
        for base in list(self._file_offsets):
            if base + size <= min(address - _ADDRESS_BASE, self.written_end):
                self._files.remove(self._path(base))
                self._file_offsets.remove(base)

    def remove(self) -> None:
        """Remove all files.

        Raises:
          StoreIOError: one could not be removed.
        """
        self._files.forget(self.folder)
        self._files.disk.remove_folder(self.folder)
        self._files.unsynced.add(self.folder.rpartition("/")[0])
        self.reset()

    def reset(self) -> None:
        """Become empty without touching the disk."""
        self._file_offsets = []
        self._tail.clear()
        self.end = self.written_end = 0

    def end_of(self, address: int) -> int:
        """Position of the next unit, when the one at this address is the last in use.

        The end of an unreadable unit is unknown: the next one is then written into the next file,
        whose addresses were never used.

        Raises:
          StoreIOError: the file could not be read.
        """
        self.end = self.written_end = 1 << 63  # so that `unit_at` reads all of the files
        unit = self.unit_at(address)
        position = address - _ADDRESS_BASE
        if unit is not None:
            return position + len(unit.to_bytes())
        size = self._files.file_size
        logger.warning(
            "%(folder)s: the unit at %(position)d cannot be read: its message passes every tag "
            "filter here, and the next unit goes into a new file",
            {"folder": self.folder, "position": position},
        )
        return (position // size + 1) * size

    def reader(self) -> Callable[[int], ExtUnit | None]:
        """A function from address to unit that reads ahead, for mostly ascending addresses."""
        chunk, chunk_at = b"", 0

        def read(address: int) -> ExtUnit | None:
            nonlocal chunk, chunk_at
            position = address - _ADDRESS_BASE
            if chunk_at <= position:
                unit = ExtUnit.from_bytes(chunk, position - chunk_at)
                if unit is not None:
                    return unit
            chunk, chunk_at = self._read(position, READ_AHEAD), position
            return ExtUnit.from_bytes(chunk, 0) or self.unit_at(address)

        return read

    def _read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from a position on, from memory or from one file."""
        if position >= self.written_end:
            start = position - self.written_end
            return bytes(self._tail[start : start + size])
        base = position - position % self._files.file_size
        if base not in self._file_offsets:
            return b""
        count = min(size, self.written_end - position)
        return self._files.get(self._path(base)).pread(count, Position(position - base))

    def _path(self, base: int) -> str:
        return f"{self.folder}/{base:020d}"


class ExtendedConsumeQueue(ConsumeQueue):
    """A consume queue with extension units.

    Args:
      ext: its extension.
      writes: whether new messages get a unit there.
      bitmap_of: computes their bit map; None: they have none.
      topic, queue_id and the rest: see `ConsumeQueue`.
    """

    is_plain = False

    __slots__ = ("bitmap_of", "ext", "writes")

    def __init__(
        self,
        topic: str,
        queue_id: int,
        *,
        folder: str,
        files: QueueFiles,
        topic_field: bytes,
        magic: int,
        topic_hash: int,
        ext: ConsumeQueueExt,
        writes: bool,
        bitmap_of: BitMapOf | None,
    ) -> None:
        super().__init__(
            topic,
            queue_id,
            folder=folder,
            files=files,
            topic_field=topic_field,
            magic=0 if writes else magic,
            topic_hash=topic_hash,
        )
        self.ext = ext
        self.writes = writes
        self.bitmap_of = bitmap_of

    def load(self) -> None:
        """Load the queue, then its extension up to the last unit that the queue refers to.

        Where no more units are written, extension files of another size than configured are
        ignored: messages with units there pass every filter.
        """
        super().load()
        try:
            self.ext.load()
        except CorruptRecordError as error:
            if self.writes:
                raise
            logger.warning("%(error)s", {"error": error})
            self.ext.reset()
        else:
            self._cut_ext()

    def write(self) -> None:
        """Write the extension, then the queue, so that every address on disk has its unit."""
        if self.tail_offset < self.max_offset:
            self.ext.write(self._ext_end(self.max_offset))
        super().write()

    def append_put(
        self, physical_offset: int, size: int, tags_code: int, now_ms: int, properties: bytes
    ) -> None:
        """Append the unit of a put and its extension unit, see `ConsumeQueue.append_put`."""
        stored = self.stored_tags_code(tags_code, now_ms, properties)
        super().append_put(physical_offset, size, stored, now_ms, properties)

    def roll_back(self) -> None:
        """Remove the units since the last commit, and their extension units."""
        self.ext.forget(self._ext_end(self.committed_offset))
        super().roll_back()

    def stored_tags_code(self, tags_code: int, store_timestamp_ms: int, properties: bytes) -> int:
        """Append an extension unit; returns its address, or the tags code if it does not fit."""
        if not self.writes:
            return tags_code
        bit_map = self.bitmap_of(self.key[0], properties) if self.bitmap_of is not None else None
        address = self.ext.append(ExtUnit(tags_code, store_timestamp_ms, bit_map))
        return tags_code if address is None else address

    def real_tags_code(self, stored: int) -> int | None:
        """The tags code behind a unit's `tags_code` field; None: its extension is lost."""
        if not is_ext_address(stored):
            return stored
        unit = self.ext.unit_at(stored)
        return None if unit is None else unit.tags_code

    def hidden_by(self, hides: Callable[[ExtUnit], bool]) -> Callable[[int], bool]:
        """A function that applies `hides` to the extension unit of a tags code.

        False without a unit, and where it cannot be read.
        """
        unit_at = self.ext.reader()

        def is_hidden(tags_code: int) -> bool:
            if not is_ext_address(tags_code):
                return False
            try:
                unit = unit_at(tags_code)
            except StoreIOError:
                return False
            return unit is not None and hides(unit)

        return is_hidden

    def with_real_tags_codes(self, units: bytes) -> bytes:
        """The same queue units with tags codes in place of addresses that can be read.

        Raises:
          StoreIOError: a file could not be read.
        """
        unit_at = self.ext.reader()
        found = bytearray()
        for physical_offset, size, tags_code in UNIT.iter_unpack(units):
            unit = unit_at(tags_code) if is_ext_address(tags_code) else None
            code = tags_code if unit is None else unit.tags_code
            found += UNIT.pack(physical_offset, size, code)
        return bytes(found)

    def cut_at(self, queue_offset: int) -> None:
        """Remove all units from a queue offset on, and their extension units."""
        before = self.max_offset
        super().cut_at(queue_offset)
        if self.max_offset != before:
            self._cut_ext()

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Set `min_offset`, see `ConsumeQueue`, and remove extension files before it."""
        super().correct_min_offset(min_physical_offset)
        if self.min_offset < self.max_offset:
            code = self.unit_at(self.min_offset)[2]
            if is_ext_address(code):
                self.ext.remove_before(code)

    def remove(self) -> None:
        """Remove the files, including those of the extension."""
        super().remove()
        self.ext.remove()

    def reset(self) -> None:
        """Become empty without touching the disk."""
        super().reset()
        self.ext.reset()

    def _cut_ext(self) -> None:
        """Cut the extension after the last unit that the queue refers to."""
        address = self._newest_address()
        self.ext.cut(0 if address is None else self.ext.end_of(address))

    def _newest_address(self) -> int | None:
        lowest = min(self.file_offsets, default=self.tail_offset * UNIT_SIZE) // UNIT_SIZE
        end = self.max_offset
        while end > lowest:
            # Backwards: the newest address is the largest, and most units have none.
            start = max(end - SCAN_COUNT, lowest)
            units = b""
            while start + len(units) // UNIT_SIZE < end:
                more = self.read(start + len(units) // UNIT_SIZE, end - start)
                if not more:
                    break
                units += more
            codes = [code for _, _, code in UNIT.iter_unpack(units) if is_ext_address(code)]
            if codes:
                return int(codes[-1])
            end = start
        return None

    def _ext_end(self, queue_offset: int) -> int:
        """The end of the extension for the units before a queue offset of the tail."""
        skip = (queue_offset - self.tail_offset) * UNIT_SIZE
        for _, _, code in UNIT.iter_unpack(bytes(self.tail[skip:])):
            if is_ext_address(code):
                return int(code) - _ADDRESS_BASE
        return self.ext.end
