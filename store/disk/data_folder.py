"""The data folder: made before it is locked, marked as open, its lock watched.

Java counterpart: DefaultMessageStore.createTempFile and its lock file of 5.3.3.
"""

from __future__ import annotations

import logging
import os
from pathlib import PurePosixPath

from ..config import MessageStoreConfig
from ..offsets import START
from .os_disk import Disk

logger = logging.getLogger(__name__)


def make_root(disk: Disk, root: str) -> None:
    """Have the data folder, and its own name on the device before there is anything in it.

    Raises:
      StoreIOError: it could not be made.
    """
    folder, missing = PurePosixPath(root), []
    while not disk.exists(str(folder)) and folder != folder.parent:
        missing.append(folder.parent)
        folder = folder.parent
    disk.make_folder(root)
    for parent in reversed(missing):
        disk.sync_folder(str(parent))


def note_open(disk: Disk, config: MessageStoreConfig) -> None:
    """Make the abort file: what is on disk from now on is not what a clean exit leaves.

    Raises:
      StoreIOError: it could not be made.
    """
    root = config.store_path_root_dir
    file = disk.open(f"{root}/abort", create=True)
    try:
        file.pwrite(str(os.getpid()).encode(), START)
    finally:
        file.close()
    # The folders' own names must be on the device before the first message is.
    disk.make_folder(f"{root}/consumequeue")
    disk.make_folder(config.commit_log_folder)
    for folder in {root, config.commit_log_folder.rpartition("/")[0]}:
        disk.sync_folder(folder)


def hold_lock(disk: Disk, root: str) -> None:
    """Make and lock the lock file again where somebody has removed it, with a warning.

    Raises:
      StoreLockedError: another process has it by now.
      StoreIOError: it could not be made.
    """
    path = f"{root}/lock"
    if disk.hold_lock(path):
        logger.warning(
            "%s was removed or replaced while the store is open: it is made and locked again. "
            "Remove it only when no broker runs on this folder",
            path,
        )
