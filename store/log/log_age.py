"""Search for the newest store timestamp of a commit log file, without reading all of it.

Files are opened here separately, so all functions may run in a worker thread.
"""

from __future__ import annotations

from ...common.clock import LATEST_MS
from ...disk.os_disk import Disk, DiskFile
from ...disk.position import Position
from ...remoting.message_codec import MAGIC_BLANK, RECORD_PREFIX, RECORD_SIZE_MIN
from .commit_log import CommitLog
from .log_bytes import LogPart, record_candidates
from .log_reader import record_at

LOOK_BACK_MAX = 128 * 1024 * 1024
"""Bytes at a file's end in which its last message is searched for."""

_CHUNK = 256 * 1024
_PREFIX_SIZE = RECORD_PREFIX.size


def newest_timestamp_ms(disk: Disk, path: str, base: int, file_size: int) -> int:
    """Store timestamp of the newest message in a full commit log file; -1: it was not found.

    The search for the last record, which the file's blank follows, begins at the end. Store
    timestamps rise, but in a log by Apache they fall when the clock does, so the first record
    counts, too.

    Raises:
      StoreIOError: the file could not be read.
    """
    file = disk.open(path)
    try:
        last_ms = _last_timestamp_ms(file, base, file_size, file_size)
        first_ms = _timestamp_ms(LogPart(file_size, {base: file}), base)
        return max(last_ms, first_ms) if last_ms >= 0 else -1
    finally:
        file.close()


def timestamp_before_ms(disk: Disk, path: str, base: int, end: int, file_size: int) -> int:
    """Store timestamp of the message that ends at a position of a commit log file; -1: none does.

    Args:
      end: position in this file, > 0; at the file's end a record before the blank counts, too.

    Raises:
      StoreIOError: the file could not be read.
    """
    file = disk.open(path)
    try:
        return _last_timestamp_ms(file, base, end, file_size)
    finally:
        file.close()


def log_end_timestamp_ms(disk: Disk, log: CommitLog, end: int) -> int:
    """Store timestamp of the last message before a physical offset; 0: none was found.

    Args:
      log: loaded.
      end: the end of a record or of the log. Where no record ends there, the first one of its file
        counts.

    Raises:
      StoreIOError: the file could not be read.
    """
    base = (end - 1) // log.file_size * log.file_size
    if end <= 0 or base not in log.files:
        return 0
    path = log.files[base].path
    found_ms = timestamp_before_ms(disk, path, base, end - base, log.file_size)
    if found_ms < 0:
        found_ms = first_timestamp_ms(disk, path, base, log.file_size)
    return found_ms if 0 <= found_ms <= LATEST_MS else 0


def first_timestamp_ms(disk: Disk, path: str, base: int, file_size: int) -> int:
    """Store timestamp of the first message in a commit log file; -1: none begins there.

    Raises:
      StoreIOError: the file could not be read.
    """
    file = disk.open(path)
    try:
        return _timestamp_ms(LogPart(file_size, {base: file}), base)
    finally:
        file.close()


def _last_timestamp_ms(file: DiskFile, base: int, end: int, file_size: int) -> int:
    log = LogPart(file_size, {base: file})
    stop = max(end - LOOK_BACK_MAX, 0)
    chunk_end = end
    while chunk_end > stop:
        start = max(chunk_end - _CHUNK, 0)
        candidates = [*record_candidates(log, base + start, base + chunk_end)]
        for offset in reversed(candidates):
            if _is_last(file, Position(offset - base), end, file_size):
                found_ms = _timestamp_ms(log, offset)
                if found_ms >= 0:
                    return found_ms
        chunk_end = start
    return -1


def _is_last(file: DiskFile, position: Position, end: int, file_size: int) -> bool:
    """Whether a record here reaches `end`, or the blank that fills the file up to its end."""
    size, _ = RECORD_PREFIX.unpack(file.pread(_PREFIX_SIZE, position))
    after = position + size
    if end < file_size:
        return bool(after == end)
    if size < RECORD_SIZE_MIN or after + _PREFIX_SIZE > file_size:
        return False
    rest, magic = RECORD_PREFIX.unpack(file.pread(_PREFIX_SIZE, after))
    return bool(magic == MAGIC_BLANK and rest == file_size - after)


def _timestamp_ms(log: LogPart, physical_offset: int) -> int:
    """Store timestamp of a record; -1 when none with that physical offset lies there."""
    record = record_at(log, physical_offset, check_crc=False)
    return record.store_timestamp_ms if record is not None else -1
