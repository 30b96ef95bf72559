"""A disk that remembers every operation and can refuse any; see `trocket.disk.os_disk.Disk`.

Nothing is mocked: the store under test reads and writes real bytes, in a `FileSystem` that knows
what a crash may take. The journal of one disk, played on another `FileSystem`, leads through the
same states; so an image can be made for every moment of a run after the run.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trocket.disk.errors import StoreIOError, StoreLockedError
from trocket.disk.os_disk import Space, explain
from trocket.disk.position import Position

from .file_system import FileSystem, Image, Inode, Op, parent


class Failure(NamedTuple):
    """How a call fails.

    Attributes:
      number: errno.
      part: for pwrite, the share of the bytes that is written all the same, 0 … 1.
    """

    number: int
    part: float = 0.0


Faults = Callable[[str, str], Failure | None]
"""Asked before each call with its name and path."""


class RecordingFile:
    """One open file. It stays the same file when its name goes."""

    def __init__(self, disk: RecordingDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def size(self) -> int:
        """Bytes from its start to its end."""
        return len(self._inode.data)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`; a failure may leave a first part of it written."""
        failure = self._disk.failure("pwrite", self.path)
        if failure is not None:
            part = bytes(data[: int(len(data) * failure.part)])
            if part:
                self._disk.do("write", self._inode.number, position, part)
            raise self._disk.error(failure, self.path)
        self._disk.do("write", self._inode.number, position, bytes(data))

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        self._disk.check("pread", self.path)
        return bytes(memoryview(self._inode.data)[position : position + size])

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long."""
        self._disk.check("allocate", self.path)
        if size > len(self._inode.data):
            self._disk.do("size", self._inode.number, size)

    def resize(self, size: int) -> None:
        """Make the file `size` bytes long."""
        self._disk.check("resize", self.path)
        self._disk.do("size", self._inode.number, size)

    def sync(self) -> None:
        """Have all that was written on the device."""
        failure = self._disk.failure("sync", self.path)
        if failure is not None:
            self._disk.do("sync_failed", self._inode.number)
            raise self._disk.error(failure, self.path)
        self._disk.do("sync", self._inode.number)

    def map(self) -> memoryview:
        """The whole file, read-only, always as it is now."""
        return memoryview(self._inode.data).toreadonly()

    def drop_pages(self) -> None:
        """Nothing to give back."""

    def next_data(self, position: int) -> Position:
        """Every byte may be data."""
        return Position(min(position, len(self._inode.data)))

    def close(self) -> bool:
        """Nothing to close."""
        return True


class RecordingDisk:
    """The disk of one simulated machine.

    Args:
      system: its files.
      recording: keep a journal.

    Attributes:
      journal: the operations so far.
      faults: what fails; None: nothing.
      calls: how many calls could have failed so far.
    """

    threaded = False

    def __init__(self, system: FileSystem, *, recording: bool = True) -> None:
        self.system = system
        self.journal: list[Op] = []
        self.recording = recording
        self.faults: Faults | None = None
        self.calls = 0
        self._locks: set[str] = set()

    @classmethod
    def of_image(cls, image: Image, *, recording: bool = False) -> RecordingDisk:
        """A disk that holds an image, all of it on the device."""
        return cls(FileSystem(image, tracked=recording), recording=recording)

    def do(self, *op: object) -> None:
        """Do one operation and remember it."""
        if self.recording:
            self.journal.append(op)
        self.system.apply(op)

    def failure(self, name: str, path: str) -> Failure | None:
        """Whether this call fails, and how."""
        self.calls += 1
        return self.faults(name, path) if self.faults is not None else None

    def check(self, name: str, path: str) -> None:
        """Raise when this call fails."""
        failure = self.failure(name, path)
        if failure is not None:
            raise self.error(failure, path)

    def error(self, failure: Failure, path: str) -> StoreIOError:
        """The error that a failing call raises."""
        return StoreIOError(path, explain(OSError(failure.number, "")))

    def crash(self, kind: str, seed: int) -> None:
        """The machine or the process dies; open files and locks are gone, see `FileSystem`."""
        self._locks.clear()
        self.do("crash", kind, seed)

    # ---- the store's calls ---------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, private: bool = False) -> RecordingFile:
        """Open for reading and writing."""
        self.check("open", path)
        if path not in self.system.names:
            if not create or parent(path) not in self.system.folders:
                raise self.error(Failure(errno.ENOENT), path)
            self.do("create", path)
        return RecordingFile(self, path, self.system.names[path])

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return path in self.system.names or path in self.system.folders

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        self.check("list", folder)
        start = len(folder) + 1
        prefix = folder + "/"
        system = self.system
        return sorted(
            path[start:]
            for names in (system.names, system.folders)
            for path in names
            if path.startswith(prefix) and "/" not in path[start:]
        )

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder."""
        return path in self.system.folders

    def is_private(self, path: str) -> bool:
        """Whether there is a file: no other process reads it."""
        return path in self.system.names

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents."""
        self.check("make_folder", path)
        missing = []
        while path and path not in self.system.folders:
            missing.append(path)
            path = parent(path)
        for each in reversed(missing):
            self.do("mkdir", each)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""
        self.check("rename", source)
        if source not in self.system.names:
            raise self.error(Failure(errno.ENOENT), source)
        self.do("rename", source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        self.check("unlink", path)
        if path in self.system.names:
            self.do("unlink", path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it, entry by entry."""
        self.check("remove_folder", path)
        prefix = path + "/"
        for name in sorted(name for name in self.system.names if name.startswith(prefix)):
            self.do("unlink", name)
        for name in sorted(self.system.folders, reverse=True):
            if name == path or name.startswith(prefix):
                self.do("rmdir", name)

    def sync_folder(self, path: str) -> None:
        """Have the folder's entries on the device."""
        self.check("sync_folder", path)
        if path not in self.system.folders:
            raise self.error(Failure(errno.ENOENT), path)
        self.do("sync_folder", path)

    def sync_together(self, paths: Sequence[str]) -> bool:
        """Do nothing: each is synced by itself."""
        return False

    def lock(self, path: str) -> None:
        """Take the lock file."""
        self.check("lock", path)
        if path in self._locks:
            raise StoreLockedError(path)
        self._locks.add(path)
        if path not in self.system.names:
            self.do("create", path)
            self.do("write", self.system.names[path].number, 0, b"lock")

    def hold_lock(self, path: str) -> bool:
        """Nobody removes the lock file here."""
        return False

    def unlock(self, path: str) -> None:
        """Give the lock back; the file stays."""
        self._locks.discard(path)

    def unwritable_below(self, folder: str) -> StoreIOError | None:
        """None: each file can be opened for writing."""
        return None

    def space(self, path: str) -> Space:
        """Room without end."""
        self.check("space", path)
        return Space(0, 1 << 50)

    def used_bytes(self, folder: str) -> int:
        """The lengths of all files in a folder."""
        self.check("used_bytes", folder)
        names = self.system.names
        return sum(len(names[path].data) for path in names if path.startswith(folder + "/"))
