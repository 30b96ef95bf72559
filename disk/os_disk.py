"""The disk interface, through which the store reads and writes every byte.

`OsDisk` is the machine's, `memory_disk.MemoryDisk` its counterpart for tests. Paths are strings.
Writes use `pwrite` and never a map, so a full disk or a shrunken file is a `StoreIOError` and not a
signal that kills the process; maps are read-only.

Every method may raise `StoreIOError`; only `lock` and `hold_lock` raise `StoreLockedError`. Methods
may be called from worker threads; one file is synced by at most one thread at a time.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ..common.whole_file import keep_attributes
from .errors import StoreIOError, StoreLockedError
from .file_system_sync import sync_file_system
from .folder_lock import FolderLock
from .position import Position

SYNC_TOGETHER_COUNT_MIN = 64
"""Files from which on the whole file system is synced. Fewer take less than 0.2 s one by one, and
other programs' data need not be written for them."""

WHAT_TO_DO = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "the disk quota is used up: free some space or raise it",
    errno.EACCES: "give the broker's user the right to write there, or choose another folder",
    errno.EPERM: "give the broker's user the right to write there, or choose another folder",
    errno.EROFS: "the file system is mounted read-only: mount it for writing, or choose another "
    "folder; if the kernel made it read-only, check the device first",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENOMEM: "no room in memory to map the file: raise the limit of address space (ulimit -v)",
    errno.ENOTDIR: "a part of the path is a file and must be a folder",
    errno.EIO: "the device failed; check the machine's log before anything else",
}


FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""The errors that end when there is room again."""

NOT_WRITABLE: Final = frozenset((errno.EROFS, errno.EACCES, errno.EPERM))
"""The errors of files that can be read at most."""

TO_WRITE: Final = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EROFS: "mount the file system for writing",
    errno.EACCES: "give the broker's user the right to write there",
    errno.EPERM: "give the broker's user the right to write there",
}
"""What lets a store be written that could only be read, by the errors of the two kinds."""


class Space(NamedTuple):
    """Room on one partition, in bytes.

    Attributes:
      used: by all programs.
      free: available to this process. Ratios are of used + free (blocks reserved for the superuser
        are in neither).
    """

    used: int
    free: int


class DiskFile(Protocol):
    """One open file."""

    path: str

    def size(self) -> int:
        """Bytes from its start to its end."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: Position) -> None:
        """Write all of `data` at `position` (bytes in this file)."""

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with all of them allocated; new bytes are 0."""

    def resize(self, size: int) -> None:
        """Make the file `size` bytes long; new bytes are 0 and a hole."""

    def sync(self) -> None:
        """fsync. A failure is final: never retry."""

    def map(self) -> memoryview:
        """A read-only map of the whole file. The file must not shrink afterwards."""

    def drop_pages(self) -> None:
        """Drop mapped pages from this process's memory; they are read again when needed."""

    def next_data(self, position: Position) -> Position:
        """The next position >= `position` that may not be in a hole; size() if there is none."""

    def close(self) -> bool:
        """Close it. False: a slice of the map is still referenced; call again later.

        Only the map then exists: the file can be neither read nor written.
        """


class Disk(Protocol):
    """Files and folders."""

    threaded: bool
    """Whether slow calls (sync, allocate) should run in a worker thread."""

    def open(self, path: str, *, create: bool = False, private: bool = False) -> DiskFile:
        """Open for reading and writing.

        A file that may not be written is opened for reading: `unwritable_below` names it, and a
        write to it fails as opening it for writing did.

        Args:
          create: create an empty file when there is none.
          private: only the process's user may read a file that is created (mode 0600).
        """

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder."""

    def is_folder(self, path: str) -> bool: ...

    def is_private(self, path: str) -> bool:
        """Whether there is a file that only its owner may read or write."""

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents; existing ones are fine."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing target."""

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its contents; a missing one is fine."""

    def sync_folder(self, path: str) -> None:
        """fsync a folder's entries (creations, renames, removals)."""

    def sync_together(self, paths: Sequence[str]) -> bool:
        """fsync many files and folders, whose folder is locked, in one call; missing ones are fine.

        Returns: False: nothing was done, and each must be synced by itself.
        """

    def lock(self, path: str) -> None:
        """Create the lock file, with the text `lock` as in Apache, and lock it for this process.

        Where it cannot be written, folder and file are locked as they are: `unwritable_below` says
        why.
        """

    def hold_lock(self, path: str) -> bool:
        """Create and lock the lock file again if it was removed or replaced.

        Returns: whether it was created again.

        Raises:
          StoreLockedError: another process holds the new file.
        """

    def unlock(self, path: str) -> None:
        """Release the lock; the file stays."""

    def unwritable_below(self, folder: str) -> StoreIOError | None:
        """Why a file below a folder was opened, or locked, for reading only; None: none was."""

    def space(self, path: str) -> Space:
        """Room on the partition of an existing file or folder."""

    def used_bytes(self, folder: str) -> int:
        """Bytes that all files in a folder and its subfolders take on disk, without holes.

        Files that appear or disappear meanwhile may count or not; a missing folder counts 0.
        """


