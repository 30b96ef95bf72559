"""A disk that nothing can be written to: how the tools look at a store.

Files are opened for reading only, so a store on a read-only file system, or of another user, can be
looked at; and no mistake of a tool can change a byte.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from ..disk import OsDisk, OsFile, explain
from ..errors import StoreIOError, StoreLockedError


class ReadOnlyDisk(OsDisk):
    """The machine's disk, for reading; every method that would change something is refused."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading."""
        if create:
            raise _refused(path)
        return OsFile(path, create=False, read_only=True)

    def lock(self, path: str) -> None:
        """Keep brokers out: a shared lock on the lock file, which several tools may hold.

        Where there is no lock file no broker has ever been, and none is made.

        Raises:
          StoreLockedError: a broker has the folder open.
          StoreIOError: the lock file cannot be read.
        """
        if path in self._shared or not Path(path).exists():
            return
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreIOError(path, explain(error)) from error
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLockedError(path) from error
            raise StoreIOError(path, explain(error)) from error
        self._shared[path] = fd

    def unlock(self, path: str) -> None:
        """Give the shared lock back."""
        fd = self._shared.pop(path, None)
        if fd is not None:
            os.close(fd)

    def make_folder(self, path: str) -> None:
        """Refused."""
        raise _refused(path)

    def rename(self, source: str, target: str) -> None:
        """Refused."""
        raise _refused(source)

    def unlink(self, path: str) -> None:
        """Refused."""
        raise _refused(path)

    def remove_folder(self, path: str) -> None:
        """Refused."""
        raise _refused(path)


def _refused(path: str) -> StoreIOError:
    return StoreIOError(path, "this tool only reads the store")
