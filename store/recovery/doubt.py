"""`fsync_doubt.trocket`: from where on the log may look better than the device has it.

After a failed fsync the kernel marks the pages clean: they read as they were written, and the next
fsync reports success without writing them (Rebello et al., USENIX ATC 2020). A process that is
started again on the same machine would believe them, serve them, and lose them at the next power
cut. So whoever may leave such pages behind names them in this file, and recovery writes them again
before it syncs (`CommitLog.write_again`).

The file is not synced: it has to outlive the process, not the machine. Without power the doubtful
pages are gone as well. Ours; RocketMQ has no such file and leaves it alone.
"""

from __future__ import annotations

import logging

from ..disk.os_disk import Disk
from ..errors import StoreIOError
from ..offsets import START

logger = logging.getLogger(__name__)

FILE_NAME = "fsync_doubt.trocket"


def read_doubt(disk: Disk, root: str, log_end: int) -> int:
    """The physical offset from which on the log is in doubt; -1 when it is not.

    Where the file says no offset, or one behind the log's files, all of the log is in doubt: 0.

    Args:
      log_end: where the log's files end, bytes.

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
        "%s: its offset is %r, but the log's files end at %d: 0 is used in its place, so all of "
        "the log is written to the device again", path, text, log_end,
    )  # fmt: skip
    return 0


def note_doubt(disk: Disk, root: str, physical_offset: int) -> None:
    """Say that the log is in doubt from this physical offset on.

    A failure is logged only: something else has failed already, and is told.
    """
    try:
        file = disk.open(f"{root}/{FILE_NAME}", create=True)
        try:
            file.pwrite(b"%020d" % physical_offset, START)
        finally:
            file.close()
    except StoreIOError as error:
        logger.error("after a failed fsync: let the machine start again, too: %s", error)


def clear_doubt(disk: Disk, root: str) -> None:
    """All that the log holds is on the device.

    Raises:
      StoreIOError: the file could not be removed.
    """
    disk.unlink(f"{root}/{FILE_NAME}")
