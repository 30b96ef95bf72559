"""A read-only disk for the tools.

Files are opened for reading only, so a store on a read-only file system, or of another user, can be
read; and no bug of a tool can change a byte.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...disk.errors import StoreIOError
from ...disk.folder_lock import FolderLock
from ...disk.os_disk import OsDisk, OsFile, errno_of, explain

_NOT_READABLE: Final = (errno.EACCES, errno.EPERM)


class ReadOnlyDisk(OsDisk):
    """The machine's disk, read-only; every method that would change something is refused."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: dict[str, FolderLock] = {}

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        """Open for reading. Raises: StoreIOError: `create` is set."""
        if create:
            raise _refused(path)
        with _reading(path):
            return OsFile(path, create=False, read_only=True)

    def list(self, folder: str) -> list[str]:
        """See `Disk`."""
        with _reading(folder):
            return super().list(folder)

    def lock(self, path: str) -> None:
        """Keep brokers out: a shared lock on folder and lock file, which several tools may hold.

        A lock file that is not there is not made.

        Raises:
          StoreLockedError: a broker has the folder open.
          StoreIOError: the lock file cannot be read.
        """
        if path in self._shared:
            return
        with _reading(path):
            try:
                self._shared[path] = FolderLock(path, shared=True)
            except OSError as error:
                raise StoreIOError(path, explain(error)) from error

    def unlock(self, path: str) -> None:
        """Release the shared lock."""
        lock = self._shared.pop(path, None)
        if lock is not None:
            lock.release()

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


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Advise reading where the disk of a broker advises writing."""
    try:
        yield
    except StoreIOError as error:
        number = errno_of(error)
        if number not in _NOT_READABLE:
            raise
        reason = f"{os.strerror(number)} (run this as a user that may read it)"
        raise StoreIOError(path, reason) from error.__cause__


def _refused(path: str) -> StoreIOError:
    return StoreIOError(path, "this tool only reads the store")
