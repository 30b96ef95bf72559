"""The disk of a simulated machine: what a crash leaves of it, what fails on it, what rots on it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import trio

from trocket.disk.os_disk import Space

from .file_system import FileSystem, Image
from .recording_disk import Failure, RecordingDisk

WRITING = frozenset(
    {"pwrite", "sync", "allocate", "resize", "rename", "unlink", "make_folder", "sync_folder"}
)
CAPACITY = 1 << 20
DEVICE = "/device"
ROOT = f"{DEVICE}/store"
"""The data folder; the broker makes it."""


class MachineDisk(RecordingDisk):
    """A `RecordingDisk` that can be the place of a crash.

    Attributes:
      left: what the disk was when the machine or the process died; None: it lives.
      on_death: called at that moment.
      sync_s: how long an fsync takes.
      used_percent: what `space` says.
    """

    def __init__(self, system: FileSystem) -> None:
        super().__init__(system, recording=False)
        self.left: FileSystem | None = None
        self.on_death: Callable[[], None] = lambda: None
        self.sync_s = 0.0
        self.used_percent = 10
        self._writes_left: int | None = None

    @classmethod
    def empty(cls) -> MachineDisk:
        """A new disk."""
        return cls(FileSystem(Image({}, {DEVICE})))

    def do(self, *op: object) -> None:
        """Do one operation, unless death comes first; then the process does it in vain."""
        if self._writes_left is not None and self.left is None:
            self._writes_left -= 1
            if self._writes_left < 0:
                self.die()
        self.system.apply(op)

    def die_after(self, writes: int) -> None:
        """Die before the n-th operation from now."""
        self._writes_left = writes

    def live_on(self) -> None:
        """Forget a death that has not come yet."""
        self._writes_left = None

    def die(self) -> None:
        """Die now."""
        if self.left is None:
            self.left = self.system.fork()
            self.on_death()

    def space(self, path: str) -> Space:
        self.check("space", path)
        used = CAPACITY * self.used_percent // 100
        return Space(used, CAPACITY - used)

    def after_crash(self, power: str | None, random: Random) -> MachineDisk:
        """The disk as the next start finds it.

        Args:
          power: the kind of image that a power cut leaves; None: a kill.
        """
        image = None if power is None else self._rest().crash_image(power, random)
        return self.after_kill() if image is None else MachineDisk(FileSystem(image))

    def after_kill(self) -> MachineDisk:
        """The disk as the next start finds it when only the process has died."""
        return MachineDisk(self._rest())

    def after_power_cut(self, kept: int) -> MachineDisk:
        """The disk as the next start finds it when the first `kept` unsynced operations stay."""
        return MachineDisk(FileSystem(self._rest().first_image(kept)))

    def _rest(self) -> FileSystem:
        return self.left or self.system.fork()

    # ---- faults --------------------------------------------------------------------------

    def fail_all(self, number: int, names: frozenset[str], part: str = "") -> None:
        """Have these calls fail from now on, on paths that contain `part`."""

        def fails(name: str, path: str) -> Failure | None:
            return Failure(number) if name in names and part in path else None

        self.faults = fails

    def fail_once(self, number: int, names: frozenset[str], part: str, share: float) -> None:
        """Have the next of these calls fail, a write after a share of its bytes."""

        def fails(name: str, path: str) -> Failure | None:
            if name in names and part in path:
                self.faults = None
                return Failure(number, share)
            return None

        self.faults = fails

    def fill_up(self) -> None:
        """No new block: files cannot be made, nor get longer."""
        self.used_percent = 100
        self.fail_all(errno.ENOSPC, frozenset({"allocate"}))

    def heal(self) -> None:
        """Nothing fails any more."""
        self.faults = None
        self.sync_s = 0.0
        self.used_percent = 10

    # ---- damage --------------------------------------------------------------------------

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Change bytes behind the back of the file system, on the device too."""
        inode = self.system.names[path]
        for content in (inode.data, inode.durable):
            end = min(position + len(data), len(content))
            if position < end:
                content[position:end] = data[: end - position]

    def read(self, path: str, position: int, size: int, *, durable: bool) -> bytes:
        """Bytes of a file, as read or as on the device; none where there is none."""
        inode = self.system.names.get(path)
        if inode is None:
            return b""
        return bytes((inode.durable if durable else inode.data)[position : position + size])


class SlowThread:
    """Stands for the thread that waits for fsyncs: virtual time passes, and others go on."""

    def __init__(self, disk: MachineDisk) -> None:
        self._disk = disk

    def start(self) -> None:
        """There is none."""

    async def run(self, call: Callable[[], None]) -> None:
        """As `SyncThread.run`."""
        with trio.CancelScope(shield=True):
            await trio.sleep(self._disk.sync_s)
        call()

    def close(self) -> None:
        """There is none."""
