"""The bytes of a log, whatever they are: read in chunks, searched for records, judged when zero.

A log is anything that has files of one size by the physical offsets of their first bytes: a
`CommitLog`, one file of it, or what a master has just sent. None of them needs to be whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from ...remoting.record_schema import MAGIC_V1, MAGIC_V2, RECORD_PREFIX
from ..offsets import Position

CHUNK = 1024 * 1024
EVERYWHERE = 1 << 62
"""Behind every byte of a log."""
SECTOR = 512
"""Bytes that a device writes whole or not at all."""
TORN_ZEROS = 16
"""Zero bytes before a sector's end that make it one that was not (wholly) written. A record's head
has at most 15 in a row."""

_MAGIC = re.compile(
    b"|".join(re.escape(RECORD_PREFIX.pack(0, magic)[4:]) for magic in (MAGIC_V1, MAGIC_V2))
)
_BEFORE_MAGIC = RECORD_PREFIX.size - 4
_ZEROS = bytes(CHUNK)


class Readable(Protocol):
    """One file's bytes."""

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes; fewer only where they end."""

    def next_data(self, position: Position) -> Position:
        """Where the next bytes that were ever written may start, from a position on."""


class ReadableLog(Protocol):
    """The bytes of a log."""

    @property
    def file_size(self) -> int:
        """Bytes that each file should have."""

    @property
    def files(self) -> Mapping[int, Readable]:
        """The files that can be read, by base, rising."""


class LogPart(NamedTuple):
    """Some files of a log, opened for one reader."""

    file_size: int
    files: Mapping[int, Readable]


def chunks(
    log: ReadableLog, start: int, end: int = EVERYWHERE, *, overlap: int = 0
) -> Iterator[tuple[int, bytes]]:
    """What was ever written from a physical offset on: (physical offset, up to `CHUNK` bytes).

    Args:
      end: no chunk begins at or behind this physical offset, or goes on `overlap` bytes behind it.
      overlap: bytes at the end of a chunk with which the next one of that file begins.

    Raises:
      StoreIOError: a file could not be read.
    """
    file_size = log.file_size
    for base in [base for base in log.files if start - file_size < base < end]:
        file, position = log.files[base], max(start - base, 0)
        stop = min(file_size, end - base)
        while position < stop:
            # A copy that leaves out blocks of zeros may begin just before the block.
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
    """Physical offsets in [start, end) at which the magic number is a record's.

    Raises:
      StoreIOError: a file could not be read.
    """
    # The next chunk begins where a size and magic cut in two would.
    for chunk_at, chunk in chunks(log, start, end, overlap=RECORD_PREFIX.size - 1):
        if all_zero(chunk):  # what lies behind the log's end, mostly
            continue
        for match in _MAGIC.finditer(chunk, _BEFORE_MAGIC):
            offset = chunk_at + match.start() - _BEFORE_MAGIC
            if offset >= end:
                break
            yield offset


def last_nonzero(log: ReadableLog, start: int) -> int:
    """Where the bytes that are not zero end, from a physical offset on; `start`: all are zero.

    Raises:
      StoreIOError: a file could not be read.
    """
    end = start
    for offset, chunk in chunks(log, start):
        if not all_zero(chunk):  # 50 times as fast as stripping them
            end = offset + len(chunk.rstrip(b"\0"))
    return end


def all_zero(chunk: bytes) -> bool:
    """Whether a chunk has nothing but zeros."""
    return chunk == (_ZEROS if len(chunk) == CHUNK else bytes(len(chunk)))


def has_unwritten_sector(log: ReadableLog, start: int, end: int) -> bool:
    """Whether [start, end) looks as if a sector of it never reached the device.

    Files are made of zeros and written once, so what a power cut left out reads as zeros up to the
    end of a sector; damage done to bytes that were written does not.

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
            if len(zeros) >= 4 and not any(zeros):
                return position + sector_end - len(zeros) < end
        position += len(chunk)
    return False
