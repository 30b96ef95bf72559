"""The disks of an embedded broker: in memory or a real folder, both with faults and a crash.

A crash leaves what a machine would find: in memory that of a power cut (what was not synced is
gone) or of a kill; in a folder that of a kill, because the machine itself goes on.
"""

from __future__ import annotations

import errno
import os
from typing import Protocol

from ..store.disk.memory_disk import Fault, MemoryDisk
from ..store.disk.os_disk import Disk, OsDisk, OsFile, Space, explain
from ..store.errors import StoreIOError
from ..store.offsets import Position
from .errors import EmbeddedBrokerError

LOG_FOLDER = "/commitlog/"


class EmbeddedDisk(Disk, Protocol):
    """What the embedded broker needs of its disk.

    Attributes:
      fault: asked before each operation; see `store.memory_disk.Fault`.
      is_full: `space` says that nothing is free.
    """

    fault: Fault | None
    is_full: bool

    def after_crash(self, *, power_loss: bool | None) -> EmbeddedDisk:
        """What a broker finds that is started after a crash at this moment.

        Whatever is done to this disk afterwards, the other one does not see.

        Args:
          power_loss: whether what was not synced is lost; None: where that can be done.
        Raises: EmbeddedBrokerError: it cannot be done here.
        """


class EmbeddedMemoryDisk(MemoryDisk):
    """A disk in memory that can be full and can crash."""

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
    """A file that can fail, and that a dead process writes no more."""

    def __init__(self, disk: EmbeddedFolderDisk, path: str, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._disk = disk

    def pwrite(self, data: bytes | bytearray | memoryview, position: Position) -> None:
        if self._disk.may("pwrite", self.path):
            super().pwrite(data, position)

    def allocate(self, size: int) -> None:
        if self._disk.may("allocate", self.path):
            super().allocate(size)

    def resize(self, size: int) -> None:
        if self._disk.may("resize", self.path):
            super().resize(size)

    def sync(self) -> None:
        if self._disk.may("sync", self.path):
            super().sync()


class EmbeddedFolderDisk(OsDisk):
    """The machine's disk, which can be said to be full, and whose process can be said dead."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Fault | None = None
        self.is_full = False
        self._is_dead = False
        self._nowhere = MemoryDisk()

    def may(self, operation: str, path: str) -> bool:
        """Whether an operation has an effect: not when the process is dead.

        Raises: StoreIOError: it fails.
        """
        error = self.fault(operation, path) if self.fault is not None else None
        if error is not None and not self._is_dead:
            raise StoreIOError(path, explain(error)) from error
        return not self._is_dead

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """Open for reading and writing."""
        if self._is_dead and create and not self.exists(path):
            return self._nowhere.open(path, create=True)  # type: ignore[return-value]
        return _File(self, path, create=create)

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""
        if self.may("rename", source):
            super().rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        if self.may("unlink", path):
            super().unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents."""
        if self.may("make_folder", path):
            super().make_folder(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it."""
        if self.may("remove_folder", path):
            super().remove_folder(path)

    def space(self, path: str) -> Space:
        """As of the base class, or nothing free."""
        space = super().space(path)
        return Space(space.used + space.free, 0) if self.is_full else space

    def after_crash(self, *, power_loss: bool | None) -> EmbeddedFolderDisk:
        """The same folder; from now on nothing done here has an effect."""
        if power_loss:
            raise EmbeddedBrokerError(
                "a real folder keeps what was written as long as the machine runs: "
                "power_loss=True needs a broker in memory, one without folder="
            )
        self._is_dead = True
        found = EmbeddedFolderDisk()
        found.fault, found.is_full = self.fault, self.is_full
        return found


def failing_log_sync(operation: str, path: str) -> OSError | None:
    """A `Fault`: no fsync of the commit log succeeds."""
    if operation == "sync" and LOG_FOLDER in path:
        return OSError(errno.EIO, os.strerror(errno.EIO))
    return None
