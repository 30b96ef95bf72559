"""The data folder: creation, the abort file, and the lock file.

Java counterpart: DefaultMessageStore.createTempFile and its lock file of 5.3.3.
"""

from __future__ import annotations

import logging
import os
from pathlib import PurePosixPath
from typing import Final

from ..disk.errors import StoreIOError
from ..disk.os_disk import Disk
from ..disk.position import START
from .config import MessageStoreConfig

logger = logging.getLogger(__name__)


SOURCES: Final = ("pyproject.toml", "__init__.py")
"""Files by which a folder is one of source code, which its tools may clean."""


def make_root(disk: Disk, root: str) -> None:
    """Create the data folder, and sync its name before anything is in it.

    Raises:
      StoreIOError: it could not be created, or is a folder of a Python package, whose tools would
        delete the messages.
    """
    for name in SOURCES:
        if disk.exists(f"{root}/{name}"):
            raise StoreIOError(
                root, f"{name} is there, so this is a folder of source code: give another folder"
            )
    folder, missing = PurePosixPath(root), []
    while not disk.exists(str(folder)) and folder != folder.parent:
        missing.append(folder.parent)
        folder = folder.parent
    disk.make_folder(root)
    for parent in reversed(missing):
        disk.sync_folder(str(parent))


def note_open(disk: Disk, config: MessageStoreConfig) -> None:
    """Create the abort file, which only a clean exit removes.

    Raises:
      StoreIOError: it could not be created.
    """
    root = config.store_path_root_dir
    file = disk.open(f"{root}/abort", create=True)
    try:
        file.pwrite(str(os.getpid()).encode(), START)
    finally:
        file.close()
    # The folders' names must be on the device before the first message.
    disk.make_folder(f"{root}/consumequeue")
    disk.make_folder(config.commit_log_folder)
    for folder in {root, config.commit_log_folder.rpartition("/")[0]}:
        disk.sync_folder(folder)


def hold_lock(disk: Disk, root: str) -> None:
    """Create and lock the lock file again if it was removed, with a warning.

    Raises:
      StoreLockedError: another process holds it now.
      StoreIOError: it could not be created.
    """
    path = f"{root}/lock"
    if disk.hold_lock(path):
        logger.warning(
            "%(path)s was removed or replaced while the store is open: it is created and locked "
            "again. Remove it only when no broker runs on this folder",
            {"path": path},
        )
