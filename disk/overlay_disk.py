"""A copy-on-write disk: writes stay in memory, the disk below is only read.

Recovery opens a store through it until it is clear that the store may be changed; a store that
starts read-only because of a hole keeps it: its queues are complete in memory, and the folder does
not change.

Pages of 4 KiB are copied when they are first written to. Nothing survives the process; `sync`,
`sync_folder` and locks do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from .errors import StoreIOError
from .os_disk import Disk, DiskFile, Space
from .position import START, Position

PAGE = 4096

_ZEROS = bytes(PAGE)


class _Layer:
    """The changes of one file.

    Attributes:
      size: of the file, bytes.
      base_end: bytes of the file below that are still visible.
      pages: the written pages, by number.
    """

    __slots__ = ("base_end", "pages", "size")

    def __init__(self, base_size: int) -> None:
        self.size = self.base_end = base_size
        self.pages: dict[int, bytes | bytearray] = {}


class OverlayFile:
    """An open file of the overlay; see `disk.DiskFile` for the contract.

    Args:
      disk: the overlay.
      path: in the overlay, and below.
    """

    def __init__(self, disk: OverlayDisk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._base: DiskFile | None = None

    def size(self) -> int:
        """Bytes from its start to its end."""
        layer = self._disk.layers.get(self.path)
        return layer.size if layer is not None else self._below().size()

    def pwrite(self, data: bytes | bytearray | memoryview, position: Position) -> None:
        """Write all of `data` at `position`, in memory."""
        layer, view = self._layer(), memoryview(data)
        layer.size = max(layer.size, position + len(data))
        at = 0
        while at < len(data):
            number, start = divmod(position + at, PAGE)
            part = view[at : at + PAGE - start]
            if len(part) == PAGE:
                layer.pages[number] = _ZEROS if part == _ZEROS else bytearray(part)
            else:
                page = layer.pages.get(number)
                if not isinstance(page, bytearray):
                    page = layer.pages[number] = bytearray(self._page(layer, number))
                page[start : start + len(part)] = part
            at += len(part)

    def pread(self, size: int, position: Position) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        layer = self._disk.layers.get(self.path)
        if layer is None:
            return self._below().pread(size, position)
        end = min(position + size, layer.size)
        if position >= end:
            return b""
        first = position // PAGE
        data = b"".join(self._page(layer, n) for n in range(first, (end - 1) // PAGE + 1))
        return data[position - first * PAGE : end - first * PAGE]

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long."""
        layer = self._layer()
        layer.size = max(layer.size, size)

    def resize(self, size: int) -> None:
        """Make the file `size` bytes long."""
        layer = self._layer()
        if size < layer.size:
            edge, kept = divmod(size, PAGE)
            page = self._page(layer, edge)[:kept]
            layer.pages = {n: found for n, found in layer.pages.items() if n < edge}
            layer.base_end = min(layer.base_end, edge * PAGE)
            if kept:
                layer.pages[edge] = bytearray(page.ljust(PAGE, b"\0"))
        layer.size = size

    def sync(self) -> None:
        """Do nothing."""

    def map(self) -> memoryview:
        """The map of the file below; of a changed file a copy in memory."""
        if self.path not in self._disk.layers:
            return self._below().map()
        return memoryview(self.pread(self.size(), START))

    def drop_pages(self) -> None:
        """Do nothing."""

    def next_data(self, position: Position) -> Position:
        """The next position, from this one on, that may not be in a hole."""
        if self.path in self._disk.layers:
            return Position(min(position, self.size()))
        return self._below().next_data(position)

    def close(self) -> bool:
        if self._base is not None:
            self._base.close()
            self._base = None
        return True

    def _layer(self) -> _Layer:
        layers = self._disk.layers
        layer = layers.get(self.path)
        if layer is None:
            self._disk.changed = True
            layer = layers[self.path] = _Layer(self._below().size())
        return layer

    def _page(self, layer: _Layer, number: int) -> bytes:
        """One page, with zeros after the file's end."""
        found = layer.pages.get(number)
        if found is not None:
            return bytes(found)
        count = min(layer.base_end - number * PAGE, PAGE)
        if count <= 0:
            return _ZEROS
        return self._below().pread(count, Position(number * PAGE)).ljust(PAGE, b"\0")

    def _below(self) -> DiskFile:
        if self._base is None:
            self._base = self._disk.below_at(self.path)
        return self._base


