"""Filter for `onlyQueues`: the messages of a log that a unit of their consume queue points to.

Consumers see only those. A log also holds half messages, messages that were never dispatched to a
queue, messages of deleted topics, and messages whose queue files have expired.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from ..disk.numbered import numbered
from ..disk.os_disk import Disk, DiskFile
from ..disk.position import Position
from ..store.format import CONSUME_QUEUE_UNIT, UNIT_SIZE
from ..store.offline.layout import queue_folders
from .arrow import dtype_of
from .errors import OptionError
from .record_columns import RecordColumns

OPEN_MAX: Final = 256
"""Most open files of queues; when it is reached, all are closed and reopened on demand."""

_UNIT: Final = dtype_of(CONSUME_QUEUE_UNIT)


def check_queues(disk: Disk, root: str) -> None:
    """Raises: OptionError: the store keeps its consume queues in a format that is not supported."""
    for folder in ("consumequeue_rocksdb", "rocksdb"):
        if disk.is_folder(f"{root}/{folder}"):
            raise OptionError(f"onlyQueues: {root} keeps its consume queues in RocksDB, which is"
                              " not supported")  # fmt: skip
    if any(queue_folders(disk, f"{root}/batchconsumequeue")):
        raise OptionError(f"onlyQueues: {root} has batch consume queues, which are not supported")


class QueueUnits:
    """The consume queues of one store. Lifecycle: `close` at the end."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._root = root
        self._files: dict[str, DiskFile] = {}
        self._known: dict[tuple[str, int], dict[int, str]] = {}

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    @cached_property
    def _folders(self) -> dict[tuple[str, int], str]:
        found = queue_folders(self._disk, f"{self._root}/consumequeue")
        return {(topic, queue_id): path for topic, queue_id, path in found}

    def seen(self, records: RecordColumns) -> np.ndarray:
        """A mask of the records that a unit of their queue points to.

        Raises: StoreIOError: a file cannot be read.
        """
        topics = records.topics.dictionary_encode()
        queue_ids = records.field("queue_id").astype(np.int64)
        keys = (topics.indices.to_numpy().astype(np.int64) << 32) | (queue_ids & 0xFFFFFFFF)
        groups = pa.array(keys).dictionary_encode()
        group_of = groups.indices.to_numpy()
        offsets, places = records.field("queue_offset"), records.field("physical_offset")
        found = np.zeros(len(records), np.bool_)
        for group, key in enumerate(groups.dictionary.to_pylist()):
            rows = np.flatnonzero(group_of == group)
            queue = topics.dictionary[key >> 32].as_py(), int(queue_ids[rows[0]])
            found[rows] = self._places(queue, offsets[rows]) == places[rows]
        return found

    def _places(self, queue: tuple[str, int], offsets: np.ndarray) -> np.ndarray:
        """The physical offsets in the units at these queue offsets; -1 if there is no unit."""
        found = np.full(len(offsets), -1, np.int64)
        files = self._known.get(queue)
        if files is None:
            folder = self._folders.get(queue)
            files = numbered(self._disk, folder) if folder is not None else {}
            self._known[queue] = files
        # A damaged record may have any offset: drop those whose position would overflow int64.
        good = (offsets >= 0) & (offsets < 2**58)
        at = np.where(good, offsets, 0) * UNIT_SIZE
        for base, path in files.items():
            file = self._opened(path)
            rows = np.flatnonzero(good & (at >= base) & (at < base + file.size()))
            if not len(rows):
                continue
            first, last = int(at[rows].min()), int(at[rows].max())
            raw = file.pread(last + UNIT_SIZE - first, Position(first - base))
            units = np.frombuffer(raw, _UNIT, len(raw) // UNIT_SIZE)
            indices = (at[rows] - first) // UNIT_SIZE
            is_there = indices < len(units)
            units = units[indices[is_there]]
            places = units["physical_offset"].astype(np.int64)
            found[rows[is_there]] = np.where(units["size"] > 0, places, -1)
        return found

    def _opened(self, path: str) -> DiskFile:
        file = self._files.get(path)
        if file is None:
            if len(self._files) >= OPEN_MAX:
                self.close()
            file = self._files[path] = self._disk.open(path)
        return file
