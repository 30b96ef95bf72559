"""Files that other programs see whole or not at all: written under another name, then renamed.

A rename replaces what is at the path, whatever it is. So only a regular file is replaced: a link is
followed to the file that it names, and a pipe, a device or a descriptor of this process, such as
/dev/stdout, is written into. The new file has the permissions of the old one and, where the system
allows it, its owner.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

_DESCRIPTOR: Final = re.compile(r"/(?:dev/fd|proc/self/fd|proc/\d+/fd|proc/thread-self/fd)/(\d+)")
"""Paths that stand for a descriptor. A new open of one would begin at the file's start."""

_STANDARD: Final = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}

_LINKS_MAX: Final = 40
"""Links that are followed one after the other, as by Linux."""


def descriptor_of(path: Path) -> int | None:
    """The descriptor of this process that a path stands for, itself or by its links; or None."""
    for _ in range(_LINKS_MAX):
        text = os.path.normpath(path.absolute())
        if text in _STANDARD:
            return _STANDARD[text]
        found = _DESCRIPTOR.fullmatch(text)
        if found is not None:
            return int(found[1])
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def replaceable(path: Path) -> Path | None:
    """The regular file that a path leads to, or the one that a write would create.

    Returns: its path without links; None: the path leads to something that cannot be replaced: a
      pipe, a device, a socket, a descriptor.

    Raises:
      OSError: the path cannot be read.
    """
    if descriptor_of(path) is not None:
        return None
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path} is a folder")
    return Path(os.path.realpath(path)) if stat.S_ISREG(mode) else None


def keep_attributes(new: str | Path, old: str | Path) -> None:
    """Give a new file the permissions and the owner of the file that it is about to replace.

    Without an old file nothing changes. An owner that this user may not set is left out.

    Raises:
      OSError: the permissions could not be set.
    """
    try:
        known = os.stat(old)  # noqa: PTH116 - paths of a Disk are strings
    except FileNotFoundError:
        return
    with contextlib.suppress(PermissionError):
        os.chown(new, known.st_uid, known.st_gid)
    os.chmod(new, stat.S_IMODE(known.st_mode))  # noqa: PTH101 - as above


def open_into(path: Path) -> BinaryIO:
    """Open for writing what is not a regular file; a descriptor continues where it is.

    Raises:
      OSError: it cannot be opened.
    """
    number = descriptor_of(path)
    if number is not None:
        return os.fdopen(os.dup(number), "wb")
    return path.open("wb")


@contextlib.contextmanager
def replacing(path: Path, *, mode: int | None = None, syncs: bool = True) -> Iterator[BinaryIO]:
    """Write a file that is complete at its path, or leave the old one.

    Args:
      path: what is not a regular file is written into, see `replaceable`.
      mode: permissions of the file; None: those of the old file, or the usual ones.
      syncs: the file is on the device before it replaces the old one.

    Raises:
      OSError: it cannot be written; the old file is unchanged.
    """
    target = replaceable(path)
    if target is None:
        with open_into(path) as file:
            yield file
        return
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    handle = os.open(fresh, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if syncs:
                file.flush()
                os.fsync(file.fileno())
        keep_attributes(fresh, target)
        if mode is not None:
            fresh.chmod(mode)
        fresh.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
