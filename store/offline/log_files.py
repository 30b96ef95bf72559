"""The commit log's files as they lie there: none needs to be whole, and none is ever changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_codec import RECORD_PREFIX, RECORD_SIZE_MIN, decode_record
from ..disk.os_disk import Disk, DiskFile
from ..log.commit_log import file_name

OPEN_FILES_MAX = 4
"""The walk has one open, looking records up a few more."""

RECORD_SIZE_MAX = 128 * 1024 * 1024
"""A size beyond this is a damaged one; RocketMQ's own limit for a body is 4 MiB."""

CHUNK = 1024 * 1024


def numbered(disk: Disk, folder: str) -> dict[int, str]:
    """The files of a folder whose names are numbers: number to path, rising."""
    found = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if name.isascii() and name.isdigit() and not disk.is_folder(path):
            found[int(name)] = path
    return dict(sorted(found.items()))


def size_of(disk: Disk, path: str) -> int:
    """Bytes of a file.

    Raises:
      StoreIOError: it cannot be opened.
    """
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


class LogFiles:
    """The files of a commit log.

    Args:
      disk: where they lie.
      folder: their folder.
      file_size: bytes that each should have; 0 when there is no file.
      sizes: bytes that each has, by the physical offset of its first byte.
    """

    def __init__(self, disk: Disk, folder: str, file_size: int, sizes: dict[int, int]) -> None:
        self.disk = disk
        self.folder = folder
        self.file_size = file_size
        self.sizes = dict(sorted(sizes.items()))
        self._open: OrderedDict[int, DiskFile] = OrderedDict()

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest file; 0 when there is none."""
        return next(iter(self.sizes), 0)

    @property
    def end_of_files(self) -> int:
        """Physical offset at which the newest file would end; 0 when there is none."""
        return next(reversed(self.sizes)) + self.file_size if self.sizes else 0

    def path(self, physical_offset: int) -> str:
        """The path of the file that holds, or would hold, a byte."""
        return f"{self.folder}/{file_name(self.base(physical_offset))}"

    def base(self, physical_offset: int) -> int:
        """Where the file that holds a byte begins."""
        return physical_offset - physical_offset % self.file_size if self.file_size else 0

    def file(self, base: int) -> DiskFile | None:
        """The open file that begins at `base`; None when there is none.

        Raises:
          StoreIOError: it cannot be opened.
        """
        file = self._open.get(base)
        if file is None:
            if base not in self.sizes:
                return None
            file = self._open[base] = self.disk.open(f"{self.folder}/{file_name(base)}")
            if len(self._open) > OPEN_FILES_MAX:
                self._open.popitem(last=False)[1].close()
        else:
            self._open.move_to_end(base)
        return file

    def read(self, physical_offset: int, size: int) -> bytes:
        """Up to `size` bytes of one file; fewer where it ends or is not there.

        Raises:
          StoreIOError: it cannot be read.
        """
        base = self.base(physical_offset)
        file = self.file(base)
        if file is None or size <= 0:
            return b""
        return file.pread(
            min(size, base + self.file_size - physical_offset), physical_offset - base
        )

    def record_at(self, physical_offset: int, *, read_body: bool = False) -> MessageExt | None:
        """The record at an offset that may be anything; None when no whole one starts there.

        Raises:
          StoreIOError: a file cannot be read.
        """
        if physical_offset < 0 or not self.file_size:
            return None
        head = self.read(physical_offset, RECORD_PREFIX.size)
        if len(head) < RECORD_PREFIX.size:
            return None
        size = RECORD_PREFIX.unpack(head)[0]
        if not RECORD_SIZE_MIN <= size <= RECORD_SIZE_MAX:
            return None
        try:
            record = decode_record(self.read(physical_offset, size), 0, read_body=read_body)
        except RemoteProtocolError:
            return None
        return record if record.physical_offset == physical_offset else None

    def last_nonzero(self, physical_offset: int) -> int:
        """Where the bytes that are not zero end, from an offset on; that offset if all are zero.

        Raises:
          StoreIOError: a file cannot be read.
        """
        end = physical_offset
        for offset, chunk in self.chunks(physical_offset):
            stripped = chunk.rstrip(b"\0")
            if stripped:
                end = max(end, offset + len(stripped))
        return end

    def chunks(self, physical_offset: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
        """What was ever written from an offset on: (physical offset, up to `CHUNK` bytes).

        Args:
          overlap: bytes at the end of a chunk with which the next one of that file begins.

        Raises:
          StoreIOError: a file cannot be read.
        """
        for base in self.sizes:
            if base + self.file_size <= physical_offset:
                continue
            file = self.file(base)
            if file is None:
                continue
            start = max(physical_offset - base, 0)
            position = start
            while True:
                # What was copied by something that leaves out blocks of zeros may begin just
                # before the block.
                position = max(file.next_data(position) - overlap, position)
                if position >= self.file_size:
                    break
                chunk = self.read(base + position, CHUNK)
                if not chunk:
                    break
                yield base + position, chunk
                if len(chunk) <= overlap:
                    break
                position += len(chunk) - overlap

    def close(self) -> None:
        """Close all."""
        for file in self._open.values():
            file.close()
        self._open.clear()
