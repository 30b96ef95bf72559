"""The comparison of batch consume queues (BatchCQ topics of 5.x) with the log.

They have one unit per record, in the log's order, so each queue is read in parallel with the log.
"""

from __future__ import annotations

from ...disk.numbered import numbered, size_of
from ...disk.os_disk import Disk
from ...disk.position import Position
from ...remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from ..format import BATCH_UNIT_SIZE
from ..log.log_reader import LogRecord
from ..queues.batch_consume_queue import BatchUnit, unit_of_record
from ..queues.consume_queue import QueueFiles
from ..queues.projection import Places
from .findings import Findings, Severity
from .layout import queue_folders

WINDOW_COUNT = 89
"""Units read at once, 4 KiB."""


class BatchQueueOnDisk:
    """One batch consume queue.

    Attributes:
      bases: byte offsets at which its files begin, ascending.
      number: of the unit that the next record is compared with.
      max_offset: queue offset after the last correct unit.
      differences: count and first example by kind.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.bases: list[int] = []
        self.number = 0
        self.max_offset = 0
        self.differences: dict[str, tuple[int, str]] = {}
        self.window = b""
        self.window_number = 0

    def note(self, kind: str, example: str) -> None:
        """Count one difference."""
        count, first = self.differences.get(kind, (0, example))
        self.differences[kind] = (count + 1, first)


class BatchCheck:
    """The batch consume queues of one store, compared while the log is walked.

    Args:
      disk, root: the disk and the data folder.
      file_size: bytes of one file.
      places: the rules of dispatching.
      findings: gets the problems of the files themselves.
    """

    def __init__(
        self, disk: Disk, root: str, file_size: int, places: Places, findings: Findings
    ) -> None:
        folder = f"{root}/batchconsumequeue"
        self.topics = frozenset(disk.list(folder))
        self.queues: dict[tuple[str, int], BatchQueueOnDisk] = {}
        self.unit_count = 0
        self._file_size = file_size
        self._places = places
        self._files = QueueFiles(disk, file_size)
        self._lacking: dict[tuple[str, int], int] = {}
        for topic, queue_id, path in queue_folders(disk, folder):
            queue = BatchQueueOnDisk(path)
            for base, file in numbered(disk, path).items():
                size = size_of(disk, file)
                if size != file_size or base % file_size:
                    findings.add(
                        Severity.ERROR, "batch.file_size", file, base // BATCH_UNIT_SIZE,
                        f"the file is {size} bytes long, the others are {file_size}",
                        "remove this folder; the broker rebuilds it from the log",
                    )  # fmt: skip
                else:
                    queue.bases.append(base)
            queue.number = queue.bases[0] // BATCH_UNIT_SIZE if queue.bases else 0
            self.queues[topic, queue_id] = queue

    def feed(self, record: LogRecord) -> None:
        """Compare one record's unit; records come in the log's order.

        Raises:
          StoreIOError: a file cannot be read.
        """
        if record.topic not in self.topics or record.sys_flag & TRANSACTION_PREPARED_TYPE:
            return
        queue = self.queues.get((record.topic, record.queue_id))
        if queue is None:
            key = (record.topic, record.queue_id)
            self._lacking[key] = self._lacking.get(key, 0) + 1
            return
        self.unit_count += 1
        expected = unit_of_record(record, self._places.code_of(record))
        found = self._unit(queue)
        while found is not None and found.physical_offset < record.physical_offset:
            # Its record was deleted with its log file, or lost.
            queue.number += 1
            found = self._unit(queue)
        if found is None or found.physical_offset > record.physical_offset:
            queue.note("missing", f"the record at {record.physical_offset}")
            return
        queue.number += 1
        queue.max_offset = max(queue.max_offset, expected.end_offset)
        if found != expected:
            queue.note("wrong", f"{found}, not {expected}")

    def _unit(self, queue: BatchQueueOnDisk) -> BatchUnit | None:
        at = (queue.number - queue.window_number) * BATCH_UNIT_SIZE
        if not 0 <= at <= len(queue.window) - BATCH_UNIT_SIZE:
            position = queue.number * BATCH_UNIT_SIZE
            base = position - position % self._file_size
            queue.window = b""
            if base in queue.bases:
                file = self._files.get(f"{queue.folder}/{base:020d}")
                queue.window = file.pread(WINDOW_COUNT * BATCH_UNIT_SIZE, Position(position - base))
            queue.window_number = queue.number
            at = 0
            if len(queue.window) < BATCH_UNIT_SIZE:
                return None
        unit = BatchUnit.from_bytes(queue.window, at)
        return unit if unit.size > 0 and unit.physical_offset >= 0 else None

    def finish(self, findings: Findings, *, log_start: int, settled: bool) -> None:
        """Add the findings.

        Args:
          log_start: physical offset of the log's first byte.
          settled: the store was closed cleanly; otherwise the queues' ends may lag.

        Raises:
          StoreIOError: a file cannot be read.
        """
        advice = "remove the queue's folder; the broker rebuilds it from the log"
        for (topic, queue_id), count in self._lacking.items():
            findings.add(
                Severity.ERROR if settled else Severity.WARNING, "batch.missing", topic, -1,
                f"{count} records of {topic} queue {queue_id} have no batch queue",
            )  # fmt: skip
        for queue in self.queues.values():
            rest = self._unit(queue)
            while rest is not None and rest.physical_offset < log_start:
                queue.number += 1  # removed by retention
                rest = self._unit(queue)
            if rest is not None:
                queue.note("extra", f"{rest}")
            for kind, (count, first) in queue.differences.items():
                lags = kind == "missing" and not settled and self._unit(queue) is None
                findings.add(
                    Severity.WARNING if lags else Severity.ERROR, f"batch.{kind}", queue.folder,
                    queue.number, f"{count} units are {kind} (first: {first})", advice,
                )  # fmt: skip
        self._files.close()
