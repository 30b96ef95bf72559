"""The lock of a data folder: Apache's lock file, and the folder itself.

RocketMQ locks bytes 0..1 of `lock` (DefaultMessageStore, `tryLock(0, 1, false)` of 5.3.3). A lock
belongs to a file and not to its name: once the file is removed, the next broker creates another one
and locks that. So the folder is locked as well, by flock, which survives the removal of files; and
`hold` creates a missing lock file again for Apache's broker, which checks nothing else.

Where a file system cannot lock folders (some network file systems), only the file is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from .errors import StoreLockedError

_HELD_BY_ANOTHER = (errno.EACCES, errno.EAGAIN)


class FolderLock:
    """A lock that this process holds. `release` ends it, as does the process's end.

    Args:
      path: of the lock file, in the folder that is locked.
      shared: take a shared lock, which excludes exclusive ones; no lock file is created.
      writes: create a missing lock file. If not, an existing one gets a shared lock, which keeps
        Apache's broker out: an exclusive one needs the right to write.

    Raises:
      StoreLockedError: another process holds it.
      OSError: the file could not be opened, created or locked.
    """

    def __init__(self, path: str, *, shared: bool = False, writes: bool = True) -> None:
        self._path = path
        self._writes = writes and not shared
        self._kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        self._folder_fd = self._file_fd = -1
        try:
            self._folder_fd = self._lock_folder()
            if self._writes:
                self._file_fd = self._lock_file(os.O_RDWR | os.O_CREAT)
            elif Path(path).exists():
                self._kind = fcntl.LOCK_SH | fcntl.LOCK_NB
                self._file_fd = self._lock_file(os.O_RDONLY)
        except BaseException:
            self.release()
            raise

    @property
    def folder(self) -> int:
        """A descriptor of the locked folder; -1: it is not locked."""
        return self._folder_fd

    def hold(self) -> bool:
        """Create and lock the lock file again if it was removed or replaced.

        Returns: whether it was created again.

        Raises:
          StoreLockedError: another process holds the new file.
          OSError: it could not be created or locked.
        """
        if not self._writes:
            return False
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._path), os.fstat(self._file_fd)):  # noqa: PTH116
                return False
        fd = self._lock_file(os.O_RDWR | os.O_CREAT)
        os.close(self._file_fd)
        self._file_fd = fd
        return True

    def release(self) -> None:
        """Release the lock; the file stays."""
        if self._folder_fd >= 0:
            with suppress(OSError):  # a process forked from this one has the folder open as well
                fcntl.flock(self._folder_fd, fcntl.LOCK_UN)
        for fd in (self._folder_fd, self._file_fd):
            if fd >= 0:
                os.close(fd)
        self._folder_fd = self._file_fd = -1

    def _lock_folder(self) -> int:
        """A descriptor of the locked folder; -1: the file system cannot lock it."""
        fd = os.open(str(Path(self._path).parent), os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, self._kind)
        except OSError as error:
            os.close(fd)
            if error.errno in _HELD_BY_ANOTHER:
                raise StoreLockedError(self._path) from error
            return -1
        return fd

    def _lock_file(self, flags: int) -> int:
        fd = os.open(self._path, flags | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, self._kind, 1, 0, os.SEEK_SET)
            if flags & os.O_RDWR:
                os.pwrite(fd, b"lock", 0)
        except OSError as error:
            os.close(fd)
            if error.errno in _HELD_BY_ANOTHER:
                raise StoreLockedError(self._path) from error
            raise
        return fd
