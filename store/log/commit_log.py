"""The commit log: every message of the broker, one after the other, in files of one size.

Java counterparts: store/CommitLog.java and MappedFileQueue.java of 5.3.3. Layout in
docs/formats/commit_log.md. A file is named by the physical offset of its first byte; a record never
spans two files: when it does not fit (8 bytes must be left after it) a blank fills the rest.

Files are preallocated, written with pwrite and read through read-only maps. This module manages the
files; writing/message_appender.py encodes the records.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from threading import Lock

from ...disk.errors import CorruptRecordError, StoreIOError
from ...disk.numbered import numbered
from ...disk.os_disk import Disk, DiskFile
from ...disk.position import START, Position
from ...remoting.message_codec import MAGIC_BLANK, RECORD_PREFIX
from .log_bytes import CHUNK, all_zero, chunks
from .log_files import LogFile, LogFilePool, open_count_max

ZEROS_CHUNK = 1024 * 1024
_ZEROS = bytes(ZEROS_CHUNK)
WARM_SYNC_CHUNKS = 16
"""Chunks of zeros between two fsyncs while a file is warmed: other writers wait 10 ms at most."""
SERVED_BYTES_MAX = 32 * 1024 * 1024
"""Bytes served from maps after which the mapped pages are dropped. They count as this process's
memory though they belong to the page cache; reading one again costs a soft fault."""

FAULT_SIZE = 64 * 1024
"""Bytes that Linux maps around a byte that is read: what a look at one record counts as served."""

_SYS_FLAG = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")


def file_name(base: int) -> str:
    """A commit log file's name: the physical offset of its first byte, 20 digits."""
    return f"{base:020d}"


def zeros_left(size: int) -> int:
    """Bytes of zeros that always lie ahead where `size` are written at once: an eighth."""
    return size // 8


