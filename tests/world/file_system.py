"""A file system in memory that knows what a power cut may take from it.

What the device surely has is kept apart from what was only asked of the kernel:

- bytes written to a file are on the device once that file was synced; before, each sector of
  512 bytes may hold the old bytes or those of any write since, independently of the others;
- so with a file's size, but sizes become durable in order, and never after bytes that need them;
- a name (file made, renamed, removed; folder made, removed) is on the device once its folder was
  synced. Before, names become durable in order: over the whole file system as a journal has it, or
  in each folder on its own, which is all that POSIX promises;
- a rename is atomic, so is one write to one sector unless the image tears it on purpose;
- a failed sync loses what was to be written for good: the kernel marks the pages clean, a later
  sync reports success without them (Rebello et al., USENIX ATC 2020).

`crash_image` makes from this state a disk as it may be found after a crash, by kind:

======  =======================================================================================
all     kill -9: everything asked for happened
cut     kill -9 in the middle of a write: `all`, and a first part of the next write
none    power cut: only what was synced
prefix  power cut: the first n of the unsynced operations happened
torn    power cut: as prefix, and of the next write a first part that ends within a sector
random  power cut: any mixture of unsynced sectors, names as far as the order above allows
======  =======================================================================================
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

SECTOR = 512
POWER_KINDS = ("none", "prefix", "torn", "random1", "random2", "random3")
KINDS = ("all", "cut", *POWER_KINDS)

Op = tuple[Any, ...]
"""(name, …): create path · write number position data · size number bytes · sync number ·
sync_failed number · rename source target · unlink path · mkdir path · rmdir path ·
sync_folder path · crash kind seed."""

DATA_OPS = frozenset({"write", "size"})


class Change(NamedTuple):
    """One unsynced change of a file: bytes at a position, or (data None) a size."""

    sequence: int
    position: int
    data: bytes | None


class NameChange(NamedTuple):
    """One unsynced change of the names in a folder."""

    sequence: int
    folder: str
    action: str  # link, unlink, mkdir, rmdir, rename
    path: str
    file: Inode | None
    source: str


@dataclass(slots=True, eq=False)
class Inode:
    """One file: what reads see, what the device surely has, and the changes in between."""

    number: int
    data: bytearray
    durable: bytearray
    pending: list[Change] = field(default_factory=list)


@dataclass(slots=True)
class Image:
    """A disk as it is found: bytes by path, and the folders."""

    files: dict[str, bytearray]
    folders: set[str]


def parent(path: str) -> str:
    """The folder a path lies in."""
    return path.rpartition("/")[0]


class FileSystem:
    """The state that operations lead to. The same operations always lead to the same state.

    Args:
      image: what is there at first, on the device; its bytes are taken over.
      tracked: keep what the device has apart. Without, the only images are `everything`.
    """

    def __init__(self, image: Image, *, tracked: bool = True) -> None:
        self.sequence = 0
        self._number = 0
        self._tracked = tracked
        self.reset(image)

    def reset(self, image: Image) -> None:
        """Start again from what a crash has left."""
        self.inodes: dict[int, Inode] = {}
        self.names: dict[str, Inode] = {}
        for path, data in image.files.items():
            self._number += 1
            inode = Inode(self._number, data, data[:] if self._tracked else data)
            self.inodes[self._number] = self.names[path] = inode
        self.folders = set(image.folders)
        self.durable_names = dict(self.names)
        self.durable_folders = set(image.folders)
        self.pending_names: list[NameChange] = []

    def fork(self) -> FileSystem:
        """An independent copy, with all that is unsynced."""
        copy = FileSystem(Image({}, set()))
        copy.sequence, copy._number = self.sequence, self._number
        copy.inodes = {
            number: Inode(number, inode.data[:], inode.durable[:], inode.pending[:])
            for number, inode in self.inodes.items()
        }
        copy.names = {path: copy.inodes[each.number] for path, each in self.names.items()}
        copy.folders = set(self.folders)
        copy.durable_names = {p: copy.inodes[each.number] for p, each in self.durable_names.items()}
        copy.durable_folders = set(self.durable_folders)
        copy.pending_names = [
            change._replace(file=copy.inodes[change.file.number] if change.file else None)
            for change in self.pending_names
        ]
        return copy

    def digest(self) -> bytes:
        """A digest of everything there is, on the device or not."""
        names = (self.names, self.durable_names)
        parts = (
            self.sequence,
            [[(path, each.number) for path, each in some.items()] for some in names],
            [sorted(some) for some in (self.folders, self.durable_folders)],
            [(each._replace(file=None), each.file and each.file.number)
             for each in self.pending_names],
            [(each.number, len(each.data), len(each.durable), each.pending)
             for each in self.inodes.values()],
        )  # fmt: skip
        found = hashlib.sha256(repr(parts).encode())
        for each in self.inodes.values():
            found.update(each.data)
            found.update(each.durable)
        return found.digest()

    # ---- operations ----------------------------------------------------------------------

    def apply(self, op: Op) -> None:
        """Do one operation."""
        self.sequence += 1
        getattr(self, "_" + op[0])(*op[1:])

    def _create(self, path: str) -> None:
        self._number += 1
        inode = self.inodes[self._number] = self.names[path] = Inode(
            self._number, bytearray(), bytearray()
        )
        self._note("link", path, inode)

    def _write(self, number: int, position: int, data: bytes) -> None:
        inode = self.inodes[number]
        end = position + len(data)
        if end > len(inode.data):
            self._size(number, end)
        inode.data[position:end] = data
        if self._tracked:
            inode.pending.append(Change(self.sequence, position, data))

    def _size(self, number: int, size: int) -> None:
        inode = self.inodes[number]
        resize(inode.data, size)
        if self._tracked:
            inode.pending.append(Change(self.sequence, size, None))

    def _sync(self, number: int) -> None:
        inode = self.inodes[number]
        for change in inode.pending:
            apply_change(inode.durable, change)
        inode.pending.clear()

    def _sync_failed(self, number: int) -> None:
        self.inodes[number].pending.clear()

    def _rename(self, source: str, target: str) -> None:
        inode = self.names[target] = self.names.pop(source)
        self._note("rename", target, inode, source)

    def _unlink(self, path: str) -> None:
        del self.names[path]
        self._note("unlink", path)

    def _mkdir(self, path: str) -> None:
        self.folders.add(path)
        self._note("mkdir", path)

    def _rmdir(self, path: str) -> None:
        self.folders.discard(path)
        self._note("rmdir", path)

    def _note(self, action: str, path: str, file: Inode | None = None, source: str = "") -> None:
        if self._tracked:
            change = NameChange(self.sequence, parent(path), action, path, file, source)
            self.pending_names.append(change)

    def _sync_folder(self, path: str) -> None:
        names, folders = self.durable_names, self.durable_folders
        for change in self.pending_names:
            if change.folder == path:
                apply_name(names, folders, change)
        self.pending_names = [each for each in self.pending_names if each.folder != path]

    def _crash(self, kind: str, seed: int) -> None:
        if kind != "all":
            image = self.crash_image(kind, Random(seed))
            if image is not None:
                self.reset(image)

    # ---- images --------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether a power cut now could take nothing."""
        return not self.pending_names and not any(i.pending for i in self.inodes.values())

    def crash_image(self, kind: str, random: Random, next_op: Op = ("",)) -> Image | None:
        """A disk as a crash of this kind may leave it.

        Args:
          kind: one of `KINDS`.
          next_op: what was going to happen (for `cut`).

        Returns: None when there is no such image now: nothing to cut, nothing unsynced.
        """
        if kind == "all":
            return self.everything()
        if kind == "cut":
            return self._cut_image(random, next_op)
        if kind == "none":
            return self._power_image([], {})
        if self.is_settled:
            return None
        if kind == "torn":
            return self._torn_image(random)
        if kind == "prefix":
            return self._prefix_image(random.choice(self._sequences()))
        return self._random_image(random)

    def everything(self) -> Image:
        """What reads see."""
        return Image({path: each.data[:] for path, each in self.names.items()}, set(self.folders))

    def _cut_image(self, random: Random, next_op: Op) -> Image | None:
        if next_op[0] != "write" or len(next_op[3]) < 2:
            return None
        _, number, position, data = next_op
        image = self.everything()
        for path, inode in self.names.items():
            if inode.number == number:
                cut = random.randrange(1, len(data))
                apply_change(image.files[path], Change(0, position, data[:cut]))
        return image

    def first_image(self, kept: int) -> Image:
        """A disk after a power cut that leaves the first n of the unsynced operations."""
        unsynced = self._sequences()
        return self._prefix_image(unsynced[kept] if kept < len(unsynced) else self.sequence + 1)

    def _sequences(self) -> list[int]:
        found = {each.sequence for each in self.pending_names}
        for inode in self.inodes.values():
            found.update(each.sequence for each in inode.pending)
        return sorted(found)

    def _prefix_image(self, until: int) -> Image:
        """All unsynced operations before the one with this number."""
        contents = {}
        for number, inode in self.inodes.items():
            if inode.pending:
                contents[number] = data = inode.durable[:]
                for change in inode.pending:
                    if change.sequence < until:
                        apply_change(data, change)
        return self._power_image(
            [change for change in self.pending_names if change.sequence < until], contents
        )

    def _torn_image(self, random: Random) -> Image | None:
        writes = [
            (inode, change)
            for inode in self.inodes.values()
            for change in inode.pending
            if change.data is not None and len(change.data) > 1
        ]
        if not writes:
            return None
        inode, change = random.choice(sorted(writes, key=lambda each: each[1].sequence)[-4:])
        assert change.data is not None
        cut = random.randrange(1, len(change.data))
        if (change.position + cut) % SECTOR == 0:
            cut -= 1
        image = self._prefix_image(change.sequence)
        for path, named in self.names.items():
            if named is inode and path in image.files:
                torn = image.files[path]
                for each in inode.pending:  # the size that this very write needs
                    if each.sequence == change.sequence and each.data is None:
                        apply_change(torn, each)
                apply_change(torn, Change(0, change.position, change.data[:cut]))
        return image

    def _random_image(self, random: Random) -> Image:
        kept: list[NameChange] = []
        if random.random() < 0.5:  # one journal
            kept = self.pending_names[: random.randint(0, len(self.pending_names))]
        else:  # each folder on its own
            cuts: dict[str, int] = {}
            for folder in sorted({each.folder for each in self.pending_names}):
                mine = [each for each in self.pending_names if each.folder == folder]
                cuts[folder] = random.choice([0, *(each.sequence for each in mine)])
            kept = [each for each in self.pending_names if each.sequence <= cuts[each.folder]]
        share = random.choice((0.2, 0.5, 0.8))
        contents = {
            number: random_contents(inode, random, share)
            for number, inode in self.inodes.items()
            if inode.pending
        }
        return self._power_image(kept, contents)

    def _power_image(self, kept: list[NameChange], contents: dict[int, bytearray]) -> Image:
        names, folders = self.durable_names, self.durable_folders
        if kept:
            names, folders = dict(names), set(folders)
            for change in kept:
                apply_name(names, folders, change)
        reachable = {path for path in folders if all_there(path, folders)}
        files = {}
        for path, inode in names.items():
            if parent(path) in reachable:
                data = contents.get(inode.number)
                files[path] = inode.durable[:] if data is None else data
        return Image(files, reachable)


