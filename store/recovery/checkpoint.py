"""The checkpoint page: the point up to which log, queues and index are known to be on the device.

Java counterpart: store/StoreCheckpoint.java of 5.3.3. Invariant beyond Apache's: the page covers
only what fsync has confirmed (Apache moves its logics timestamp when a message is put).

Where Apache leaves zeros the page has two records of ours: the progress of records and queue units
(byte 64), and that of the index (byte 128; the marks of finished index files from byte 256). Each
has a checksum and is valid only while Apache's two timestamps are those it was written with.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace

from ...disk.os_disk import Disk
from ...disk.position import START
from ..format import (
    CHECKPOINT_FILE_SIZE,
    CHECKPOINT_HEAD,
    EXTENSION,
    EXTENSION_MAGIC,
    EXTENSION_POSITION,
    FILE_MARK,
    FILE_MARKS_COUNT_MAX,
    FILE_MARKS_POSITION,
    INDEX_PROGRESS_HEAD,
    INDEX_PROGRESS_MAGIC,
    INDEX_PROGRESS_POSITION,
)


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The part of the index that is on the device.

    Attributes:
      file_name: of the file that was being filled, as a number; 0: none was.
      begin_timestamp_ms, end_timestamp_ms, begin_physical_offset, end_physical_offset,
        hash_slot_count, index_count: its header for the entries on the device.
      indexed_offset: every record of the log before it has its entries in that file or an older
        one; the record at this offset itself may have some of them already.
      files: (name as a number, CRC32 of the header) of the finished files before it, oldest first,
        at most `FILE_MARKS_COUNT_MAX`; None: unknown, that part of the page is damaged.
    """

    file_name: int = 0
    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1
    indexed_offset: int = 0
    files: tuple[tuple[int, int], ...] | None = ()


@dataclass(slots=True)
class Checkpoint:
    """The content of the page; times in ms since 1970, offsets in bytes of the commit log.

    Attributes:
      dispatched_offset: all records before it and all their queue units are on the device; -1:
        unknown (the page is Apache's).
      index: the part of the index on the device; None: unknown.
      problem: what is wrong with the file that was read; "": nothing.
    """

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    dispatched_offset: int = -1
    index: IndexProgress | None = None
    problem: str = field(default="", compare=False)

    @classmethod
    def from_page(cls, page: bytes) -> Checkpoint:
        """Read a page; a short or empty one counts as all 0 (as created at the first start)."""
        page = page.ljust(CHECKPOINT_FILE_SIZE, b"\0")
        found = cls(*CHECKPOINT_HEAD.unpack_from(page))
        magic, dispatched, physic, logics, crc = EXTENSION.unpack_from(page, EXTENSION_POSITION)
        covered = page[EXTENSION_POSITION : EXTENSION_POSITION + EXTENSION.size - 4]
        is_right = crc == zlib.crc32(covered)
        if magic == EXTENSION_MAGIC and not is_right:
            found.problem = "its record of the queues' progress is damaged"
        if (
            magic == EXTENSION_MAGIC
            and is_right
            # Apache's broker has written the page since: its queues may be further.
            and physic == found.physic_msg_timestamp_ms
            and logics == found.logics_msg_timestamp_ms
        ):
            found.dispatched_offset = dispatched
            found.index = _read_progress(page, physic, logics)
        return found

    def to_page(self) -> bytes:
        """The page's 4096 bytes."""
        page = bytearray(CHECKPOINT_FILE_SIZE)
        physic, logics = self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms
        CHECKPOINT_HEAD.pack_into(
            page,
            0,
            physic,
            logics,
            self.index_msg_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        )
        if self.dispatched_offset >= 0:
            fields = (EXTENSION_MAGIC, self.dispatched_offset, physic, logics)
            EXTENSION.pack_into(page, EXTENSION_POSITION, *fields, 0)
            end = EXTENSION_POSITION + EXTENSION.size
            crc = zlib.crc32(page[EXTENSION_POSITION : end - 4])
            EXTENSION.pack_into(page, EXTENSION_POSITION, *fields, crc)
            if self.index is not None:
                _write_progress(page, self.index, physic, logics)
        return bytes(page)


def _read_progress(page: bytes, physic: int, logics: int) -> IndexProgress | None:
    fields = INDEX_PROGRESS_HEAD.unpack_from(page, INDEX_PROGRESS_POSITION)
    magic, its_physic, its_logics = fields[:3]
    file_count, files_crc, crc = fields[-3:]
    end = INDEX_PROGRESS_POSITION + INDEX_PROGRESS_HEAD.size
    if (
        magic != INDEX_PROGRESS_MAGIC
        or crc != zlib.crc32(page[INDEX_PROGRESS_POSITION : end - 4])
        # Apache's broker rewrites the times and keeps the rest: then this part is out of date.
        or (its_physic, its_logics) != (physic, logics)
    ):
        return None
    marks = page[FILE_MARKS_POSITION : FILE_MARKS_POSITION + file_count * FILE_MARK.size]
    files: tuple[tuple[int, int], ...] | None = None
    if 0 <= file_count <= FILE_MARKS_COUNT_MAX and zlib.crc32(marks) == files_crc:
        files = tuple((name, mark) for name, mark in FILE_MARK.iter_unpack(marks))
    return replace(IndexProgress(*fields[3:-3]), files=files)


def _write_progress(page: bytearray, progress: IndexProgress, physic: int, logics: int) -> None:
    newest = (progress.files or ())[-FILE_MARKS_COUNT_MAX:]
    marks = b"".join(FILE_MARK.pack(name, crc) for name, crc in newest)
    fields = (
        INDEX_PROGRESS_MAGIC,
        physic,
        logics,
        progress.file_name,
        progress.begin_timestamp_ms,
        progress.end_timestamp_ms,
        progress.begin_physical_offset,
        progress.end_physical_offset,
        progress.hash_slot_count,
        progress.index_count,
        progress.indexed_offset,
        len(newest),
        zlib.crc32(marks),
    )
    INDEX_PROGRESS_HEAD.pack_into(page, INDEX_PROGRESS_POSITION, *fields, 0)
    end = INDEX_PROGRESS_POSITION + INDEX_PROGRESS_HEAD.size
    crc = zlib.crc32(page[INDEX_PROGRESS_POSITION : end - 4])
    INDEX_PROGRESS_HEAD.pack_into(page, INDEX_PROGRESS_POSITION, *fields, crc)
    page[FILE_MARKS_POSITION : FILE_MARKS_POSITION + len(marks)] = marks


def read_checkpoint(disk: Disk, path: str) -> Checkpoint:
    """Read the page; a missing file counts as all 0.

    Raises:
      StoreIOError: the file could not be read.
    """
    if not disk.exists(path):
        return Checkpoint(problem="it is missing")
    file = disk.open(path)
    try:
        found = Checkpoint.from_page(file.pread(CHECKPOINT_FILE_SIZE, START))
        size = file.size()
    finally:
        file.close()
    if size != CHECKPOINT_FILE_SIZE:
        found.problem = f"it is {size} bytes long and not {CHECKPOINT_FILE_SIZE}"
    return found


def write_checkpoint(disk: Disk, path: str, checkpoint: Checkpoint) -> None:
    """Write the page and sync it.

    Raises:
      StoreIOError: it could not be written or synced.
    """
    is_new = not disk.exists(path)
    file = disk.open(path, create=True)
    try:
        file.pwrite(checkpoint.to_page(), START)
        file.sync()
    finally:
        file.close()
    if is_new:
        disk.sync_folder(path.rpartition("/")[0])
