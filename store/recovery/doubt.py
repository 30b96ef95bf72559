"""`fsync_doubt.trocket`: the first offset whose pages may be clean in cache but not on the device.

After a failed fsync the kernel marks the pages clean: they read as they were written, and the next
fsync reports success without writing them (Rebello et al., USENIX ATC 2020). A process that is
restarted on the same machine would trust them, serve them, and lose them at the next power cut.
Therefore a process that may leave such pages behind records their offset in this file, and recovery
writes them again before it syncs (`CommitLog.write_again`).

The file is not synced: it has to outlive the process, not the machine. A power cut removes the
doubtful pages as well. Ours; RocketMQ has no such file and ignores it.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from ...disk.errors import StoreIOError
from ...disk.os_disk import Disk
from ...disk.position import START

logger = logging.getLogger(__name__)

FILE_NAME = "fsync_doubt.trocket"


def read_doubt(disk: Disk, root: str, log_end: int) -> int:
    """The physical offset from which on the log is in doubt; -1 when it is not.

    If the file holds no offset, or one after the log's files, all of the log is in doubt: 0.

    Args:
      log_end: the end of the log's files, bytes.

    Raises:
      StoreIOError: it could not be read.
    """
    path = f"{root}/{FILE_NAME}"
    if not disk.exists(path):
        return -1
    file = disk.open(path)
    try:
        text = file.pread(20, START)
    finally:
        file.close()
    found = int(text) if text.isdigit() else -1
    if 0 <= found <= log_end:
        return found
    logger.warning(
        "%(path)s: its offset is %(text)r, but the log's files end at %(log_end)d: 0 is used in "
        "its place, so all of the log is written to the device again",
        {"path": path, "text": text, "log_end": log_end},
    )
    return 0


def note_doubt(disk: Disk, root: str, physical_offset: int) -> None:
    """Record that the log is in doubt from this physical offset on.

    Raises:
      StoreIOError: it could not be recorded. An empty file is not left: with one, the next start
        would write all of the log again.
    """
    path = f"{root}/{FILE_NAME}"
    is_new = not disk.exists(path)
    file = disk.open(path, create=True)
    try:
        file.pwrite(b"%020d" % physical_offset, START)
    except StoreIOError:
        if is_new:
            with suppress(StoreIOError):
                disk.unlink(path)
        raise
    finally:
        file.close()


def note_failed_sync(disk: Disk, root: str, physical_offset: int) -> None:
    """As `note_doubt`, of pages that an fsync has lost.

    A failure is only logged: the caller already reports the failed fsync.
    """
    try:
        note_doubt(disk, root, physical_offset)
    except StoreIOError as error:
        logger.error(
            "reboot this machine before the next start: an fsync failed, and the offset of the "
            "pages that may be lost could not be recorded: %(error)s",
            {"error": error},
        )


def clear_doubt(disk: Disk, root: str) -> None:
    """Remove the file: the whole log is on the device.

    Raises:
      StoreIOError: the file could not be removed.
    """
    disk.unlink(f"{root}/{FILE_NAME}")