class CommitLog:
    """The files of the log. Owned by the store's task except where a method says otherwise.

    Args:
      folder: their folder.
      file_size: bytes of each.
      preallocates: reserve all blocks of a file when it is made.

    Attributes:
      files: by base, oldest first; each is opened when it is used (log_files.py).
      unsynced: bases of the files written to since `take_unsynced`.
      prepared_base: of the file made ahead; -1: none.
      unfinished_path: the file that was being created when the process died; "": none.
    """

    def __init__(
        self, disk: Disk, folder: str, file_size: int, *, preallocates: bool = True
    ) -> None:
        self.disk = disk
        self.folder = folder
        self.file_size = file_size
        self.files: dict[int, LogFile] = {}
        self.unsynced: set[int] = set()
        self.prepared_base = -1
        self.unfinished_path = ""
        self._zeroed_end = 0
        self._is_made_in_place = False
        self._preallocates = preallocates
        self._making = Lock()
        self._pool = LogFilePool(disk, open_count_max(file_size), self._must_stay_open)
        self._open = self._pool.open
        self._views = self._pool.views
        self._served = 0

    def load(self) -> None:
        """Find all files; nothing is changed.

        A last file that was being created when the process died (shorter, all zero) is left out,
        see `remove_unfinished`. A file that is missing between others is absent from `files`.

        Raises:
          CorruptRecordError: a file has another size than configured.
          StoreIOError: the folder or a file could not be read.
        """
        paths = numbered(self.disk, self.folder, warns=True)
        newest = max(paths, default=0)
        for base, path in paths.items():
            file = self.disk.open(path)
            size = file.size()
            if size != self.file_size:
                # Made but never used. One with bytes in it is damage, whatever its place.
                if base == newest and size < self.file_size and is_zero(file, START, size):
                    file.close()
                    self.unfinished_path = path
                    continue
                file.close()
                raise CorruptRecordError(
                    path,
                    base,
                    f"the file is {size} bytes long and not {self.file_size}; set "
                    "mappedFileSizeCommitLog to the size this log was written with. If that is "
                    "the right size, the file is damaged: restore it from a replica or a backup, "
                    "or run `trocket store repair`",
                )
            file.close()
            if base % self.file_size:
                raise CorruptRecordError(
                    path,
                    base,
                    f"no file of {self.file_size} bytes begins at this offset; set "
                    "mappedFileSizeCommitLog to the size this log was written with",
                )
            self._take_in(base)

    def use(self, bases: Iterable[int]) -> None:
        """Add files for reading, unchecked: they may be short, and others missing.

        Args:
          bases: ascending.
        """
        for base in bases:
            self._take_in(base)

    def remove_unfinished(self) -> None:
        """Remove the file that was being created when the process died.

        Raises:
          StoreIOError: it could not be removed.
        """
        if self.unfinished_path:
            self.disk.unlink(self.unfinished_path)
            self.unfinished_path = ""

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest file; 0 if there is none."""
        return next(iter(self.files), 0)

    @property
    def end_of_files(self) -> int:
        """Physical offset at which the newest file ends; 0 if there is none."""
        return next(reversed(self.files)) + self.file_size if self.files else 0

    def create(self, base: int) -> None:
        """Create the file of this base with all its bytes allocated; `adopt` adds it to the log.

        Blocks for as long as the disk needs; may run in a worker thread.

        Raises:
          StoreIOError: no room, or not writable; nothing is left behind.
        """
        with self._making:
            if base not in self.files:
                self._create(base)

    def _create(self, base: int) -> None:
        path = self.path_of(base)
        self.disk.make_folder(self.folder)
        if self._is_made_in_place or not self._made_aside(path):
            self._make(self.disk.open(path, create=True))
        try:
            self.disk.sync_folder(self.folder)
        except StoreIOError:
            self.disk.unlink(path)
            raise

    def _made_aside(self, path: str) -> bool:
        """Create a file under another name, and rename it when it has its size."""
        name = f"{self.folder}.new"
        try:
            self.disk.unlink(name)
            file = self.disk.open(name, create=True)
        except StoreIOError:  # the parent folder is not writable
            return False
        # A kill before the rename must not leave a file that is too short under the log's name:
        # Apache's 4.x does not start with one.
        self._make(file)
        try:
            self.disk.rename(name, path)
        except StoreIOError:  # the folder is a separate file system
            self._is_made_in_place = True
            self.disk.unlink(name)
            return False
        return True

    def _make(self, file: DiskFile) -> None:
        """Give a new file its size, and close it."""
        try:
            if self._preallocates:
                file.allocate(self.file_size)
            else:
                file.resize(self.file_size)
            file.sync()  # a power cut must not leave a short file before a whole one
        except StoreIOError:
            file.close()
            self.disk.unlink(file.path)
            raise
        file.close()

    def adopt(self, base: int) -> None:
        """Open a file that `create` made.

        Raises:
          StoreIOError: it could not be opened.
        """
        with self._making:
            if base not in self.files:
                self._pool.use(base, self.path_of(base))
                self._take_in(base)

    def warm(self, base: int) -> None:
        """Fill the prepared file with zeros, until it is adopted; from a worker thread.

        `adopt` waits for the chunk that is being written, and none is written after it: zeros
        never overwrite a message.

        Raises:
          StoreIOError: it could not be written; it is usable nevertheless.
        """
        file = self.disk.open(self.path_of(base))
        try:
            for number, position in enumerate(range(0, self.file_size, ZEROS_CHUNK), 1):
                with self._making:
                    if base in self.files or self.prepared_base != base:
                        return
                    file.pwrite(_ZEROS[: self.file_size - position], Position(position))
                if number % WARM_SYNC_CHUNKS == 0:
                    file.sync()
            file.sync()
        finally:
            file.close()

    def _take_in(self, base: int) -> None:
        self.files[base] = LogFile(self.path_of(base), base, self._pool)

    def _must_stay_open(self, base: int) -> bool:
        file = self.files.get(base)
        return base in self.unsynced or (file is not None and bool(file.syncs))

    def write(self, physical_offset: int, data: bytes | memoryview) -> None:
        """Write within one file.

        Raises:
          StoreIOError: it could not be written.
        """
        base = physical_offset - physical_offset % self.file_size
        self.unsynced.add(base)
        file = self._open.get(base) or self._pool.use(base, self.files[base].path)
        file.pwrite(data, Position(physical_offset - base))

    def zero_ahead(self, end: int, size: int) -> None:
        """Write zeros behind the log's end, where there are too few.

        The next fsyncs are then of overwritten bytes, and take half as long as those of blocks that
        were only reserved.

        Args:
          end: of the log.
          size: bytes to write at once, within one file; `zeros_left` of them always lie ahead.

        Raises:
          StoreIOError: they could not be written; no message is lost by that.
        """
        if end + zeros_left(size) <= self._zeroed_end:
            return
        start = max(end, self._zeroed_end)
        base = start - start % self.file_size
        if base in self.files:  # otherwise the next file does not exist yet
            stop = min(start + size, base + self.file_size)
            self.write(start, bytes(stop - start))
            self._zeroed_end = stop

    def take_unsynced(self) -> list[DiskFile]:
        """The files written to since the last call, oldest first; the caller syncs each once."""
        files = [self.files[base] for base in sorted(self.unsynced)]
        for file in files:
            file.syncs.append(None)
        self.unsynced.clear()
        return [*files]

    def put_back_unsynced(self, bases: Collection[int]) -> None:
        """Undo `take_unsynced` for files whose sync was not started."""
        for base in bases:
            file = self.files.get(base)
            if file is not None:  # otherwise retention deleted it meanwhile
                self.unsynced.add(base)
                if file.syncs:
                    file.syncs.pop()

    def view(self, base: int) -> memoryview | None:
        """The read-only map of one file; None when there is no such file."""
        view = self._views.get(base)
        if view is None:
            file = self.files.get(base)
            if file is None:
                return None
            view = file.map()
        return view

    def read(self, physical_offset: int, size: int) -> memoryview | None:
        """A slice of one file's map; None when the range is not within one existing file."""
        position = physical_offset % self.file_size
        if size < 0 or position + size > self.file_size:
            return None
        view = self.view(physical_offset - position)
        return None if view is None else view[position : position + size]

    @property
    def views(self) -> Mapping[int, memoryview]:
        """The maps of files that were read, by their bases; always the same object."""
        return self._views

    def served(self, size: int) -> None:
        """Count bytes that were served, and drop mapped pages from time to time."""
        self._served += size
        if self._served > SERVED_BYTES_MAX:
            self._served = 0
            self._pool.drop_pages()

    def store_timestamp_ms(self, physical_offset: int) -> int:
        """Store timestamp of the record at an offset; -1 if there is none.

        The caller guarantees that a record starts there.
        """
        self.served(FAULT_SIZE)
        head = self.read(physical_offset, 80)
        if head is None:
            head = self.read(physical_offset, 68)
            if head is None:
                return -1
        (sys_flag,) = _SYS_FLAG.unpack_from(head, 36)
        position = 68 if sys_flag & 0x10 else 56
        if position + 8 > len(head):
            return -1
        return int(_TIMESTAMP.unpack_from(head, position)[0])

    def zero(self, physical_offset: int, end: int) -> None:
        """Overwrite [physical_offset, end) with zeros and sync, so that the old bytes never return.

        Raises:
          StoreIOError: it could not be written or synced.
        """
        while physical_offset < end:
            base = physical_offset - physical_offset % self.file_size
            stop = min(end, base + self.file_size)
            file = self.files[base]
            for position in range(physical_offset - base, stop - base, ZEROS_CHUNK):
                file.pwrite(bytes(min(ZEROS_CHUNK, stop - base - position)), Position(position))
            file.sync()
            physical_offset = stop

    def write_again(self, physical_offset: int) -> None:
        """Rewrite the bytes from an offset on unchanged, so that the next sync covers them.

        Raises:
          StoreIOError: it could not be read or written.
        """
        for offset, chunk in chunks(self, physical_offset):
            position = Position(offset % self.file_size)
            self.files[offset - position].pwrite(chunk, position)

    def remove_from(self, base: int) -> None:
        """Remove the files from this base on, the newest first, so that a crash leaves no gap.

        Raises:
          StoreIOError: one could not be removed.
        """
        if self.prepared_base >= base and self.prepared_base not in self.files:
            path, self.prepared_base = self.path_of(self.prepared_base), -1
            self.disk.unlink(path)
        self._zeroed_end = 0
        for found in sorted([found for found in self.files if found >= base], reverse=True):
            self._forget(found)
            self.disk.unlink(self.path_of(found))

    def detach(self, base: int) -> str:
        """Remove the oldest file from the log, but not from the disk. Slices of it stay valid.

        Returns: its path, for the caller to unlink, also in a worker thread; call `reattach` if
          that fails.
        """
        assert base == self.min_offset, f"{base} is not the oldest file"
        assert len(self.files) > 1, "the newest file is never detached"
        self._forget(base)
        return self.path_of(base)

    def reattach(self, base: int) -> None:
        """Add a detached file again that could not be unlinked."""
        newer = self.files
        self.files = {}
        self._take_in(base)
        self.files.update(newer)

    def _forget(self, base: int) -> None:
        self._pool.close(base)
        self.unsynced.discard(base)
        del self.files[base]

    def close(self) -> None:
        """Close all files. A slice that is still referenced keeps its map."""
        self._pool.close_all()
        self.files.clear()

    def path_of(self, base: int) -> str:
        """The path of the file that begins at a physical offset."""
        return f"{self.folder}/{file_name(base)}"

    def path_at(self, physical_offset: int) -> str:
        """The path of the file that holds, or would hold, a byte."""
        return self.path_of(physical_offset - physical_offset % self.file_size)


def is_zero(file: DiskFile, start: Position, end: int) -> bool:
    """Whether all bytes in [start, end) of a file are 0."""
    position = file.next_data(start)
    while position < end:
        chunk = file.pread(min(CHUNK, end - position), position)
        if not chunk or not all_zero(chunk):
            return not chunk
        position = file.next_data(Position(position + len(chunk)))
    return True


def blank(remaining: int) -> bytes:
    """The filler record for the last `remaining` bytes of a file."""
    return RECORD_PREFIX.pack(remaining, MAGIC_BLANK)
