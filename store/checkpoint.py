"""The checkpoint page: up to when log, queues and index are known to be on the device.

Java counterpart: store/StoreCheckpoint.java of 5.3.3. Invariant beyond Apache's: only what fsync
has confirmed goes in (Apache moves its logics timestamp when a message is put).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from .disk import Disk
from .format import (
    CHECKPOINT_FILE_SIZE,
    CHECKPOINT_HEAD,
    EXTENSION,
    EXTENSION_MAGIC,
    EXTENSION_POSITION,
)


@dataclass(slots=True)
class Checkpoint:
    """What the page says; times in ms since 1970, offsets in bytes of the commit log.

    Attributes:
      dispatched_offset: all records before it and all their queue units are on the device; -1: not
        known (the page is Apache's).
    """

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    dispatched_offset: int = -1

    @classmethod
    def from_page(cls, page: bytes) -> Checkpoint:
        """Read a page; a short or empty one counts as all 0 (as made at the first start)."""
        page = page.ljust(CHECKPOINT_FILE_SIZE, b"\0")
        found = cls(*CHECKPOINT_HEAD.unpack_from(page))
        magic, dispatched, physic, logics, crc = EXTENSION.unpack_from(page, EXTENSION_POSITION)
        covered = page[EXTENSION_POSITION : EXTENSION_POSITION + EXTENSION.size - 4]
        if (
            magic == EXTENSION_MAGIC
            and crc == zlib.crc32(covered)
            and physic == found.physic_msg_timestamp_ms
            and logics == found.logics_msg_timestamp_ms
        ):
            found.dispatched_offset = dispatched
        return found

    def to_page(self) -> bytes:
        """The page's 4096 bytes."""
        page = bytearray(CHECKPOINT_FILE_SIZE)
        CHECKPOINT_HEAD.pack_into(
            page,
            0,
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        )
        if self.dispatched_offset >= 0:
            fields = (
                EXTENSION_MAGIC,
                self.dispatched_offset,
                self.physic_msg_timestamp_ms,
                self.logics_msg_timestamp_ms,
            )
            EXTENSION.pack_into(page, EXTENSION_POSITION, *fields, 0)
            end = EXTENSION_POSITION + EXTENSION.size
            crc = zlib.crc32(page[EXTENSION_POSITION : end - 4])
            EXTENSION.pack_into(page, EXTENSION_POSITION, *fields, crc)
        return bytes(page)


def read_checkpoint(disk: Disk, path: str) -> Checkpoint:
    """Read the page; a missing file counts as all 0.

    Raises:
      StoreIOError: the file could not be read.
    """
    if not disk.exists(path):
        return Checkpoint()
    file = disk.open(path)
    try:
        return Checkpoint.from_page(file.pread(CHECKPOINT_FILE_SIZE, 0))
    finally:
        file.close()


def write_checkpoint(disk: Disk, path: str, checkpoint: Checkpoint) -> None:
    """Write the page and sync it.

    Raises:
      StoreIOError: it could not be written or synced.
    """
    file = disk.open(path, create=True)
    try:
        file.pwrite(checkpoint.to_page(), 0)
        file.sync()
    finally:
        file.close()
