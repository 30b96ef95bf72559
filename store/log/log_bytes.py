"""Raw bytes of a log: reading in chunks, searching for records, detecting zeros.

A log here is anything with files of one size by the physical offsets of their first bytes: a
`CommitLog`, one file of it, or bytes that a master has just sent. None of them needs to be whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from ...disk.position import Position
from ...remoting.record_schema import MAGIC_V1, MAGIC_V2, RECORD_PREFIX

CHUNK = 1024 * 1024
EVERYWHERE = 1 << 62
"""A physical offset after every byte of a log."""
SECTOR = 512
"""Bytes that a device writes whole or not at all."""
TORN_ZEROS = 16
"""Zero bytes before a sector's end that show that it was not wholly written. A record's head has at
most 15 in a row."""

_MAGIC = re.compile(
    b"|".join(re.escape(RECORD_PREFIX.pack(0, magic)[4:]) for magic in (MAGIC_V1, MAGIC_V2))
)
_BEFORE_MAGIC = RECORD_PREFIX.size - 4
_ZEROS = bytes(CHUNK)


class Readable(Protocol):
    """The bytes of one file."""

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes; fewer only at their end."""

    def next_data(self, position: Position) -> Position:
        """The next position, from this one on, that may not be in a hole of the file."""


class ReadableLog(Protocol):
    """The bytes of a log."""

    @property
    def file_size(self) -> int:
        """Bytes that each file should have."""

    @property
    def files(self) -> Mapping[int, Readable]:
        """The readable files, by base, ascending."""


class LogPart(NamedTuple):
    """Some files of a log, opened for one reader."""

    file_size: int
    files: Mapping[int, Readable]


def chunks(
    log: ReadableLog, start: int, end: int = EVERYWHERE, *, overlap: int = 0
) -> Iterator[tuple[int, bytes]]:
    """The written bytes from a physical offset on: (physical offset, up to `CHUNK` bytes).

    Args:
      end: no chunk begins at or after this physical offset, or ends more than `overlap` bytes after
        it.
      overlap: bytes at the end of a chunk that the next one of that file repeats.

    Raises:
      StoreIOError: a file could not be read.
    """
    file_size = log.file_size
    for base in [base for base in log.files if start - file_size < base < end]:
        file, position = log.files[base], max(start - base, 0)
        stop = min(file_size, end - base)
        while position < stop:
            # In a sparse copy a record may begin in a hole, just before the next block.
            position = max(file.next_data(Position(position)) - overlap, position)
            if position >= stop:
                break
            size = min(CHUNK, file_size - position, stop - position + overlap)
            chunk = file.pread(size, Position(position))
            if not chunk:
                break
            yield base + position, chunk
            if len(chunk) <= overlap:
                break
            position += len(chunk) - overlap


def record_candidates(log: ReadableLog, start: int, end: int) -> Iterator[int]:
    """Physical offsets in [start, end) with the magic number of a record.

    Raises:
      StoreIOError: a file could not be read.
    """
    # Chunks overlap, so that no size and magic are cut in two.
    for chunk_at, chunk in chunks(log, start, end, overlap=RECORD_PREFIX.size - 1):
        if all_zero(chunk):  # usual behind the log's end
            continue
        for match in _MAGIC.finditer(chunk, _BEFORE_MAGIC):
            offset = chunk_at + match.start() - _BEFORE_MAGIC
            if offset >= end:
                break
            yield offset


def last_nonzero(log: ReadableLog, start: int) -> int:
    """The end of the last byte that is not zero, from a physical offset on; `start`: all are zero.

    Raises:
      StoreIOError: a file could not be read.
    """
    end = start
    for offset, chunk in chunks(log, start):
        if not all_zero(chunk):  # 50 times as fast as stripping them
            end = offset + len(chunk.rstrip(b"\0"))
    return end


def all_zero(chunk: bytes) -> bool:
    return chunk == (_ZEROS if len(chunk) == CHUNK else bytes(len(chunk)))


def has_unwritten_sector(log: ReadableLog, start: int, end: int) -> bool:
    """Whether a sector of [start, end) seems never to have reached the device.

    Files are preallocated with zeros and written once, so a sector lost in a power cut reads as
    zeros up to its end; damage to written bytes does not.

    Raises:
      StoreIOError: a file could not be read.
    """
    position = start
    while position < end:
        base = position - position % log.file_size
        file = log.files.get(base)
        if file is None:
            position = base + log.file_size
            continue
        first = Position(position - base)
        chunk = file.pread(CHUNK - first % SECTOR, first)
        if not chunk:
            position = base + log.file_size
            continue
        for sector_end in range(SECTOR - first % SECTOR, len(chunk) + 1, SECTOR):
            zeros = chunk[max(sector_end - TORN_ZEROS, 0) : sector_end]
            # A few zeros at a sector's end may be a message's own bytes.
            if len(zeros) >= 4 and not any(zeros):
                return position + sector_end - len(zeros) < end
        position += len(chunk)
    return False
