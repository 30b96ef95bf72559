"""An LRU pool of open and mapped commit log files.

A log may have thousands of files. At most `open_count_max` of them are open and mapped at a time;
the order of use is updated when a file is opened or mapped and when half of them have changed,
never per message. A closed file whose map is still referenced by a slice keeps only the map, until
the slice is garbage.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable

from ...disk.errors import StoreIOError
from ...disk.os_disk import Disk, DiskFile, errno_of
from ...disk.position import Position

OPEN_LOG_FILES_MAX = 64
"""Commit log files open at a time. A mapped one costs two descriptors before Python 3.13, so these
take an eighth of the usual limit of 1024 at most, besides OPEN_FILES_MAX of the queues' 256."""

MAPPED_BYTES_MAX = 64 << 30
"""Address space, not memory, that the maps of open files take: 64 files of the usual 1 GiB."""

OPEN_LOG_FILES_MIN = 4
"""For files of any size: the one written to, the one before it, and two that are read."""

_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def open_count_max(file_size: int) -> int:
    """The number of files of a size (bytes) that may be open at a time."""
    return max(min(OPEN_LOG_FILES_MAX, MAPPED_BYTES_MAX // file_size), OPEN_LOG_FILES_MIN)


class LogFilePool:
    """The files that are open. Owned by the store's task.

    Args:
      count_max: open at a time, if `must_stay` allows it; >= 4.
      must_stay: whether the file of a base must not be closed now.

    Attributes:
      open: by base; read-only for callers.
      views: maps of recently used files, by base; read-only for callers. Reading a mapped file
        costs one lookup here.
    """

    def __init__(self, disk: Disk, count_max: int, must_stay: Callable[[int], bool]) -> None:
        self.count_max = count_max
        self.open: OrderedDict[int, DiskFile] = OrderedDict()
        self.views: dict[int, memoryview] = {}
        self._disk = disk
        self._must_stay = must_stay
        self._closing: list[DiskFile] = []

    def use(self, base: int, path: str) -> DiskFile:
        """The file, opened if necessary; it becomes the most recently used.

        Raises:
          StoreIOError: it could not be opened.
        """
        file = self.open.get(base)
        if file is not None:
            self.open.move_to_end(base)
            return file
        try:
            file = self._disk.open(path)
        except StoreIOError as error:
            if errno_of(error) not in _SHORTAGES:
                raise
            self._make_room()
            file = self._disk.open(path)
        self.open[base] = file
        self._shrink_to(self.count_max)
        return file

    def map(self, base: int, path: str) -> memoryview:
        """The file's map, created if necessary; the file becomes the most recently used.

        Raises:
          StoreIOError: it could not be opened or mapped.
        """
        file = self.use(base, path)
        try:
            view = file.map()
        except StoreIOError as error:
            if errno_of(error) not in _SHORTAGES:
                raise
            # Out of descriptors or address space: others are closed, and it is tried once more.
            self._make_room()
            view = file.map()
        # Reads of mapped files do not pass here, so their order of use is set from time to time.
        if len(self.views) >= self.count_max // 2:
            for used in self.views:
                self.open.move_to_end(used)
            self.views.clear()
            self.open.move_to_end(base)
        self.views[base] = view
        return view

    def drop_pages(self) -> None:
        """Drop mapped pages, and the maps of closed files that are no longer referenced."""
        for file in self.open.values():
            file.drop_pages()
        self._finish_closing()

    def close(self, base: int) -> None:
        """Close one file, without asking `must_stay`."""
        self.views.pop(base, None)
        file = self.open.pop(base, None)
        if file is not None and not file.close():
            self._closing.append(file)

    def close_all(self) -> None:
        """Close all. A slice that is still referenced keeps its map."""
        for base in list(self.open):
            self.close(base)
        self._closing.clear()

    def _finish_closing(self) -> None:
        self._closing = [file for file in self._closing if not file.close()]

    def _make_room(self) -> None:
        self._shrink_to(1)
        self._finish_closing()

    def _shrink_to(self, count: int) -> None:
        """Close least recently used files until `count` are left; the last used one stays."""
        for base in list(self.open)[:-1]:
            if len(self.open) <= count:
                return
            recently = count > 1 and base in self.views
            if not recently and not self._must_stay(base):
                self.close(base)


class LogFile:
    """One file of the log, open or not; see `disk.DiskFile` for the contract.

    Args:
      base: physical offset of its first byte.
      pool: opens it.

    Attributes:
      syncs: one entry for each sync that was announced (`CommitLog.take_unsynced`) and has not
        ended; the file stays open meanwhile, because a sync runs in another thread.
    """

    __slots__ = ("base", "path", "pool", "syncs")

    def __init__(self, path: str, base: int, pool: LogFilePool) -> None:
        self.path = path
        self.base = base
        self.pool = pool
        self.syncs: list[None] = []

    def size(self) -> int:
        """Bytes from its start to its end."""
        return self.pool.use(self.base, self.path).size()

    def pwrite(self, data: bytes | bytearray | memoryview, position: Position) -> None:
        """Write all of `data` at `position`."""
        self.pool.use(self.base, self.path).pwrite(data, position)

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        return self.pool.use(self.base, self.path).pread(size, position)

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with all of them allocated on disk."""
        self.pool.use(self.base, self.path).allocate(size)

    def resize(self, size: int) -> None:
        """Make the file `size` bytes long; new bytes are a hole."""
        self.pool.use(self.base, self.path).resize(size)

    def sync(self) -> None:
        """fsync; may run in a worker thread if it was announced."""
        try:
            if self.syncs:
                self.pool.open[self.base].sync()
            else:
                self.pool.use(self.base, self.path).sync()
        finally:
            if self.syncs:
                self.syncs.pop()

    def map(self) -> memoryview:
        """The whole file, read-only."""
        return self.pool.map(self.base, self.path)

    def drop_pages(self) -> None:
        """Drop mapped pages from this process's memory."""
        file = self.pool.open.get(self.base)
        if file is not None:
            file.drop_pages()

    def next_data(self, position: Position) -> Position:
        """The next position, from this one on, that may not be in a hole."""
        return self.pool.use(self.base, self.path).next_data(position)

    def close(self) -> bool:
        """Close it; the next use opens it again."""
        self.pool.close(self.base)
        return True