def random_contents(inode: Inode, random: Random, share: float) -> bytearray:
    """What a file may hold when each of its unsynced sectors was written, or not, or earlier."""
    versions: dict[int, list[Change]] = {}
    sizes: list[Change] = []
    for change in inode.pending:
        if change.data is None:
            sizes.append(change)
        else:
            last = (change.position + max(len(change.data), 1) - 1) // SECTOR
            for sector in range(change.position // SECTOR, last + 1):
                versions.setdefault(sector, []).append(change)
    kept: list[tuple[int, list[Change]]] = []
    needed = 0
    for sector, changes in versions.items():
        if random.random() < share:
            count = random.randint(1, len(changes)) if random.random() < 0.3 else len(changes)
            kept.append((sector, changes[:count]))
            needed = max(needed, changes[count - 1].sequence)
    until = random.choice([0, *(each.sequence for each in sizes)])
    data = inode.durable[:]
    for change in sizes:
        if change.sequence <= max(until, needed):
            apply_change(data, change)
    for sector, changes in kept:
        start, end = sector * SECTOR, (sector + 1) * SECTOR
        for change in changes:
            assert change.data is not None
            low, high = max(start, change.position), min(end, change.position + len(change.data))
            high = min(high, len(data))  # shortened since
            if low < high:
                data[low:high] = change.data[low - change.position : high - change.position]
    return data


def resize(data: bytearray, size: int) -> None:
    """Make it so long; new bytes are 0."""
    if size < len(data):
        del data[size:]
    elif size > len(data):
        data.extend(bytes(size - len(data)))


def apply_change(data: bytearray, change: Change) -> None:
    """Do one change to a file's bytes."""
    _, position, new = change
    if new is None:
        resize(data, position)
        return
    end = position + len(new)
    if end > len(data):
        resize(data, end)
    data[position:end] = new


def apply_name(names: dict[str, Inode], folders: set[str], change: NameChange) -> None:
    """Do one change of names."""
    if change.action == "mkdir":
        folders.add(change.path)
    elif change.action == "rmdir":
        folders.discard(change.path)
    elif change.action == "unlink":
        names.pop(change.path, None)
    else:
        assert change.file is not None
        names.pop(change.source, None)
        names[change.path] = change.file


def all_there(path: str, folders: set[str]) -> bool:
    """Whether a folder and all above it are there."""
    while path:
        if path not in folders:
            return False
        path = parent(path)
    return True
