"""How old a commit log file is: the newest store timestamp in it, found without reading it all.

Files are opened on their own here, so all of this may run in a worker thread.
"""

from __future__ import annotations

from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    decode_record,
)
from ..clock import LATEST_MS
from ..disk.os_disk import Disk, DiskFile
from .commit_log import CommitLog

LOOK_BACK_MAX = 128 * 1024 * 1024
"""Bytes at a file's end in which its last message is looked for."""

_CHUNK = 256 * 1024
_PREFIX_SIZE = RECORD_PREFIX.size
_MAGICS = tuple(RECORD_PREFIX.pack(0, magic)[4:] for magic in (MAGIC_V1, MAGIC_V2))


def newest_timestamp_ms(disk: Disk, path: str, base: int, file_size: int) -> int:
    """Store timestamp of the newest message in a full commit log file; -1: it was not found.

    The last record is looked for from the end: the one that the file's blank follows. Store
    timestamps rise, but in a log by Apache they may fall when the clock does, so the first record
    counts too.

    Raises:
      StoreIOError: the file could not be read.
    """
    file = disk.open(path)
    try:
        last_ms = _last_timestamp_ms(file, base, file_size, file_size)
        return max(last_ms, _timestamp_ms(file, 0, base)) if last_ms >= 0 else -1
    finally:
        file.close()


def timestamp_before_ms(disk: Disk, path: str, base: int, end: int, file_size: int) -> int:
    """Store timestamp of the message that ends at a position of a commit log file; -1: none does.

    Args:
      end: in bytes of this file, > 0; where the file ends, what its blank follows counts too.

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
      end: where a record or the log ends. Where no record ends there, the first one of its file
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
        found_ms = first_timestamp_ms(disk, path, base)
    return found_ms if 0 <= found_ms <= LATEST_MS else 0


def first_timestamp_ms(disk: Disk, path: str, base: int) -> int:
    """Store timestamp of the first message in a commit log file; -1: none begins there.

    Raises:
      StoreIOError: the file could not be read.
    """
    file = disk.open(path)
    try:
        return _timestamp_ms(file, 0, base)
    finally:
        file.close()


def _last_timestamp_ms(file: DiskFile, base: int, end: int, file_size: int) -> int:
    stop = max(end - LOOK_BACK_MAX, 0)
    chunk_end = end
    while chunk_end > stop:
        start = max(chunk_end - _CHUNK, 0)
        # 7 bytes more: a size and a magic may lie across two chunks.
        chunk = file.pread(chunk_end - start + _PREFIX_SIZE - 1, start)
        positions = {at for magic in _MAGICS for at in _find_all(chunk, magic)}
        for at in sorted(positions, reverse=True):
            if _is_last(file, start + at, end, file_size):
                found_ms = _timestamp_ms(file, start + at, base)
                if found_ms >= 0:
                    return found_ms
        chunk_end = start
    return -1


def _find_all(chunk: bytes, magic: bytes) -> list[int]:
    """Where records may begin, 4 bytes before each magic."""
    found = []
    at = chunk.find(magic, 4)
    while at >= 0:
        found.append(at - 4)
        at = chunk.find(magic, at + 1)
    return found


def _is_last(file: DiskFile, position: int, end: int, file_size: int) -> bool:
    """Whether what begins here goes up to `end`, or to the blank that goes up to the file's end."""
    size, _ = RECORD_PREFIX.unpack(file.pread(_PREFIX_SIZE, position))
    after = position + size
    if end < file_size:
        return bool(after == end)
    if size < RECORD_SIZE_MIN or after + _PREFIX_SIZE > file_size:
        return False
    rest, magic = RECORD_PREFIX.unpack(file.pread(_PREFIX_SIZE, after))
    return bool(magic == MAGIC_BLANK and rest == file_size - after)


def _timestamp_ms(file: DiskFile, position: int, base: int) -> int:
    """Store timestamp of a record; -1 when none with that physical offset lies there."""
    head = file.pread(_PREFIX_SIZE, position)
    size = RECORD_PREFIX.unpack(head)[0] if len(head) == _PREFIX_SIZE else 0
    if size < RECORD_SIZE_MIN or position + size > file.size():
        return -1
    try:
        record = decode_record(file.pread(size, position), 0, check_crc=False, read_body=False)
    except RemoteProtocolError:
        return -1
    return record.store_timestamp_ms if record.physical_offset == base + position else -1
