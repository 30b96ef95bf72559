"""Sparse copies of a store, or of a file of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...disk.errors import StoreIOError
from ...disk.os_disk import Disk
from ...disk.position import START, Position

CHUNK = 1024 * 1024
BLOCK = 4096
"""Blocks of zeros are left out."""

SPARE_BYTES = 64 * 1024 * 1024
"""Space that must stay free besides a copy."""

Progress = Callable[[int, int], None]


def check_room(disk: Disk, folder: str, needed: int) -> None:
    """Refuse when a partition has not enough room.

    Args:
      folder: on that partition; it need not exist.
      needed: bytes.

    Raises:
      StoreIOError: there is not enough, or the free space cannot be read.
    """
    while not disk.exists(folder):
        folder = folder.rpartition("/")[0] or "/"
    free = disk.space(folder).free
    if free < needed + SPARE_BYTES:
        raise StoreIOError(
            folder,
            f"{needed + SPARE_BYTES:,} bytes are needed there and {free:,} are free: free some, or "
            "choose a folder on another disk",
        )


def copy_file(
    source_disk: Disk,
    source: str,
    disk: Disk,
    target: str,
    copied: Callable[[int], None] | None = None,
) -> None:
    """Copy one file and sync it.

    Args:
      copied: called with the bytes of each piece.

    Raises:
      StoreIOError: a file cannot be read or written.
    """
    disk.make_folder(target.rpartition("/")[0])
    reader = source_disk.open(source)
    try:
        writer = disk.open(target, create=True)
        try:
            size = reader.size()
            writer.resize(size)
            # Holes stay holes: log files are preallocated, so a copy could be many times as large.
            position = reader.next_data(START)
            while position < size:
                chunk = reader.pread(CHUNK, position)
                if not chunk:
                    break
                for start, block in _blocks(chunk):
                    writer.pwrite(block, Position(position + start))
                if copied is not None:
                    copied(len(chunk))
                position = reader.next_data(Position(position + len(chunk)))
            writer.sync()
        finally:
            writer.close()
    finally:
        reader.close()


def _blocks(chunk: bytes) -> Iterable[tuple[int, bytes]]:
    """The blocks of a chunk that are not all zeros, adjacent ones joined."""
    if chunk.count(0) != len(chunk):
        start = 0
        while start < len(chunk):
            end = start
            while end < len(chunk) and chunk[end : end + BLOCK].strip(b"\0"):
                end += BLOCK
            if end > start:
                yield start, chunk[start:end]
            start = end + BLOCK


def files_below(disk: Disk, folder: str) -> Iterable[str]:
    """The paths of all files in a folder and in folders in it, relative to it.

    Raises:
      StoreIOError: a folder cannot be read.
    """
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if disk.is_folder(path):
            for below in files_below(disk, path):
                yield f"{name}/{below}"
        else:
            yield name


def copy_folder(
    source_disk: Disk,
    source: str,
    disk: Disk,
    target: str,
    *,
    leave_out: frozenset[str] = frozenset(),
    copied: Callable[[int], None] | None = None,
) -> None:
    """Copy all files of a folder, and of folders in it, and sync them.

    Args:
      leave_out: paths relative to the folder.

    Raises:
      StoreIOError: something cannot be read or written.
    """
    disk.make_folder(target)
    folders = {target}
    for path in files_below(source_disk, source):
        if path in leave_out:
            continue
        to = f"{target}/{path}"
        copy_file(source_disk, f"{source}/{path}", disk, to, copied)
        folders.add(to.rpartition("/")[0])
    for folder in sorted(folders):
        disk.sync_folder(folder)
