"""config/*.json: written so that a crash leaves the old text or the new one, never half of one.

Java counterpart: common/ConfigManager.java and MixAll.string2File of 5.3.3, which write in place;
files torn by a power cut were the result. Here: temporary file, fsync, the old one becomes
`.bak`, rename, fsync of the folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .disk import Disk
from .errors import CorruptRecordError

T = TypeVar("T")


def save_json(disk: Disk, path: str, text: bytes) -> None:
    """Replace the file's text; what it held before is kept as `path.bak`.

    Raises:
      StoreIOError: it could not be written; the old text still stands.
    """
    folder = path.rpartition("/")[0]
    disk.make_folder(folder)
    temporary = f"{path}.tmp"
    disk.unlink(temporary)
    _write(disk, temporary, text)
    if disk.exists(path):
        # A copy and not a rename: at every moment `path` is there, old or new.
        old = _read(disk, path)
        spare = f"{path}.bak.tmp"
        disk.unlink(spare)
        _write(disk, spare, old)
        disk.rename(spare, f"{path}.bak")
    disk.rename(temporary, path)
    disk.sync_folder(folder)


def load_json(disk: Disk, path: str, parse: Callable[[bytes], T]) -> T | None:
    """Read the file, or its `.bak` when the file is missing, empty or does not parse.

    Args:
      parse: turns the text into a value; raises ValueError for text it cannot read.

    Returns: None when there is neither file.

    Raises:
      CorruptRecordError: there are files but none parses. Starting from nothing would lose what
        they held (consumer offsets would start at 0), so this is refused.
      StoreIOError: a file could not be read.
    """
    problem: ValueError | None = None
    for candidate in (path, f"{path}.bak"):
        if disk.exists(candidate):
            text = _read(disk, candidate)
            try:
                if text.strip(b"\0 \r\n\t"):
                    return parse(text)
                problem = ValueError("the file is empty")
            except ValueError as error:
                problem = error
    if problem is None:
        return None
    raise CorruptRecordError(
        path, 0, f"neither it nor its .bak can be read ({problem}); restore one or remove both"
    )


def _write(disk: Disk, path: str, text: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        file.pwrite(text, 0)
        file.sync()
    finally:
        file.close()


def _read(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
