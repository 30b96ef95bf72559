"""syncfs: one fsync for all files of a file system.

A topic of 1,024 queues has as many files to sync at each checkpoint: one by one 2 to 6 s of a
disk's time, together 0.1 s. syncfs also writes what other programs wrote there, which the kernel
would do within half a minute anyway.

It is used only where it reports every failed write: since Linux 5.8, on file systems that note such
failures in their superblock, and through a descriptor that is older than the writes.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

KERNEL_MIN: Final = (5, 8)
"""The first Linux whose syncfs reports failed writes. Source: syncfs(2)."""

RELIABLE_TYPES: Final = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs"}
"""File systems by `f_type` of statfs(2) that are known to report them; overlayfs and network file
systems are not among them."""

_STATFS_SIZE: Final = 512
"""Bytes for a `struct statfs`, more than any has."""


@lru_cache(maxsize=1)
def c_library() -> ctypes.CDLL | None:
    """The C library, if it and the kernel have a syncfs that reports failed writes."""
    if sys.platform != "linux" or not _is_new_enough(os.uname().release):
        return None
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return library if library.syncfs and library.fstatfs else None
    except (OSError, AttributeError):
        return None


def _is_new_enough(release: str) -> bool:
    found = re.match(r"([0-9]+)\.([0-9]+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= KERNEL_MIN


def sync_file_system(folder: int, paths: Iterable[str]) -> bool:
    """Sync these files and folders with all others of their file system.

    Args:
      folder: descriptor of a folder, opened before the files were written.
      paths: files and folders; missing ones are ignored.
    Returns: False: nothing was done, because the system cannot do it, or a path is on another file
      system than `folder`.
    Raises: OSError: a write failed since the folder was opened, to one of these files or to any of
      the file system.
    """
    library = c_library()
    if library is None or _type_of(library, folder) not in RELIABLE_TYPES:
        return False
    device = os.fstat(folder).st_dev
    for path in paths:
        try:
            if os.stat(path).st_dev != device:  # noqa: PTH116 - a third of pathlib's time
                return False
        except FileNotFoundError:
            continue
    if library.syncfs(folder) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


def _type_of(library: ctypes.CDLL, fd: int) -> int:
    """`f_type` of the file system of an open file; -1: unknown."""
    found = ctypes.create_string_buffer(_STATFS_SIZE)
    if library.fstatfs(fd, found) != 0:
        return -1
    return int(ctypes.c_long.from_buffer(found).value)