def explain(error: OSError) -> str:
    """The system's message for an error and, where known, what to do."""
    words = os.strerror(error.errno) if error.errno else str(error)
    advice = WHAT_TO_DO.get(error.errno or 0)
    return f"{words} ({advice})" if advice else words


def errno_of(error: StoreIOError) -> int:
    """The errno of the system's error that caused it; 0 if there is none."""
    cause = error.__cause__
    return (cause.errno or 0) if isinstance(cause, OSError) else 0


@contextmanager
def _translated(path: str, refusal: OSError | None = None) -> Iterator[None]:
    """Translate errors; `refusal`: why the file is open for reading only, which is the cause."""
    try:
        yield
    except OSError as error:
        # No variable for the cause: its traceback has this frame, and a cycle would keep the maps
        # alive that the callers' frames have.
        raise StoreIOError(path, explain(refusal or error)) from (refusal or error)


class OsFile:
    """A file of the operating system; see `DiskFile` for the contract.

    Attributes:
      refusal: why it could be opened for reading only; None: it can be written, or need not be.
    """

    def __init__(
        self, path: str, *, create: bool, read_only: bool = False, private: bool = False
    ) -> None:
        self.path = path
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._written: list[tuple[int, int]] | None = None
        self.refusal: OSError | None = None
        flags = os.O_RDONLY if read_only else os.O_RDWR
        flags |= os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _translated(path):
            try:
                self._fd = os.open(path, flags, 0o600 if private else 0o644)
            except OSError as error:
                if read_only or error.errno not in NOT_WRITABLE:
                    raise
                self._fd = self._open_for_reading(path, error)
                self.refusal = error.with_traceback(None)

    @staticmethod
    def _open_for_reading(path: str, refusal: OSError) -> int:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # it was to be created
            raise refusal from None

    def size(self) -> int:
        """Bytes from its start to its end."""
        with _translated(self.path):
            return os.fstat(self._fd).st_size

    def pwrite(self, data: bytes | bytearray | memoryview, position: Position) -> None:
        """Write all of `data` at `position`."""
        self._written = None
        try:
            written = os.pwrite(self._fd, data, position)
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], position + written)
        except OSError as error:
            raise StoreIOError(self.path, explain(self.refusal or error)) from (
                self.refusal or error
            )

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        try:
            return os.pread(self._fd, size, position)
        except OSError as error:
            raise StoreIOError(self.path, explain(error)) from error

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with all of them allocated."""
        with _translated(self.path, self.refusal):
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._fd, 0, size)
            else:  # macOS: no such call; on a full disk pwrite fails, which is handled as well
                os.ftruncate(self._fd, size)

    def resize(self, size: int) -> None:
        """Make the file `size` bytes long; new bytes are a hole."""
        with _translated(self.path, self.refusal):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """fsync the file's data."""
        with _translated(self.path):
            if hasattr(os, "fdatasync"):
                os.fdatasync(self._fd)
            else:
                os.fsync(self._fd)

    def map(self) -> memoryview:
        """A read-only map of the whole file."""
        if self._view is None:
            with _translated(self.path):
                self._map = _map_readonly(self._fd)
            self._view = memoryview(self._map)
        return self._view

    def drop_pages(self) -> None:
        """Drop mapped pages from this process's memory."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def next_data(self, position: Position) -> Position:
        """The next position, from this one on, that may not be in a hole."""
        if self._written is None:
            self._written = self._written_ranges()
        at = bisect_right(self._written, (position, self.size()))
        if at and position < self._written[at - 1][1]:
            return position
        return Position(self._written[at][0] if at < len(self._written) else self.size())

    def _written_ranges(self) -> list[tuple[int, int]]:
        """The ranges of the file that are not holes, as (start, end) in order."""
        size = self.size()
        if not hasattr(os, "SEEK_DATA"):
            return [(0, size)]
        # All at once: reading next to a hole brings pages of it into the page cache, and these
        # count as data from then on. A scan with a query per step would read the whole hole.
        found, end = [], 0
        try:
            while end < size:
                start = os.lseek(self._fd, end, os.SEEK_DATA)
                end = os.lseek(self._fd, start, os.SEEK_HOLE)
                if end <= start:
                    return [(0, size)]
                found.append((start, end))
        except OSError as error:
            if error.errno != errno.ENXIO:
                return [(0, size)]  # the file system does not report holes
        return found

    def close(self) -> bool:
        """Close it. False: a slice of the map is still referenced."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._map is not None:
            self._view = None  # not released: a caller may be about to slice it
            try:
                self._map.close()
            except BufferError:
                return False
            self._map = None
        return True


