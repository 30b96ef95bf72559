"""Reader of a part of a log file: the records that begin in it, and the holes between records.

A file can be split at any byte, and each part finds its own records: a record contains its physical
offset, which distinguishes it from bytes that only resemble a record. For any set of parts that
cover a file

- a record belongs to the part in which it begins;
- bytes that are not a record, a *hole*, belong to the part of the record before them, or to the
  first part if there is none.

So each is read exactly once, wherever the file is split.

A record has a magic number, lengths that add up, a topic, and the right physical offset; with
`verify_crc` also the right checksums. Invalid bytes in the newest file that no record follows are
its tail, as a crash leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np

from ..disk.os_disk import DiskFile
from ..disk.position import Position
from ..remoting.message_codec import check_record_crc
from ..remoting.record_schema import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
)
from ..store.log.log_bytes import LogPart, last_nonzero, record_candidates
from ..store.log.log_reader import CANDIDATE_CHUNK, RECORD_SIZE_MAX, Hole, LogReader
from .record_columns import RecordColumns, is_blank, walk

CHUNK: Final = 4 * 1024 * 1024
"""Bytes per read: some ten thousand records, a small part of a worker's memory."""

RAW_SHOWN: Final = 128
"""Bytes of a hole in the column `_raw`: a record's head and a little more."""


class Block(NamedTuple):
    """Consecutive records."""

    position: int
    """Byte in the file at which the buffer of `records` begins."""
    records: RecordColumns


Piece: TypeAlias = Block | Hole


class BoundedFile:
    """A view of the first bytes of a file.

    Args:
      file: open.
      limit: size of the view in bytes.
    """

    def __init__(self, file: DiskFile, limit: int) -> None:
        self._file = file
        self._limit = limit

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes; fewer at the view's end."""
        return self._file.pread(max(min(size, self._limit - position), 0), position)

    def next_data(self, position: Position) -> Position:
        """The first position at or after `position` that may hold written bytes."""
        return self._file.next_data(position)


class LogSegment:
    """One log file, read piece by piece.

    Args:
      file: open.
      base: physical offset of its first byte.
      file_size: the size of the store's log files in bytes.
      limit: bytes of this file that may be read; the end of a live store.
      is_newest: all later files are empty.
      verify_crc: whether a wrong checksum makes a record invalid.
    """

    def __init__(
        self,
        file: DiskFile,
        *,
        base: int,
        file_size: int,
        limit: int,
        is_newest: bool,
        verify_crc: bool = False,
    ) -> None:
        self._base = base
        self._file_size = file_size
        self._limit = min(limit, file_size)
        self._file = BoundedFile(file, self._limit)
        self._log = LogPart(file_size, {base: self._file})
        self._is_newest = is_newest
        self._verify_crc = verify_crc

    def pieces(self, begin: int, end: int) -> Iterator[Piece]:
        """The records that begin in [begin, end) bytes of the file, and their holes, in order.

        Raises:
          StoreIOError: the file cannot be read.
        """
        found = 0 if begin <= 0 else self._next_record(begin)
        if found is None:
            return
        at = found
        end = min(end, self._limit)
        if not at and not end:
            hole = self._hole_at(at)
            if hole is not None:
                yield hole
        while at < end:
            block, at = self._block(at, end)
            if block is not None:
                yield block
                if at < end:
                    continue
            hole = self._hole_at(at)
            if hole is None:
                return
            yield hole
            at = hole.end - self._base

    def head(self, hole: Hole) -> bytes:
        """The first bytes of a hole.

        Raises:
          StoreIOError: the file cannot be read.
        """
        return self._file.pread(RAW_SHOWN, Position(hole.start - self._base))

    def _block(self, at: int, end: int) -> tuple[Block | None, int]:
        """The records from `at` on in one chunk, and where the next one begins."""
        chunk = self._file.pread(CHUNK, Position(at))
        starts, after = walk(chunk, 0, end - at)
        if not len(starts):
            size = self._size_at(chunk)
            if size <= len(chunk):
                return None, at
            chunk = self._file.pread(size, Position(at))
            starts, after = walk(chunk, 0, end - at)
        records = RecordColumns(chunk, starts)
        count = self._good_count(records, chunk, at)
        if not count:
            return None, at
        if count < len(starts):
            after = int(starts[count])
        return Block(at, records.first(count)), at + after

    def _size_at(self, chunk: bytes) -> int:
        """The size in the head of a record at the chunk's begin; 0 if the head is not valid."""
        if len(chunk) < RECORD_PREFIX.size:
            return 0
        size, magic = RECORD_PREFIX.unpack_from(chunk, 0)
        return size if magic in (MAGIC_V1, MAGIC_V2) and size <= RECORD_SIZE_MAX else 0

    def _good_count(self, records: RecordColumns, chunk: bytes, at: int) -> int:
        count = records.good_count(self._base + at)
        if not self._verify_crc:
            return count
        good = records.first(count)
        wanted = good.field("body_crc")
        begins, ends = good.body_places
        sizes = good.ends - good.starts
        for row, start in enumerate(good.starts):
            body = chunk[begins[row] : ends[row]]
            if (len(body) and crc32(body) & 0x7FFFFFFF != wanted[row]) or (
                check_record_crc(chunk, int(start), int(sizes[row])) is False
            ):
                return row
        return count

    def _is_record(self, at: int) -> bool:
        head = self._file.pread(RECORD_PREFIX.size, Position(at))
        size = self._size_at(head)
        if not RECORD_SIZE_MIN <= size <= self._limit - at:
            return False
        chunk = self._file.pread(size, Position(at))
        records = RecordColumns(chunk, np.zeros(1, np.int64))
        return len(chunk) == size and self._good_count(records, chunk, at) == 1

    def _hole_at(self, at: int) -> Hole | None:
        """The hole at a position after the last record; None: a record, or the end of the file."""
        remaining, start = self._file_size - at, self._base + at
        if at >= self._limit:
            if self._is_newest or not remaining:
                return None
            return Hole(start, start + remaining, f"the file ends {remaining} bytes early")
        head = self._file.pread(RECORD_PREFIX.size, Position(at))
        if is_blank(head, at=0, remaining=remaining) or self._is_record(at):
            return None
        found = self._next_record(at + 1)
        reason = self._reason(start)
        if found is not None:
            return Hole(start, self._base + found, reason)
        if not self._is_newest:
            return Hole(start, start + remaining, reason)
        end = last_nonzero(self._log, start)
        return Hole(start, end, reason, at_end=True) if end > start else None

    def _reason(self, start: int) -> str:
        """Why no record begins at a physical offset."""
        reader = LogReader(
            self._log,
            start,
            check_crc=self._verify_crc,
            crc_problem=wrong_crc if self._verify_crc else None,
            size_max=RECORD_SIZE_MAX,
            chunk_size=CANDIDATE_CHUNK,
        )
        next(reader.scan(), None)
        return reader.reason or "zeros"

    def _next_record(self, begin: int) -> int | None:
        """The position of the first valid record at or after `begin`."""
        base = self._base
        for offset in record_candidates(self._log, base + begin, base + self._limit):
            if self._is_record(offset - base):
                return offset - base
        return None


def wrong_crc(physical_offset: int, properties: bytes, right: bool | None) -> str:
    """The problem with a record's CRC property, see `CrcProblem`; "" if it is right or missing."""
    return "the CRC of the record is wrong" if right is False else ""
