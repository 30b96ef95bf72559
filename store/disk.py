"""The disk as a seam: every byte that the store reads or writes goes through here.

`OsDisk` is the real one, `memory_disk.MemoryDisk` its twin. Paths are strings. Writing is done by
`pwrite` and never through a map, so a full disk or a shrunken file is a `StoreIOError` and not a
signal that kills the process; maps are for reading only.

Every method may raise `StoreIOError`; only `lock` raises `StoreLockedError`. Methods may be called
from worker threads; one file is synced by at most one thread at a time.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from .errors import StoreIOError, StoreLockedError

WHAT_TO_DO = {
    errno.ENOSPC: "free some space; sends come back as soon as there is room",
    errno.EDQUOT: "the disk quota is used up: free some space or raise it",
    errno.EACCES: "give the broker's user the right to write there, or choose another folder",
    errno.EPERM: "give the broker's user the right to write there, or choose another folder",
    errno.EROFS: "the file system is mounted read-only; choose another folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENOTDIR: "a file stands where a folder must be",
    errno.EIO: "the device failed; check the machine's log before anything else",
}


class DiskFile(Protocol):
    """One open file."""

    path: str

    def size(self) -> int:
        """Bytes from its start to its end."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position` (bytes in this file)."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with room on disk for all of them; new bytes are 0."""

    def resize(self, size: int) -> None:
        """Make the file `size` bytes long; new bytes are 0 and take no room yet."""

    def sync(self) -> None:
        """Return when all that was written is on the device. A failure is final: never retry."""

    def map(self) -> memoryview:
        """The whole file, read-only, always as it is now. The file must not shrink after."""

    def drop_pages(self) -> None:
        """Give the memory of mapped pages back; they are read again when needed."""

    def next_data(self, position: int) -> int:
        """Where the next bytes that were ever written may start, >= position; size() if none."""

    def close(self) -> bool:
        """Close it. False: somebody still holds a slice of the map; call again later."""


class Disk(Protocol):
    """Files and folders."""

    threaded: bool
    """Whether slow calls (sync, allocate) should run in a worker thread."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; create: make an empty file when there is none."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder."""

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder."""

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents; existing ones are fine."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it; a missing one is fine."""

    def sync_folder(self, path: str) -> None:
        """Return when the folder's entries (creations, renames, removals) are on the device."""

    def lock(self, path: str) -> None:
        """Take the lock file for this process, creating it; it holds `lock` as Apache's does."""

    def unlock(self, path: str) -> None:
        """Give the lock back; the file stays."""


def explain(error: OSError) -> str:
    """The system's words for an error and, where we know it, what to do."""
    words = os.strerror(error.errno) if error.errno else str(error)
    advice = WHAT_TO_DO.get(error.errno or 0)
    return f"{words} ({advice})" if advice else words


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreIOError(path, explain(error)) from error


class OsFile:
    """A file of the operating system; see `DiskFile` for the contract."""

    def __init__(self, path: str, *, create: bool) -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _translated(path):
            self._fd = os.open(path, flags, 0o644)

    def size(self) -> int:
        """Bytes from its start to its end."""
        with _translated(self.path):
            return os.fstat(self._fd).st_size

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`."""
        try:
            written = os.pwrite(self._fd, data, position)
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], position + written)
        except OSError as error:
            raise StoreIOError(self.path, explain(error)) from error

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        try:
            return os.pread(self._fd, size, position)
        except OSError as error:
            raise StoreIOError(self.path, explain(error)) from error

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with room on disk for all of them."""
        with _translated(self.path):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._fd, 0, size)
            else:  # macOS: no such call; a full disk then shows at pwrite, as an error all the same
                os.ftruncate(self._fd, size)

    def resize(self, size: int) -> None:
        """Make the file `size` bytes long; new bytes take no room yet."""
        with _translated(self.path):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Return when all that was written is on the device."""
        with _translated(self.path):
            if hasattr(os, "fdatasync"):
                os.fdatasync(self._fd)
            else:
                os.fsync(self._fd)

    def map(self) -> memoryview:
        """The whole file, read-only."""
        if self._view is None:
            with _translated(self.path):
                self._map = mmap.mmap(self._fd, 0, access=mmap.ACCESS_READ)
            self._view = memoryview(self._map)
        return self._view

    def drop_pages(self) -> None:
        """Give the memory of mapped pages back."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def next_data(self, position: int) -> int:
        """Where the next bytes that were ever written may start."""
        size = self.size()
        if position >= size:
            return size
        if not hasattr(os, "SEEK_DATA"):
            return position
        try:
            return min(os.lseek(self._fd, position, os.SEEK_DATA), size)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
            return position  # a file system that cannot tell: every byte may be data

    def close(self) -> bool:
        """Close it. False: somebody still holds a slice of the map."""
        if self._map is not None:
            if self._view is not None:
                self._view.release()
                self._view = None
            try:
                self._map.close()
            except BufferError:
                return False
            self._map = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        return True


class OsDisk:
    """The machine's disk; see `Disk` for the contract."""

    threaded = True

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading and writing."""
        return OsFile(path, create=create)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return Path(path).exists()

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder."""
        with _translated(folder):
            try:
                return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
            except FileNotFoundError:
                return []

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder."""
        return Path(path).is_dir()

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents."""
        with _translated(path):
            Path(path).mkdir(parents=True, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""
        with _translated(source):
            Path(source).replace(target)

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        with _translated(path):
            Path(path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it; a missing one is fine."""
        with _translated(path):
            if not Path(path).is_dir():
                return
            for entry in Path(path).iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    self.remove_folder(str(entry))
                else:
                    entry.unlink()
            Path(path).rmdir()

    def sync_folder(self, path: str) -> None:
        """Return when the folder's entries are on the device."""
        with _translated(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def lock(self, path: str) -> None:
        """Take the lock file: bytes 0..1, the range that Java's tryLock(0, 1, false) takes."""
        if path in self._locks:
            raise StoreLockedError(path)
        with _translated(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
            os.pwrite(fd, b"lock", 0)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise StoreLockedError(path) from error
            raise StoreIOError(path, explain(error)) from error
        self._locks[path] = fd

    def unlock(self, path: str) -> None:
        """Give the lock back; the file stays."""
        fd = self._locks.pop(path, None)
        if fd is not None:
            os.close(fd)


def total_memory_bytes() -> int:
    """The machine's memory; 8 GiB where it cannot be asked."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 8 << 30
