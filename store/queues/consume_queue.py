"""Consume queues: the offset in the commit log of each message of one (topic, queue id).

Java counterpart: store/ConsumeQueue.java of 5.3.3. The layout is in docs/formats/consume_queue.md.

A put appends its unit to `tail` in memory; `commit` makes it visible (`max_offset`); a service
writes the tail to the file later (`write`), so a burst costs no system call per queue. Units that a
crash loses are rebuilt from the log.

Offsets:

::

    min_offset <= tail_offset <= max_offset <= committed_offset <= next_offset
      first readable   first unit   visible      written to the     of the next put
                       in memory    end          commit log
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable

from ...disk.errors import CorruptRecordError, StoreIOError
from ...disk.os_disk import Disk, DiskFile
from ...disk.position import START, Position
from ...disk.start_warnings import file_names
from ...native.queue_state import QueueState
from ..format import PRE_BLANK_SIZE, UNIT, UNIT_SIZE

logger = logging.getLogger(__name__)

OPEN_FILES_MAX = 256
"""Queue files kept open at a time, over all queues: a quarter of the usual limit of 1024."""

PAGE_COUNT = 204
"""Units read from a file at a time, 4 KiB of them: a lagging consumer will get the next ones soon,
and reading a page costs the same as reading one unit."""

PAGES_MAX = 256
"""Pages kept, the last one read of each queue: 1 MiB over all queues."""

PRE_BLANK = UNIT.pack(0, PRE_BLANK_SIZE, 0)

ZEROS_CHUNK = 64 * 1024
"""Bytes read, and overwritten if necessary, at a time behind a queue's end."""


class QueueSizeError(CorruptRecordError):
    """The size of a queue file differs from the configured one."""


def wipe(file: DiskFile, position: Position) -> bool:
    """Overwrite a file with zeros from a position on; chunks of zeros are not written again.

    Returns: whether anything was written.

    Raises:
      StoreIOError: the file could not be read or written.
    """
    wrote = False
    at = file.next_data(position)
    while chunk := file.pread(ZEROS_CHUNK, at):
        if chunk.count(0) != len(chunk):
            file.pwrite(bytes(len(chunk)), at)
            wrote = True
        at = file.next_data(Position(at + len(chunk)))
    return wrote


def halve(low: int, high: int, is_before: Callable[[int], bool]) -> int:
    """The first number in [low, high) for which `is_before` is false; `high` when there is none."""
    return low + bisect_left(range(low, high), True, key=lambda number: not is_before(number))


