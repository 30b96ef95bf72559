"""A disk in memory: the counterpart of `OsDisk` for tests and for brokers embedded in tests.

It can lose unsynced writes (`power_loss`), and fail any call (`fault`), to test ENOSPC, a failing
fsync and a torn write. It needs no threads, so virtual clocks work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .errors import StoreIOError, StoreLockedError
from .os_disk import Space, explain
from .position import Position

Fault = Callable[[str, str], OSError | None]
"""Called before each operation with its name ("pwrite", "allocate", "sync", "rename", …) and the
path; a returned error is raised (as StoreIOError)."""


class MemoryFile:
    """A file in memory; see `disk.DiskFile` for the contract."""

    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._is_open = True
        disk.open_files += 1

    @property
    def _data(self) -> bytearray:
        data = self._disk.contents.get(self.path)
        if data is None:
            raise StoreIOError(self.path, "the file was removed while open")
        return data

    def size(self) -> int:
        """Bytes from its start to its end."""
        return len(self._data)

    def pwrite(self, data: bytes | bytearray | memoryview, position: Position) -> None:
        """Write all of `data` at `position`."""
        disk = self._disk
        disk.check("pwrite", self.path)
        end = position + len(data)
        if end > len(self._data):
            self._grow(end)
        contents = self._data
        if disk.journal is not None:
            disk.journal.append((self.path, position, bytes(contents[position:end])))
        contents[position:end] = data

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        self._disk.check("pread", self.path)
        return bytes(memoryview(self._data)[position : position + size])

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long."""
        self._disk.check("allocate", self.path)
        self._grow(size)

    def resize(self, size: int) -> None:
        """Make the file `size` bytes long."""
        self._disk.check("resize", self.path)
        if size < len(self._data):
            del self._data[size:]
        self._grow(size)

    def sync(self) -> None:
        """Make the writes so far survive `power_loss`."""
        disk = self._disk
        disk.check("sync", self.path)
        if disk.journal is not None:
            disk.journal[:] = [entry for entry in disk.journal if entry[0] != self.path]

    def map(self) -> memoryview:
        """The whole file, read-only."""
        return memoryview(self._data).toreadonly()

    def drop_pages(self) -> None:
        """Do nothing."""

    def next_data(self, position: Position) -> Position:
        """Every byte may be data."""
        return Position(min(position, len(self._data)))

    def close(self) -> bool:
        """Mark it as closed."""
        if self._is_open:
            self._is_open = False
            self._disk.open_files -= 1
        return True

    def _grow(self, size: int) -> None:
        data = self._data
        if not data:
            # One block for the whole file. CPython writes its zeros, so it takes all of its memory.
            self._disk.contents[self.path] = bytearray(size)
        elif size > len(data):
            data.extend(bytes(size - len(data)))


