"""Rebuilding of chosen consume queues from the log, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

from ...disk.errors import CorruptRecordError
from ...disk.numbered import numbered
from ...disk.os_disk import Disk
from ...disk.position import START, Position
from ...remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from ..format import BATCH_UNIT_SIZE, PRE_BLANK_SIZE, UNIT, UNIT_SIZE, Key
from ..log.log_reader import LogRecord
from ..queues.batch_consume_queue import unit_of_record
from ..queues.consume_queue import PRE_BLANK, QueueFiles
from ..queues.projection import Places
from ..topic_path import topic_path

PENDING_BYTES_MAX = 16 * 1024 * 1024
"""Units in memory, over all queues."""

GAP_COUNT_MAX = 10_000_000
"""Queue offsets that a queue may leave out; a larger gap is a damaged record's."""


class QueueBuilder:
    """Builds the chosen queues, whose old folders are removed already.

    Args:
      disk, root: the disk and the data folder.
      file_size, batch_file_size: bytes of one queue file.
      places: the rules of dispatching.
      wanted: whether to build a queue.
      batch_topics: topics whose queues are batch consume queues.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        *,
        file_size: int,
        batch_file_size: int,
        places: Places,
        wanted: Callable[[Key], bool],
        batch_topics: frozenset[str],
    ) -> None:
        self.unit_count = 0
        self.queues: set[Key] = set()
        self._disk = disk
        self._root = root
        self._places = places
        self._wanted = wanted
        self._batch_topics = batch_topics
        self._plain_files = QueueFiles(disk, file_size)
        self._batch_files = QueueFiles(disk, batch_file_size)
        self._next: dict[Key, int] = {}
        self._tails: dict[Key, bytearray] = {}
        self._written: dict[Key, int] = {}
        self._paths: set[tuple[bool, str]] = set()
        self._pending = 0

    def feed(self, record: LogRecord) -> None:
        """Append one record's units; records come in the log's order.

        Raises:
          StoreIOError: a file cannot be written.
          CorruptRecordError: the queue offset cannot be right.
        """
        if record.topic in self._batch_topics:
            key = (record.topic, record.queue_id)
            if not record.sys_flag & TRANSACTION_PREPARED_TYPE and self._wanted(key):
                unit = unit_of_record(record, self._places.code_of(record))
                self._append(key, unit.to_bytes())
            return
        for key, queue_offset, code in self._places.of(record):
            if topic_path(key[0]) is None or key[1] < 0 or not self._wanted(key):
                continue
            expected = self._next.get(key)
            if expected is None:
                self._begin(key, queue_offset)
            elif queue_offset < expected:
                if queue_offset:
                    continue  # an earlier record has this offset
                self._remove(key)
                self._begin(key, 0)
            elif queue_offset > expected:
                gap = queue_offset - expected
                if gap > GAP_COUNT_MAX:
                    raise CorruptRecordError(
                        self._folder(key),
                        record.physical_offset,
                        f"the record says queue offset {queue_offset} after {expected - 1}: its "
                        "head is damaged; restore the log file from a replica or a backup",
                    )
                self._append(key, PRE_BLANK * gap)
            self._next[key] = queue_offset + 1
            self._append(key, UNIT.pack(record.physical_offset, record.size, code))

    def finish(self) -> None:
        """Write the units in memory, and sync all files.

        Raises:
          StoreIOError: a file cannot be written or synced.
        """
        self._flush()
        self._plain_files.close()
        self._batch_files.close()
        folders = set()
        for _, path in sorted(self._paths):
            file = self._disk.open(path)
            try:
                file.sync()
            finally:
                file.close()
            folders.add(path.rpartition("/")[0])
        for folder in sorted(folders):
            self._disk.sync_folder(folder)

    def _begin(self, key: Key, queue_offset: int) -> None:
        """Begin a queue with its first unit; blanks fill its file before it."""
        position = queue_offset * UNIT_SIZE
        base = position - position % self._plain_files.file_size
        self._written[key] = base
        self._append(key, PRE_BLANK * ((position - base) // UNIT_SIZE))

    def _append(self, key: Key, units: bytes) -> None:
        self.queues.add(key)
        self.unit_count += 1
        self._tails.setdefault(key, bytearray()).extend(units)
        self._pending += len(units)
        if self._pending > PENDING_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        for key, tail in self._tails.items():
            is_batch = key[0] in self._batch_topics
            files = self._batch_files if is_batch else self._plain_files
            assert len(tail) % (BATCH_UNIT_SIZE if is_batch else UNIT_SIZE) == 0
            position, at = self._written.get(key, 0), 0
            while at < len(tail):
                base = position - position % files.file_size
                size = min(len(tail) - at, base + files.file_size - position)
                path = f"{self._folder(key)}/{base:020d}"
                files.get(path, create=True).pwrite(
                    bytes(tail[at : at + size]), Position(position - base)
                )
                self._paths.add((is_batch, path))
                position += size
                at += size
            self._written[key] = position
        self._tails.clear()
        self._pending = 0

    def _remove(self, key: Key) -> None:
        """Begin the queue again: the topic was deleted and created again."""
        folder = self._folder(key)
        self._tails.pop(key, None)
        self._plain_files.forget(folder)
        self._disk.remove_folder(folder)
        self._paths = {entry for entry in self._paths if not entry[1].startswith(folder + "/")}

    def _folder(self, key: Key) -> str:
        kind = "batchconsumequeue" if key[0] in self._batch_topics else "consumequeue"
        return f"{self._root}/{kind}/{key[0]}/{key[1]}"


def cut_units(disk: Disk, folder: str, file_size: int, physical_end: int) -> None:
    """Cut a queue without records in the log: overwrite the units after an offset with zeros.

    The remaining units keep the queue's end, so that no queue offset is assigned twice. Files of a
    wrong size are extended with zeros.

    Raises:
      StoreIOError: a file cannot be read or written.
    """
    is_cut = False
    for base, path in numbered(disk, folder).items():
        # Later files can only have units that are cut, too.
        if is_cut or base % file_size:
            disk.unlink(path)
            continue
        file = disk.open(path)
        try:
            if file.size() != file_size:
                file.resize(file_size)
            data = file.pread(file_size, START)
            for number, (physical_offset, size, _) in enumerate(UNIT.iter_unpack(data)):
                if size <= 0 or (size != PRE_BLANK_SIZE and physical_offset + size > physical_end):
                    position = Position(number * UNIT_SIZE)
                    file.pwrite(bytes(file_size - position), position)
                    is_cut = True
                    break
            file.sync()
        finally:
            file.close()
    disk.sync_folder(folder)