class QueueFiles:
    """An LRU pool of the open files of all queues.

    Args:
      file_size: bytes of each, a multiple of 20.
      changed: see the attribute; several pools may share one. None: a new one.

    Attributes:
      unsynced: paths of files written to, and of folders with new entries, since their last sync.
      changed: the queues whose beginning or end changed since `ConsumeQueueStore.take_changed`, in
        the order of their first change. Code that changes one must add it, as a checkpoint visits
        no other.
    """

    def __init__(
        self, disk: Disk, file_size: int, changed: dict[ConsumeQueue, None] | None = None
    ) -> None:
        self.disk = disk
        self.file_size = file_size
        self.changed = changed if changed is not None else {}
        self.unsynced: set[str] = set()
        self._open: OrderedDict[str, DiskFile] = OrderedDict()
        self._pages: dict[tuple[str, int], tuple[int, bytes]] = {}

    def page(self, key: tuple[str, int], queue_offset: int, count: int) -> bytes | None:
        """`count` units of a queue from an offset on; None when they are not in the kept page."""
        page = self._pages.get(key)
        if page is None:
            return None
        start = (queue_offset - page[0]) * UNIT_SIZE
        end = start + count * UNIT_SIZE
        return page[1][start:end] if start >= 0 and end <= len(page[1]) else None

    def keep_page(self, key: tuple[str, int], queue_offset: int, units: bytes) -> None:
        """Keep immutable units that were read from a file for the next reader."""
        self._pages.pop(key, None)
        self._pages[key] = (queue_offset, units)
        if len(self._pages) > PAGES_MAX:
            del self._pages[next(iter(self._pages))]

    def drop_page(self, key: tuple[str, int]) -> None:
        """Drop the page of a queue whose files are about to change."""
        self._pages.pop(key, None)

    def drop_pages(self) -> None:
        self._pages.clear()

    def get(self, path: str, *, create: bool = False) -> DiskFile:
        """The file, opened if necessary.

        Args:
          create: create it at its full size when there is none.

        Raises:
          StoreIOError: it could not be opened.
        """
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        if create and not self.disk.exists(path):
            file = self._create(path)
        else:
            file = self.disk.open(path)
        self._open[path] = file
        if len(self._open) > OPEN_FILES_MAX:
            self._open.popitem(last=False)[1].close()
        return file

    def _create(self, path: str) -> DiskFile:
        folder = path.rpartition("/")[0]
        self.unsynced.add(folder)
        parent = folder
        while parent and not self.disk.exists(parent):
            parent = parent.rpartition("/")[0]
            self.unsynced.add(parent)
        self.disk.make_folder(folder)
        file = self.disk.open(path, create=True)
        try:
            file.resize(self.file_size)
        except StoreIOError:
            file.close()
            self.disk.unlink(path)
            raise
        return file

    def forget(self, folder: str) -> None:
        """Close the files under a folder that is about to be removed."""
        for path in [path for path in self._open if path.startswith(folder + "/")]:
            self._open.pop(path).close()
        self.unsynced = {path for path in self.unsynced if not path.startswith(folder + "/")}

    def remove(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()
        self.unsynced.discard(path)
        self.disk.unlink(path)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()


class ConsumeQueue(QueueState):
    """One queue. Owned by the store's task; not for other threads.

    Args:
      topic: a name that `topic_path` accepted.
      queue_id: >= 0.
      files: the pool of open files.
      topic_field: the record's length-prefixed topic bytes.
      magic: MAGIC_V1 or MAGIC_V2, depending on the topic's length; 0 in a queue whose `append_put`
        must be called for every put, which the fast path of `put_message` does not do.
      unit_size: bytes.

    Attributes, besides those of `QueueState`:
      is_plain: a put may append its unit to `tail` itself, and a get may compare the tags codes in
        the units.
      is_batch: a unit may stand for several messages.
    """

    is_plain = True
    is_batch = False
    _size_key = "mappedFileSizeConsumeQueue"
    _size_error: type[CorruptRecordError] = QueueSizeError

    __slots__ = (
        "file_offsets",
        "files",
        "folder",
        "key",
        "record_overhead",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        *,
        folder: str,
        files: QueueFiles,
        topic_field: bytes,
        magic: int,
        topic_hash: int,
        unit_size: int = UNIT_SIZE,
    ) -> None:
        super().__init__(topic_field, topic_hash, magic, unit_size)
        self.key = (topic, queue_id)
        self.folder = folder
        self.files = files
        self.record_overhead = 88 + len(topic_field) + 2
        self.file_offsets: list[int] = []

    def load(self) -> None:
        """Find the files, and the last unit written into the newest.

        Units are written in order into zeros, so the end is found by binary search. A unit is valid
        when its offset is >= 0 and its size > 0, as in Apache.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: a file has another size than configured, or one is missing between
            two others.
        """
        self._find_files()
        if not self.file_offsets:
            self._set_end(0)
            return
        # A crash may leave files without units: the newest that begins with a unit is the last.
        last = len(self.file_offsets) - 1
        while last > 0 and not self._is_written(self.file_offsets[last] // UNIT_SIZE):
            last -= 1
        base = self.file_offsets[last] // UNIT_SIZE
        end = base + self.files.file_size // UNIT_SIZE
        self._set_end(halve(base, end, self._is_written))

    def _find_files(self) -> None:
        size = self.files.file_size
        self.file_offsets = []
        for name in file_names(self.folder, self.files.disk.list(self.folder)):
            path = f"{self.folder}/{name}"
            found = self.files.get(path).size()
            if found == 0:  # made when the process died
                self.files.remove(path)
                continue
            if found != size:
                what = f"the file is {found} bytes long and not {size}; set {self._size_key} to the"
                also = "remove this folder while the broker is down to have it rebuilt"
                raise self._size_error(path, 0, f"{what} size it was written with, or {also}")
            start = int(name)
            if self.file_offsets and start != self.file_offsets[-1] + size:
                raise CorruptRecordError(path, start, "the queue file before this one is missing")
            self.file_offsets.append(start)

    def physical_end(self) -> int:
        """First byte of the log after the last message of this queue; 0 when it has none."""
        if self.max_offset <= self.min_offset:
            return 0
        physical_offset, size, _ = self.unit_at(self.max_offset - 1)
        return 0 if size == PRE_BLANK_SIZE else physical_offset + size

    def unit_at(self, queue_offset: int) -> tuple[int, int, int]:
        """(physical_offset, size, tags_code) of one message; zeros when there is no unit.

        Raises:
          StoreIOError: the file could not be read.
        """
        data = self.read(queue_offset, 1)
        if len(data) < UNIT_SIZE:
            return (0, 0, 0)
        physical_offset, size, tags_code = UNIT.unpack(data)
        return (physical_offset, size, tags_code)

    def read(self, queue_offset: int, count_max: int) -> bytes:
        """Units from an offset on, at most up to the end of the file that holds the first.

        Args:
          queue_offset: >= 0.
          count_max: most units.

        Returns: whole units; empty when that file does not exist.

        Raises:
          StoreIOError: the file could not be read.
        """
        files = self.files
        units_per_file = files.file_size // UNIT_SIZE
        file_end = (queue_offset // units_per_file + 1) * units_per_file
        end = queue_offset + count_max
        if end > file_end:
            end = file_end
        tail_offset = self.tail_offset
        if queue_offset >= tail_offset:
            start = (queue_offset - tail_offset) * UNIT_SIZE
            return bytes(self.tail[start : (end - tail_offset) * UNIT_SIZE])
        count = (end if end <= tail_offset else tail_offset) - queue_offset
        from_file = files.page(self.key, queue_offset, count)
        if from_file is None:
            base = (file_end - units_per_file) * UNIT_SIZE
            if base not in self.file_offsets:
                return b""
            # Consumers read on: the page serves the next reads without a system call.
            page_end = min(queue_offset + max(count, PAGE_COUNT), file_end, tail_offset)
            page = files.get(self.path_of(base)).pread(
                (page_end - queue_offset) * UNIT_SIZE, Position(queue_offset * UNIT_SIZE - base)
            )
            files.keep_page(self.key, queue_offset, page)
            from_file = page[: count * UNIT_SIZE]
        if end <= tail_offset:
            return from_file
        return from_file + bytes(self.tail[: (end - tail_offset) * UNIT_SIZE])

    def write(self) -> None:
        """Write the visible part of the tail to its files (not synced yet: `files.unsynced`).

        Raises:
          StoreIOError: a file could not be created or written; the tail is kept.
        """
        size = self.files.file_size
        while self.tail_offset < self.max_offset:
            position = self.tail_offset * UNIT_SIZE
            base = position // size * size
            take = min(self.max_offset * UNIT_SIZE, base + size) - position
            path = self.path_of(base)
            new = base not in self.file_offsets
            file = self.files.get(path, create=True)
            if new:
                if not self.file_offsets and position > base:
                    blanks = (position - base) // UNIT_SIZE
                    # A queue that begins within a file: such units stand before it in Apache's
                    # files, too.
                    file.pwrite(PRE_BLANK * blanks, START)
                self.file_offsets.append(base)
            file.pwrite(bytes(self.tail[:take]), Position(position - base))
            self.files.unsynced.add(path)
            # After the write, so that a failed one loses nothing.
            del self.tail[:take]
            self.tail_offset += take // UNIT_SIZE

    def append_put(
        self, physical_offset: int, size: int, tags_code: int, now_ms: int, properties: bytes
    ) -> None:
        """Append the unit of a put, not visible yet.

        Args:
          physical_offset, size, tags_code: the unit's fields.
          now_ms: the record's store timestamp.
        """
        self.append_units(UNIT.pack(physical_offset, size, tags_code), 1)

    def roll_back(self) -> None:
        """Remove the units since the last commit."""
        count = self.next_offset - self.committed_offset
        del self.tail[len(self.tail) - count * UNIT_SIZE :]
        self.next_offset = self.committed_offset

    def stored_tags_code(self, tags_code: int, store_timestamp_ms: int, properties: bytes) -> int:
        """The tags code to write into the unit of a record; may append an extension unit."""
        return tags_code

    def real_tags_code(self, stored: int) -> int | None:
        """The tags code behind a unit's `tags_code` field; None: it is lost.

        Raises:
          StoreIOError: a file could not be read.
        """
        return stored

    def append_recovered(self, queue_offset: int, unit: bytes) -> None:
        """Append a unit during recovery, visible at once.

        Raises:
          CorruptRecordError: units between the end and this one are missing.
        """
        if self.max_offset == 0 and queue_offset > 0:
            self.begin_at(queue_offset)
        if queue_offset != self.max_offset:
            raise CorruptRecordError(
                self.folder,
                UNIT.unpack(unit)[0],
                f"the next record of the log has queue offset {queue_offset}, the queue ends at "
                f"{self.max_offset}; remove this folder while the broker is down to rebuild it",
            )
        self.tail += unit
        self.max_offset = self.committed_offset = self.next_offset = queue_offset + 1
        self.note_change()

    def begin_at(self, queue_offset: int) -> None:
        """Let an empty queue begin with this offset."""
        self._set_end(queue_offset)
        self.min_offset = queue_offset

    def extend_recovered(self, queue_offset: int, units: bytes | bytearray) -> None:
        """Append consecutive units during recovery, visible at once.

        Args:
          queue_offset: of the first.

        Raises:
          CorruptRecordError: units between the end and the first are missing.
        """
        if units:
            first = bytes(units[:UNIT_SIZE])
            self.append_recovered(queue_offset, first)
            self.tail += memoryview(units)[UNIT_SIZE:]
            self.max_offset += len(units) // UNIT_SIZE - 1  # `append_recovered` has noted it
            self.committed_offset = self.next_offset = self.max_offset

    def end_before(self, physical_end: int, end: int | None = None) -> int:
        """Queue offset after the last unit of a message that ends at `physical_end` or before.

        Args:
          end: queue offset after the last unit to consider, visible or not; None: all visible ones.

        Raises:
          StoreIOError: a file could not be read.
        """
        low, high = self.lowest_offset, self.max_offset if end is None else end
        while low < high:
            middle = (low + high) // 2
            physical_offset, size, _ = self.unit_at(middle)
            written = size == PRE_BLANK_SIZE or 0 < size <= physical_end - physical_offset
            if written:
                low = middle + 1
            else:
                high = middle
        return low

    def cut(self, physical_end: int) -> None:
        """Remove units of messages that end after `physical_end`, on disk, too (zeros).

        Raises:
          StoreIOError: a file could not be read or written.
        """
        self.cut_at(self.end_before(physical_end))

    def cut_at(self, queue_offset: int) -> None:
        """Remove all units from a queue offset on, on disk, too (zeros).

        Raises:
          StoreIOError: a file could not be read or written.
        """
        self._zero(queue_offset)
        if queue_offset < self.max_offset:
            self._set_end(queue_offset)

    def _zero(self, queue_offset: int) -> None:
        """Overwrite all units from one on with zeros, visible or not; remove later files."""
        self.files.drop_page(self.key)
        size = self.files.file_size
        position = queue_offset * UNIT_SIZE
        # The newest first, so that a crash leaves no gap.
        for base in reversed(list(self.file_offsets)):
            path = self.path_of(base)
            if base > position or (base == position and base != self.file_offsets[0]):
                self.files.remove(path)
                self.file_offsets.remove(base)
            elif base + size > position and wipe(self.files.get(path), Position(position - base)):
                self.files.unsynced.add(path)

    @property
    def lowest_offset(self) -> int:
        """Queue offset of the first unit in the oldest file, or in the tail without files."""
        return min(self.file_offsets, default=self.tail_offset * UNIT_SIZE) // UNIT_SIZE

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Set `min_offset` to the first unit whose message is still in the log.

        A damaged unit must not hide the units before it: a negative offset counts as being in the
        log, and if the message of the first unit is in the log, no other unit is checked.

        Raises:
          StoreIOError: a file could not be read.
        """
        low, high = self.lowest_offset, self.max_offset
        if low < high:
            physical_offset, size, _ = self.unit_at(low)
            if physical_offset >= min_physical_offset and size != PRE_BLANK_SIZE:
                high = low
        while low < high:
            middle = seen = (low + high) // 2
            physical_offset, size, _ = self.unit_at(seen)
            # On disk a blank fills the space before the queue's first unit; in memory it stands for
            # a message in a hole of the log, and the next unit decides.
            while size == PRE_BLANK_SIZE and self.tail_offset <= seen < high - 1:
                seen += 1
                physical_offset, size, _ = self.unit_at(seen)
            if size == PRE_BLANK_SIZE:
                is_gone = seen < self.tail_offset
            else:
                is_gone = 0 <= physical_offset < min_physical_offset
            if is_gone:
                low = seen + 1
            else:
                high = middle
        if low != self.min_offset:
            self.min_offset = low
            self.note_change()

    def follow_log(self, min_physical_offset: int) -> None:
        """`correct_min_offset`, if the log no longer has the oldest message.

        Raises:
          StoreIOError: a file could not be read.
        """
        if (
            self.min_offset < self.max_offset
            and self.unit_at(self.min_offset)[0] < min_physical_offset
        ):
            self.correct_min_offset(min_physical_offset)

    def delete_expired(self, min_physical_offset: int) -> bool:
        """Remove the oldest file if the log no longer has any message of it.

        The newest file stays: it defines the queue's next offset. One call removes one file; the
        caller syncs the folder before the next, so that a crash leaves no gap.

        Returns: whether a file was removed.

        Raises:
          StoreIOError: a file could not be read or removed.

        Source: RocketMQ 5.3.3 store/MappedFileQueue.java deleteExpiredFileByOffset.
        """
        offsets = self.file_offsets
        if len(offsets) < 2 or not self._is_expired(offsets[0], min_physical_offset):
            return False
        path = self.path_of(offsets[0])
        self.files.remove(path)
        del offsets[0]
        logger.info("%(path)s is deleted: the log begins at %(log_begin)d",
                    {"path": path, "log_begin": min_physical_offset})  # fmt: skip
        return True

    def _is_expired(self, base: int, min_physical_offset: int) -> bool:
        """Whether the log no longer has any message of a file; the file is not the newest."""
        return base + self.files.file_size <= self.min_offset * UNIT_SIZE

    def path_of(self, base: int) -> str:
        """The path of the file whose first unit has this byte offset."""
        return f"{self.folder}/{base:020d}"

    def remove(self) -> None:
        """Remove the files.

        Raises:
          StoreIOError: one could not be removed.
        """
        self.files.forget(self.folder)
        self.files.disk.remove_folder(self.folder)
        self.files.unsynced.add(self.folder.rpartition("/")[0])
        self.reset()

    def note_change(self) -> None:
        """Note that the beginning or the end may be another; see `QueueFiles.changed`."""
        self.files.changed[self] = None

    def reset(self) -> None:
        """Become empty without touching the disk."""
        self.file_offsets = []
        self.min_offset = 0
        self._set_end(0)

    def _is_written(self, queue_offset: int) -> bool:
        base = queue_offset * UNIT_SIZE // self.files.file_size * self.files.file_size
        data = self.files.get(self.path_of(base)).pread(
            UNIT_SIZE, Position(queue_offset * UNIT_SIZE - base)
        )
        physical_offset, size, _ = UNIT.unpack(data)
        return bool(physical_offset >= 0 and size > 0)

    def _set_end(self, queue_offset: int) -> None:
        self.files.drop_page(self.key)
        self.tail.clear()
        self.tail_offset = self.max_offset = queue_offset
        self.committed_offset = self.next_offset = queue_offset
        self.note_change()