class MemoryDisk:
    """Files in memory; see `disk.Disk` for the contract.

    Args:
      journalled: remember unsynced writes, so that `power_loss` can undo them.

    Attributes:
      contents: bytes by path.
      folders: the existing folders.
      fault: see `Fault`; None: nothing fails.
      open_files: number of open files.
      capacity: size of the disk for `space`, bytes; writes beyond it do not fail.
      taken: bytes of it used by other programs.
    """

    threaded = False

    def __init__(self, *, journalled: bool = False) -> None:
        self.contents: dict[str, bytearray] = {}
        self.folders: set[str] = set()
        self.fault: Fault | None = None
        self.open_files = 0
        self.capacity = 1 << 40
        self.taken = 0
        self.journal: list[tuple[str, int, bytes]] | None = [] if journalled else None
        self._locks: set[str] = set()

    def check(self, operation: str, path: str) -> None:
        """Let `fault` decide whether this operation fails.

        Raises:
          StoreIOError: it fails.
        """
        error = self.fault(operation, path) if self.fault is not None else None
        if error is not None:
            raise StoreIOError(path, explain(error)) from error

    def process_death(self) -> None:
        """Simulate `kill -9`: all writes stay, the locks are released."""
        self._locks.clear()

    def power_loss(self, kept_writes: int = 0) -> None:
        """Simulate a power cut: of the unsynced writes only the first `kept_writes` stay.

        Creations, renames and sizes are kept; file systems journal those first.

        Raises:
          ValueError: the disk was created without `journalled=True`.
        """
        if self.journal is None:
            raise ValueError("MemoryDisk(journalled=True) is needed for power_loss()")
        for path, position, before in reversed(self.journal[kept_writes:]):
            if path in self.contents:
                self.contents[path][position : position + len(before)] = before
        self.journal.clear()
        self._locks.clear()

    def copy(self) -> MemoryDisk:
        """A disk with the same files, unlocked: what `kill -9` would leave now."""
        left = MemoryDisk()
        left.contents = {path: bytearray(data) for path, data in self.contents.items()}
        left.folders = set(self.folders)
        left.journal = None if self.journal is None else list(self.journal)
        return left

    def open(self, path: str, *, create: bool = False, private: bool = False) -> MemoryFile:
        """Open for reading and writing."""
        self.check("open", path)
        if path not in self.contents:
            if not create:
                raise StoreIOError(path, "No such file or directory")
            self.contents[path] = bytearray()
        return MemoryFile(self, path)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return path in self.contents or self.is_folder(path)

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        prefix = folder.rstrip("/") + "/"
        found = {
            path[len(prefix) :].split("/", 1)[0]
            for path in (*self.contents, *self.folders)
            if path.startswith(prefix)
        }
        return sorted(found)

    def is_folder(self, path: str) -> bool:
        prefix = path.rstrip("/") + "/"
        names = (*self.contents, *self.folders)
        return path in self.folders or any(name.startswith(prefix) for name in names)

    def is_private(self, path: str) -> bool:
        """Whether there is a file: no other process reads it."""
        return path in self.contents

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents."""
        self.check("make_folder", path)
        self.folders.add(path.rstrip("/"))

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing target."""
        self.check("rename", source)
        if source not in self.contents:
            raise StoreIOError(source, "No such file or directory")
        self.contents[target] = self.contents.pop(source)
        if self.journal is not None:
            self.journal[:] = [
                (target if path == source else path, position, before)
                for path, position, before in self.journal
                if path != target
            ]

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        self.check("unlink", path)
        self.contents.pop(path, None)
        if self.journal is not None:
            self.journal[:] = [entry for entry in self.journal if entry[0] != path]

    def remove_folder(self, path: str) -> None:
        self.check("remove_folder", path)
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self.contents if name.startswith(prefix)]:
            self.unlink(name)
        self.folders = {
            name for name in self.folders if name != path and not name.startswith(prefix)
        }

    def sync_folder(self, path: str) -> None:
        """Do nothing but check `fault`: names are durable at once."""
        self.check("sync_folder", path)

    def sync_together(self, paths: Sequence[str]) -> bool:
        """Do nothing: each is synced by itself, so that each has its `fault`."""
        return False

    def lock(self, path: str) -> None:
        """Take the lock file."""
        self.check("lock", path)
        if path in self._locks:
            raise StoreLockedError(path)
        self.contents[path] = bytearray(b"lock")
        self._locks.add(path)

    def hold_lock(self, path: str) -> bool:
        """Create a missing lock file again."""
        self.check("hold_lock", path)
        if path in self.contents:
            return False
        self.contents[path] = bytearray(b"lock")
        return True

    def unlock(self, path: str) -> None:
        """Release the lock; the file stays."""
        self._locks.discard(path)

    def unwritable_below(self, folder: str) -> StoreIOError | None:
        """None: what may not be written fails when it is written."""
        return None

    def space(self, path: str) -> Space:
        """`capacity`, less the files' bytes and `taken`."""
        self.check("space", path)
        used = self.taken + sum(map(len, self.contents.values()))
        return Space(used, max(self.capacity - used, 0))

    def used_bytes(self, folder: str) -> int:
        """The lengths of all files in a folder; there are no holes here."""
        self.check("used_bytes", folder)
        prefix = folder.rstrip("/") + "/"
        return sum(len(data) for path, data in self.contents.items() if path.startswith(prefix))