class OverlayDisk:
    """Files and folders; see `disk.Disk` for the contract.

    Args:
      below: the disk that is read.

    Attributes:
      changed: whether anything was written, created or removed.
      layers: the changes, by path; for the overlay's files.
    """

    threaded = False

    def __init__(self, below: Disk) -> None:
        self.below = below
        self.changed = False
        self.layers: dict[str, _Layer] = {}
        self._folders: set[str] = set()
        self._removed: set[str] = set()

    def open(self, path: str, *, create: bool = False, private: bool = False) -> DiskFile:
        """Open for reading and writing."""
        if path not in self.layers and not (self._shows(path) and self.below.exists(path)):
            if not create:
                raise StoreIOError(path, "No such file or directory")
            self.changed = True
            self.layers[path] = _Layer(0)
        return OverlayFile(self, path)

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return (
            path in self.layers
            or self.is_folder(path)
            or (self._shows(path) and self.below.exists(path))
        )

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        folder = folder.rstrip("/")
        found = {name for name in self.below.list(folder) if self._shows(f"{folder}/{name}")}
        prefix = folder + "/"
        for path in (*self.layers, *self._folders):
            if path.startswith(prefix):
                found.add(path[len(prefix) :].split("/", 1)[0])
        return sorted(found)

    def is_folder(self, path: str) -> bool:
        path = path.rstrip("/")
        if path in self._folders or any(name.startswith(f"{path}/") for name in self.layers):
            return True
        return self._shows(path) and self.below.is_folder(path)

    def is_private(self, path: str) -> bool:
        """Whether there is a file that only its owner may read, or that is in memory."""
        if path in self.layers:
            return True
        return self._shows(path) and self.below.is_private(path)

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        if not self.is_folder(path):
            self.changed = True
            self._folders.add(path.rstrip("/"))

    def rename(self, source: str, target: str) -> None:
        """Rename a file, replacing an existing target; it is copied."""
        data = self.open(source).pread(self.open(source).size(), START)
        self.unlink(source)
        self.unlink(target)
        self.open(target, create=True).pwrite(data, START)

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        self.changed = True
        self.layers.pop(path, None)
        self._removed.add(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its contents; a missing one is fine."""
        self.changed = True
        path = path.rstrip("/")
        for name in [name for name in self.layers if name.startswith(f"{path}/")]:
            del self.layers[name]
        self._folders = {
            name for name in self._folders if name != path and not name.startswith(f"{path}/")
        }
        self._removed.add(path)

    def sync_folder(self, path: str) -> None:
        """Do nothing."""

    def sync_together(self, paths: Sequence[str]) -> bool:
        """Do nothing."""
        return False

    def lock(self, path: str) -> None:
        """The disk below is locked, not this one."""

    def hold_lock(self, path: str) -> bool:
        """The disk below is locked, not this one."""
        return False

    def unlock(self, path: str) -> None:
        """The disk below is unlocked, not this one."""

    def unwritable_below(self, folder: str) -> StoreIOError | None:
        """None: the disk below is only read."""
        return None

    def space(self, path: str) -> Space:
        """Room on the partition below."""
        return self.below.space(path)

    def used_bytes(self, folder: str) -> int:
        """Bytes taken below."""
        return self.below.used_bytes(folder)

    def below_at(self, path: str) -> DiskFile:
        """The open file below; for the overlay's files.

        Raises:
          StoreIOError: it does not exist, or was removed in the overlay.
        """
        if not self._shows(path):
            raise StoreIOError(path, "the file was removed while open")
        return self.below.open(path)

    def _shows(self, path: str) -> bool:
        """Whether neither the path below nor a folder above it was removed."""
        while path:
            if path in self._removed:
                return False
            path = path.rpartition("/")[0]
        return True
