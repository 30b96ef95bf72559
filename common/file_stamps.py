"""Stamps of files: whether a file is still the one that was read. Reads no contents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FileStamp = tuple[str, int, int, int]
"""A path, and the file's inode, size in bytes, and time of change in ns; three zeros: there is no
such file, or it cannot be looked at."""


def stamps_of(paths: Iterable[str]) -> tuple[FileStamp, ...]:
    """The stamps of files as they are now. A file that was written anew has another one."""
    return tuple(map(_stamp_of, paths))


def _stamp_of(path: str) -> FileStamp:
    try:
        stat = Path(path).stat()
    except OSError:  # reading it says what is wrong
        return (path, 0, 0, 0)
    return (path, stat.st_ino, stat.st_size, stat.st_mtime_ns)
