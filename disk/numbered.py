"""Numbered files, such as those of logs, queues and indexes."""

from __future__ import annotations

from .os_disk import Disk
from .start_warnings import warn_of_strays


def numbered(disk: Disk, folder: str, *, warns: bool = False) -> dict[int, str]:
    """The files of a folder whose names are numbers: number to path, ascending.

    Args:
      warns: log a warning for each other name.
    """
    found = {}
    names = disk.list(folder)
    if warns:
        warn_of_strays(folder, names)
    for name in names:
        path = f"{folder}/{name}"
        if name.isascii() and name.isdigit() and not disk.is_folder(path):
            found[int(name)] = path
    return dict(sorted(found.items()))


def size_of(disk: Disk, path: str) -> int:
    """Bytes of a file.

    Raises:
      StoreIOError: it cannot be opened.
    """
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()
