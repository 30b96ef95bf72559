"""The consume queues' files, read unit by unit in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from ...disk.numbered import numbered, size_of
from ...disk.os_disk import Disk
from ...disk.position import Position
from ..format import PRE_BLANK_SIZE, UNIT, UNIT_SIZE, Key, Unit
from ..queues.consume_queue import QueueFiles
from .findings import Findings, Severity
from .layout import queue_folders

WINDOW_COUNT = 204
"""Units read at once, 4 KiB."""

WINDOWS_MAX = 4096
"""Queues with a window in memory, 16 MiB in all."""

SCAN_COUNT = 3200
"""Units per read of a whole range, 64 KiB."""

REBUILD = "`trocket store repair` rebuilds it from the log"


class QueueOnDisk:
    """One queue's files.

    Attributes:
      bases: byte offsets at which its files begin, ascending.
      is_damaged: files are missing, or their sizes differ.
    """

    __slots__ = ("bases", "folder", "is_damaged", "window", "window_offset")

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.bases: list[int] = []
        self.is_damaged = False
        self.window = b""
        self.window_offset = 0


class QueuesOnDisk:
    """All consume queues of a store.

    Args:
      file_size: bytes that each file should have.
      findings: gets what is wrong with the files themselves.
    """

    def __init__(self, disk: Disk, root: str, file_size: int, findings: Findings) -> None:
        self.queues: dict[Key, QueueOnDisk] = {}
        self.folder = f"{root}/consumequeue"
        self.file_size = file_size
        self.file_count = 0
        self._files = QueueFiles(disk, file_size)
        self._windows: OrderedDict[int, QueueOnDisk] = OrderedDict()
        for topic, queue_id, folder in queue_folders(disk, self.folder):
            queue = QueueOnDisk(folder)
            self._load(disk, queue, findings)
            self.queues[topic, queue_id] = queue

    def _load(self, disk: Disk, queue: QueueOnDisk, findings: Findings) -> None:
        files = numbered(disk, queue.folder)
        self.file_count += len(files)
        newest = max(files, default=0)
        for base, path in files.items():
            size = size_of(disk, path)
            # Brokers make the newest file before its first unit.
            if size == 0 and base == newest:
                findings.add(
                    Severity.INFO, "queue.empty_file", path, base // UNIT_SIZE,
                    "an empty file: it was being made when the broker died",
                )  # fmt: skip
                continue
            if size != self.file_size or base % self.file_size:
                queue.is_damaged = True
                findings.add(
                    Severity.ERROR, "queue.file_size", path, base // UNIT_SIZE,
                    f"the file is {size} bytes long, the others are {self.file_size}; "
                    "brokers refuse to start with it", REBUILD,
                )  # fmt: skip
                if base % self.file_size:
                    continue
            if queue.bases and base != queue.bases[-1] + self.file_size:
                queue.is_damaged = True
                findings.add(
                    Severity.ERROR, "queue.file_missing", path, base // UNIT_SIZE,
                    "the file before this one is missing", REBUILD,
                )  # fmt: skip
            queue.bases.append(base)

    def unit(self, queue: QueueOnDisk, queue_offset: int) -> Unit:
        """One unit; zeros where none was written or there is no file.

        Raises:
          StoreIOError: a file cannot be read.
        """
        at = (queue_offset - queue.window_offset) * UNIT_SIZE
        if not 0 <= at <= len(queue.window) - UNIT_SIZE:
            self._forget_oldest(queue)
            queue.window = self.read(queue, queue_offset, WINDOW_COUNT)
            queue.window_offset = queue_offset
            at = 0
            if len(queue.window) < UNIT_SIZE:
                return (0, 0, 0)
        physical_offset, size, tags_code = UNIT.unpack_from(queue.window, at)
        return (physical_offset, size, tags_code)

    def _forget_oldest(self, queue: QueueOnDisk) -> None:
        self._windows[id(queue)] = queue
        self._windows.move_to_end(id(queue))
        if len(self._windows) > WINDOWS_MAX:
            self._windows.popitem(last=False)[1].window = b""

    def read(self, queue: QueueOnDisk, queue_offset: int, count_max: int) -> bytes:
        """Units from an offset on, within one file; fewer where it ends or is not there.

        Raises:
          StoreIOError: the file cannot be read.
        """
        position = queue_offset * UNIT_SIZE
        base = position - position % self.file_size
        if base not in queue.bases:
            return b""
        size = min(count_max * UNIT_SIZE, base + self.file_size - position)
        data = self._files.get(f"{queue.folder}/{base:020d}").pread(size, Position(position - base))
        return data[: len(data) // UNIT_SIZE * UNIT_SIZE]

    def written(self, queue: QueueOnDisk, start: int, stop: int) -> Iterator[tuple[int, Unit]]:
        """(queue offset, unit) of all units but zeros and the blanks before a queue's first unit.

        Args:
          start, stop: queue offsets, [start, stop).

        Raises:
          StoreIOError: a file cannot be read.
        """
        per_file = self.file_size // UNIT_SIZE
        for base in queue.bases:
            first = max(base // UNIT_SIZE, start)
            last = min(base // UNIT_SIZE + per_file, stop)
            while first < last:
                data = self.read(queue, first, min(SCAN_COUNT, last - first))
                if not data:
                    break
                if data.count(0) != len(data):
                    for offset, unit in enumerate(UNIT.iter_unpack(data), first):
                        physical_offset, size, tags_code = unit
                        if size != PRE_BLANK_SIZE and any(unit):
                            yield offset, (physical_offset, size, tags_code)
                first += len(data) // UNIT_SIZE

    def physical_end(self, queue: QueueOnDisk) -> int:
        """First byte of the log after the last message of a queue; 0 when it has none.

        Raises:
          StoreIOError: a file cannot be read.
        """
        end = self.max_offset(queue)
        if not end:
            return 0
        physical_offset, size, _ = self._unit_at(queue, end - 1)
        return 0 if size == PRE_BLANK_SIZE else physical_offset + size

    def max_offset(self, queue: QueueOnDisk) -> int:
        """Queue offset behind the last unit that was written; 0 if there is none.

        Raises:
          StoreIOError: a file cannot be read.
        """
        for base in reversed(queue.bases):
            low = first = base // UNIT_SIZE
            high = first + self.file_size // UNIT_SIZE
            while low < high:
                middle = (low + high) // 2
                physical_offset, size, _ = self._unit_at(queue, middle)
                if physical_offset >= 0 and size > 0:
                    low = middle + 1
                else:
                    high = middle
            if low > first:
                return low
        return 0

    def end_offset(self, queue: QueueOnDisk) -> int:
        return (queue.bases[-1] + self.file_size) // UNIT_SIZE if queue.bases else 0

    def _unit_at(self, queue: QueueOnDisk, queue_offset: int) -> Unit:
        data = self.read(queue, queue_offset, 1)
        return UNIT.unpack(data) if data else (0, 0, 0)

    def close(self) -> None:
        self._files.close()
