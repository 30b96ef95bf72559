"""Atomic reading and writing of config/*.json, with checksums and `.bak` files.

Java counterpart: common/ConfigManager.java and MixAll.string2File of 5.3.3, which write in place; a
power cut may tear such a file. Here: temporary file, fsync, the old one becomes `.bak`, rename,
fsync of the folder.

A text ends with a seal: a newline and 32 blanks, the CRC32 of the text before the newline, highest
bit first; a space is 0, a tab is 1. JSON readers, Apache's among them, ignore it. A file without a
seal was written by Apache's broker, or by hand; one with a wrong seal has changed on the disk. The
CRC32 of a `.bak` continues over ".bak": in the file's place it is valid, but as an older text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from ..remoting import fastjson
from ..remoting.errors import RemoteProtocolError
from .errors import CorruptRecordError
from .os_disk import Disk
from .position import START

logger = logging.getLogger(__name__)

SEAL_SIZE = 33
_SPARE = b".bak"
_BITS = {"0": " ", "1": "\t"}

_BARE_KEY: Final = re.compile(rb"([{,]\s*)(-?[0-9]+)\s*:")

T = TypeVar("T")


def sealed(text: bytes, *, as_spare: bool = False) -> bytes:
    """A text with its seal.

    Args:
      text: JSON, with or without a newline at its end.
      as_spare: for a `.bak`.
    """
    checksum = crc32(text)
    if as_spare:
        checksum = crc32(_SPARE, checksum)
    bits = f"{checksum:032b}"
    return text + b"\n" + bits.translate({ord(bit): blank for bit, blank in _BITS.items()}).encode()


def unsealed(data: bytes) -> tuple[bytes, bool | None]:
    """The text of a file, and whether its seal is right; None: it has no seal."""
    text, seal = data[:-SEAL_SIZE], data[-SEAL_SIZE:]
    if len(seal) < SEAL_SIZE or seal[:1] != b"\n" or seal[1:].strip(b" \t"):
        return data, None
    return text, data in (sealed(text), sealed(text, as_spare=True))


def parse(text: bytes) -> dict[str, Any]:
    """An object as any version of RocketMQ wrote it; bare keys become strings.

    Files have no limit of size, unlike what comes from the wire: bare keys are quoted first, so
    that the fast parser reads them.

    Raises: ValueError: it is not one object of fastjson's.
    """
    try:
        tree = msgspec.json.decode(_BARE_KEY.sub(rb'\1"\2":', text))
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            tree = fastjson.loads(text)
        except RemoteProtocolError as error:
            raise ValueError(str(error)) from error
    if not isinstance(tree, dict):
        raise ValueError(f"it holds a {type(tree).__name__}, not an object")
    return tree


def save_json(disk: Disk, path: str, text: bytes) -> None:
    """Replace the file's text, with a seal; the old text is kept as `path.bak`.

    Raises:
      StoreIOError: it could not be written; the old file is unchanged.
    """
    save_text(disk, path, sealed(text))


def save_secret_json(disk: Disk, path: str, text: bytes) -> None:
    """`save_json` with mode 0600, also for the `.bak`: for files that hold secrets.

    Raises:
      StoreIOError: it could not be written; the old file is unchanged.
    """
    save_text(disk, path, sealed(text), private=True)


def save_text(disk: Disk, path: str, text: bytes, *, private: bool = False) -> None:
    """`save_json` without a seal: for files that people edit.

    Args:
      private: the files get mode 0600.

    Raises:
      StoreIOError: it could not be written; the old file is unchanged.
    """
    folder = path.rpartition("/")[0]
    is_new = not disk.exists(folder)
    disk.make_folder(folder)
    temporary = f"{path}.tmp"
    disk.unlink(temporary)
    _write(disk, temporary, text, private=private)
    if disk.exists(path):
        _keep_old(disk, path, private=private)
    disk.rename(temporary, path)
    disk.sync_folder(folder)
    if is_new:
        disk.sync_folder(folder.rpartition("/")[0])


def _keep_old(disk: Disk, path: str, *, private: bool) -> None:
    """Copy a file that is about to be replaced to `.bak`."""
    old = read_bytes(disk, path)
    text, is_right = unsealed(old)
    if is_right:
        old = sealed(text, as_spare=True)
    # Only a file with a correct seal replaces a `.bak`; a damaged one is kept beside it.
    target = f"{path}.damaged" if is_right is False else f"{path}.bak"
    if is_right is None and disk.exists(target):
        return
    # A copy and not a rename, so that `path` exists at every moment, old or new.
    write_copy(disk, target, old, private=private)


def write_copy(disk: Disk, path: str, data: bytes, *, private: bool) -> None:
    """Write a file whole, in the place of an old one.

    Raises:
      StoreIOError: it could not be written; an old one is unchanged.
    """
    temporary = f"{path}.tmp"
    disk.unlink(temporary)
    _write(disk, temporary, data, private=private)
    disk.rename(temporary, path)


def load_newest(disk: Disk, path: str, parse: Callable[[bytes], T]) -> tuple[T, bool] | None:
    """Read the file, or its `.bak` when the file is missing, empty, damaged or does not parse.

    Args:
      parse: turns the text into a value; raises ValueError for text it cannot read.

    Returns: the value, and whether it is an older text, from the `.bak` or a `.bak` in the file's
      place, so that the file should be written again. None when there is neither file.

    Raises:
      CorruptRecordError: there are files but none can be used. Starting without them would lose
        their contents (consumer offsets would start at 0), so this is refused.
      StoreIOError: a file could not be read.
    """
    problems = []
    for candidate in (path, f"{path}.bak"):
        if not disk.exists(candidate):
            if candidate == path and disk.exists(f"{path}.bak"):
                # Not removed by this program, which renames a new text over the old one.
                logger.error(
                    "%(file)s is missing; its .bak, which is older, is used instead", {"file": path}
                )
            continue
        data = read_bytes(disk, candidate)
        text, is_right = unsealed(data)
        try:
            if is_right is False:
                raise ValueError(
                    "it was changed: the checksum in its last line, 32 blanks, is wrong (if "
                    "you edited it by hand, remove that line)"
                )
            if not text.strip(b"\0 \r\n\t"):
                raise ValueError("the file is empty")
            value = parse(text)
        except ValueError as error:
            problems.append(f"{candidate}: {error}")
            logger.error("%(file)s cannot be used: %(error)s", {"file": candidate, "error": error})
        else:
            if problems:
                logger.error("%(file)s is used instead, which is older", {"file": candidate})
            was_spare = is_right is True and data == sealed(text, as_spare=True)
            if was_spare and candidate == path:
                logger.warning("%(file)s has older content: it is a renamed .bak", {"file": path})
            return value, was_spare or candidate != path
    if not problems:
        return None
    raise CorruptRecordError(
        path,
        0,
        f"neither it nor its .bak can be used ({'; '.join(problems)}); restore one or remove both",
    )


def _write(disk: Disk, path: str, text: bytes, *, private: bool) -> None:
    file = disk.open(path, create=True, private=private)
    try:
        file.pwrite(text, START)
        file.sync()
    finally:
        file.close()


def read_bytes(disk: Disk, path: str) -> bytes:
    """The whole of a file. Raises: StoreIOError: it could not be read."""
    file = disk.open(path)
    try:
        return file.pread(file.size(), START)
    finally:
        file.close()