if sys.version_info >= (3, 13):

    def _map_readonly(fd: int) -> mmap.mmap:
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ, trackfd=False)

else:

    def _map_readonly(fd: int) -> mmap.mmap:
        # Before 3.13 a map keeps a copy of the descriptor: a mapped file counts as two open ones.
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)


class OsDisk:
    """The machine's disk; see `Disk` for the contract."""

    threaded = True

    def __init__(self) -> None:
        self._locks: dict[str, FolderLock] = {}
        self._unwritable: dict[str, OSError] = {}

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        """Open for reading and writing; for reading where it may not be written."""
        file = OsFile(path, create=create, private=private)
        if file.refusal is not None:
            self._unwritable[path] = file.refusal
        return file

    def unwritable_below(self, folder: str) -> StoreIOError | None:
        """Why a file below a folder was opened, or locked, for reading only; None: none was."""
        for path, error in self._unwritable.items():
            if path.startswith(f"{folder}/"):
                found = StoreIOError(path, explain(error))
                found.__cause__ = error
                return found
        return None

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return os.path.exists(path)  # noqa: PTH110 - a third of pathlib's time; once per queue

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder."""
        with _translated(folder):
            try:
                return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
            except FileNotFoundError:
                return []

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)  # noqa: PTH112 - as `exists`

    def is_private(self, path: str) -> bool:
        """Whether there is a file that only its owner may read or write."""
        with _translated(path):
            try:
                return not Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            except FileNotFoundError:
                return False

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        with _translated(path):
            Path(path).mkdir(parents=True, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing target, whose permissions it gets."""
        with _translated(source):
            new, old = Path(source), Path(target)
            if old.is_symlink():
                new, old = self._beside_linked(new, old)
            if old.exists():
                if not old.is_file():
                    raise StoreIOError(target, "not a regular file, so it is not replaced")
                if not self.is_private(source):  # a file with secrets never becomes readable
                    keep_attributes(new, old)
            new.replace(old)

    @staticmethod
    def _beside_linked(source: Path, link: Path) -> tuple[Path, Path]:
        """Move a file beside the one that a link names, maybe to another partition; both paths."""
        target = Path(os.path.realpath(link))
        near = target.with_name(f"{target.name}.tmp")
        shutil.copy2(source, near)
        with near.open("rb") as file:
            os.fsync(file.fileno())
        source.unlink()
        return near, target

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        with _translated(path):
            Path(path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its contents; a missing one is fine."""
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
        """fsync a folder's entries."""
        with _translated(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sync_together(self, paths: Sequence[str]) -> bool:
        """Sync the file system; False: they are few, not all below a locked folder, or it cannot.

        See file_system_sync.py.
        """
        if len(paths) < SYNC_TOGETHER_COUNT_MIN:
            return False
        for path, lock in self._locks.items():
            root = path.rpartition("/")[0]
            if lock.folder >= 0 and all(each.startswith(f"{root}/") for each in paths):
                with _translated(root):
                    return sync_file_system(lock.folder, paths)
        return False

    def lock(self, path: str) -> None:
        """Lock the lock file and its folder, see folder_lock.py."""
        if path in self._locks:
            raise StoreLockedError(path)
        with _translated(path):
            try:
                self._locks[path] = FolderLock(path)
            except OSError as error:
                if error.errno not in NOT_WRITABLE | FULL:
                    raise
                self._locks[path] = FolderLock(path, writes=False)
                self._unwritable[path] = error.with_traceback(None)

    def hold_lock(self, path: str) -> bool:
        """Create and lock the lock file again if it was removed or replaced."""
        lock = self._locks.get(path)
        if lock is None:
            return False
        with _translated(path):
            return lock.hold()

    def unlock(self, path: str) -> None:
        """Release the lock; the file stays."""
        lock = self._locks.pop(path, None)
        if lock is not None:
            lock.release()

    def space(self, path: str) -> Space:
        """Room on the partition of an existing file or folder."""
        with _translated(path):
            found = os.statvfs(path)
        unit = found.f_frsize
        return Space((found.f_blocks - found.f_bfree) * unit, found.f_bavail * unit)

    def used_bytes(self, folder: str) -> int:
        """Bytes that all files in a folder and its subfolders take on disk."""
        total = 0
        with _translated(folder):
            for path, _, names in os.walk(folder):
                for name in names:
                    with suppress(FileNotFoundError):  # removed meanwhile
                        total += os.lstat(f"{path}/{name}").st_blocks * 512
        return total


def total_memory_bytes() -> int:
    """The machine's memory; 8 GiB where the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 8 << 30
