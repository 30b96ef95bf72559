"""The disks of an embedded broker, in memory or in a real folder, with faults and crashes.

A disk in memory can have the contents after a power failure, which loses data that was not synced,
or after a kill. A folder can only have those after a kill, because the machine keeps running.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from typing import Protocol

from ..disk.errors import StoreIOError
from ..disk.memory_disk import Fault, MemoryDisk
from ..disk.os_disk import Disk, OsDisk, OsFile, Space, explain
from ..disk.position import Position
from .errors import EmbeddedBrokerError

LOG_FOLDER = "/commitlog/"


class EmbeddedDisk(Disk, Protocol):
    """The disk of an embedded broker.

    Attributes:
      fault: called before each operation; see `store.disk.memory_disk.Fault`.
      is_full: whether `space` reports that nothing is free.
    """

    fault: Fault | None
    is_full: bool

    def after_crash(self, *, power_loss: bool | None) -> EmbeddedDisk:
        """The disk as a broker finds it that is started after a crash at this moment.

        Later operations on this disk have no effect on the returned one.

        Args:
          power_loss: whether data that was not synced is lost; None: if the disk supports that.

        Raises: EmbeddedBrokerError: this disk does not support a power failure.
        """


class EmbeddedMemoryDisk(MemoryDisk):
    """A disk in memory, with `is_full` and `after_crash`."""

    def __init__(self) -> None:
        super().__init__(journalled=True)
        self.is_full = False

    def space(self, path: str) -> Space:
        """As of the base class, or nothing free."""
        space = super().space(path)
        return Space(space.used + space.free, 0) if self.is_full else space

    def after_crash(self, *, power_loss: bool | None) -> EmbeddedMemoryDisk:
        """A copy; see `EmbeddedDisk.after_crash`."""
        found = EmbeddedMemoryDisk()
        found.contents = {path: bytearray(data) for path, data in self.contents.items()}
        found.folders = set(self.folders)
        found.journal = list(self.journal or ())
        found.fault, found.is_full = self.fault, self.is_full
        if power_loss is not False:
            found.power_loss()
        return found


class _File(OsFile):
    """A file with faults; after a crash, its changes have no effect."""

    def __init__(self, disk: EmbeddedFolderDisk, path: str, *, create: bool, private: bool) -> None:
        super().__init__(path, create=create, private=private)
        self._disk = disk

    def pwrite(self, data: bytes | bytearray | memoryview, position: Position) -> None:
        if self._disk.has_effect("pwrite", self.path):
            super().pwrite(data, position)

    def allocate(self, size: int) -> None:
        if self._disk.has_effect("allocate", self.path):
            super().allocate(size)

    def resize(self, size: int) -> None:
        if self._disk.has_effect("resize", self.path):
            super().resize(size)

    def sync(self) -> None:
        if self._disk.has_effect("sync", self.path):
            super().sync()


class EmbeddedFolderDisk(OsDisk):
    """A folder of the machine's disk, with `is_full` and `after_crash`."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Fault | None = None
        self.is_full = False
        self._is_dead = False
        self._discarded = MemoryDisk()  # files that are created after the crash

    def has_effect(self, operation: str, path: str) -> bool:
        """Whether an operation has an effect, which it does not after a crash.

        Raises: StoreIOError: `fault` has the operation fail.
        """
        error = self.fault(operation, path) if self.fault is not None else None
        if error is not None and not self._is_dead:
            raise StoreIOError(path, explain(error)) from error
        return not self._is_dead

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        """Open for reading and writing."""
        if self._is_dead and create and not self.exists(path):
            return self._discarded.open(path, create=True)  # type: ignore[return-value]
        return _File(self, path, create=create, private=private)

    def sync_together(self, paths: Sequence[str]) -> bool:
        """Do nothing: each is synced by itself, so that each has its `fault`."""
        return False

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""
        if self.has_effect("rename", source):
            super().rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        if self.has_effect("unlink", path):
            super().unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents."""
        if self.has_effect("make_folder", path):
            super().make_folder(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it."""
        if self.has_effect("remove_folder", path):
            super().remove_folder(path)

    def space(self, path: str) -> Space:
        """As of the base class, or nothing free."""
        space = super().space(path)
        return Space(space.used + space.free, 0) if self.is_full else space

    def after_crash(self, *, power_loss: bool | None) -> EmbeddedFolderDisk:
        """The same folder as a new disk; operations on this one have no effect from now on."""
        if power_loss:
            raise EmbeddedBrokerError(
                "a real folder keeps what was written as long as the machine runs: "
                "power_loss=True needs a broker in memory, one without folder="
            )
        self._is_dead = True
        found = EmbeddedFolderDisk()
        found.fault, found.is_full = self.fault, self.is_full
        return found


class LogSyncs:
    """A `Fault` for the fsyncs of the commit log: they fail, or take long.

    Attributes:
      fails: each returns an error.
      slow_ms: each takes so long, in milliseconds.
    """

    def __init__(self) -> None:
        self.fails = False
        self.slow_ms = 0
        self._loop_thread = 0
        self._changed = threading.Event()

    def set_slow(self, slow_ms: int) -> None:
        """Have each take so long; those that wait now end at once. Called in the loop's thread."""
        self._loop_thread = threading.get_ident()
        self.slow_ms = slow_ms
        self._changed.set()
        self._changed = threading.Event()

    def __call__(self, operation: str, path: str) -> OSError | None:
        if operation != "sync" or LOG_FOLDER not in path:
            return None
        # An fsync in the loop's thread, as at the end, would hold up the request that ends this.
        if self.slow_ms and threading.get_ident() != self._loop_thread:
            self._changed.wait(self.slow_ms / 1000)
        return OSError(errno.EIO, os.strerror(errno.EIO)) if self.fails else None
