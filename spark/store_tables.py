"""The tables of `rocketmq-store` other than the log: queues, index, and the broker's state.

A task reads one queue or index file, or several small ones, with numpy and without a Python object
per row. The state's files are small; the offline tools' readers read them.

Not done: consume queues in RocksDB and tiered storage; such a store is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from ..disk.numbered import numbered, size_of
from ..disk.os_disk import Disk, DiskFile
from ..disk.position import Position
from ..store.format import (
    BATCH_UNIT_SIZE,
    CONSUME_QUEUE_UNIT,
    ENTRY_SIZE,
    INDEX_ENTRY,
    INDEX_HEADER_SIZE,
    PRE_BLANK_SIZE,
    SLOT_SIZE,
    UNIT_SIZE,
)
from ..store.offline.index_counts import IndexCounts, find_counts, read_header
from ..store.offline.json_files import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    TOPICS,
    consumer_offsets,
    delay_offsets,
    read_json,
)
from ..store.offline.layout import NoStoreError, queue_folders, read_layout
from ..store.queues.batch_consume_queue import BatchUnit
from ..store.recovery.checkpoint import read_checkpoint
from .arrow import dtype_of, repeated, schema_of, timestamps, type_of
from .columns import TABLES
from .errors import CorruptStoreError, OptionError
from .store_options import ReadMode, StoreOptions
from .store_plan import StoreAt

logger = logging.getLogger(__name__)

CHUNK_ROWS: Final = 65_536
"""Units or entries per read, 1.3 MB."""

FILES_MAX: Final = 1000
"""Most files of one task; a topic of many queues has many small ones."""

_UNIT: Final = dtype_of(CONSUME_QUEUE_UNIT)
_ENTRY: Final = dtype_of(INDEX_ENTRY)

Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class TableFile:
    """One file of a queue or of the index.

    Attributes:
      name: the number in its name.
      topic, queue_id: the queue, if it is a queue's file.
      is_batch: whether the queue is a batch consume queue.
      counts: the slots and entries, if it is an index file.
    """

    path: str
    name: int
    topic: str = ""
    queue_id: int = 0
    is_batch: bool = False
    counts: IndexCounts | None = None


@dataclass(frozen=True)
class TableSplit:
    """One task's part of one store; tables of the state have no files."""

    table: str
    store: StoreAt
    files: tuple[TableFile, ...] = ()


def plan_table(disk: Disk, stores: list[StoreAt], options: StoreOptions) -> list[TableSplit]:
    """The splits of a table.

    Raises:
      OptionError: a path is not a store, or its queues have an unsupported format.
      StoreIOError: a file cannot be read.
    """
    finders = {"consumequeue": _queue_files, "index": _index_files}
    splits: list[TableSplit] = []
    for store in stores:
        try:
            read_layout(disk, store.root)
        except NoStoreError as error:
            raise OptionError(str(error)) from error
        find = finders.get(options.table)
        if find is None:
            splits.append(TableSplit(options.table, store))
            continue
        files: list[TableFile] = []
        size = 0
        for file in find(disk, store.root, options):
            files.append(file)
            size += size_of(disk, file.path)
            if size >= options.split_bytes or len(files) >= FILES_MAX:
                splits.append(TableSplit(options.table, store, tuple(files)))
                files, size = [], 0
        if files:
            splits.append(TableSplit(options.table, store, tuple(files)))
    return splits


def _queue_files(disk: Disk, root: str, options: StoreOptions) -> Iterator[TableFile]:
    if disk.is_folder(f"{root}/consumequeue_rocksdb") or disk.is_folder(f"{root}/rocksdb"):
        raise OptionError(
            f"{root} keeps its consume queues in RocksDB, which is not supported; read the table"
            " commitlog instead"
        )
    for folder, is_batch in (("consumequeue", False), ("batchconsumequeue", True)):
        for topic, queue_id, path in queue_folders(disk, f"{root}/{folder}"):
            if options.topic and topic not in options.topic.replace(" ", "").split(","):
                continue
            for base, file in numbered(disk, path).items():
                yield TableFile(file, base, topic, queue_id, is_batch)


def _index_files(disk: Disk, root: str, _: StoreOptions) -> Iterator[TableFile]:
    found = numbered(disk, f"{root}/index")
    log = read_layout(disk, root).commit_log(disk)
    try:
        counts = find_counts(disk, found.values(), None, log)
    finally:
        log.close()
    if found and counts is None:
        raise CorruptStoreError(
            f"{root}/index: no file shows its number of slots; see `trocket store fsck {root}`"
        )
    for name, path in found.items():
        yield TableFile(path, name, counts=counts)


def read_table(
    disk: Disk, split: TableSplit, columns: tuple[str, ...], mode: ReadMode
) -> Iterator[pa.RecordBatch]:
    """The rows of a split.

    Raises:
      CorruptStoreError: a file of the state is damaged, and the mode is not permissive.
      StoreIOError: a file cannot be read.
    """
    kinds = TABLES[split.table]
    schema = schema_of(columns, kinds)

    def batch(found: Columns, count: int) -> pa.RecordBatch:
        found["brokerName"] = repeated(split.store.broker_name, "string", count)
        return pa.RecordBatch.from_arrays([found[name] for name in columns], schema=schema)

    if split.table in _STATES:
        try:
            rows = list(_STATES[split.table](disk, split.store.root))
        except CorruptStoreError as error:
            if mode is not ReadMode.PERMISSIVE:
                raise
            logger.warning("%s; its rows are missing in the result", error)
            rows = []
        found = {
            name: pa.array([row.get(name) for row in rows], type_of(kind))
            for name, kind in kinds.items()
            if name in columns
        }
        yield batch(found, len(rows))
        return
    read = _index_columns if split.table == "index" else _queue_columns
    for table_file in split.files:
        file = disk.open(table_file.path)
        try:
            for found, count in read(file, table_file):
                yield batch(found, count)
        finally:
            file.close()


def _queue_columns(file: DiskFile, at: TableFile) -> Iterator[tuple[Columns, int]]:
    if at.is_batch:
        yield from _batch_queue_columns(file, at)
        return
    position = 0
    while raw := file.pread(CHUNK_ROWS * UNIT_SIZE, Position(position)):
        units = np.frombuffer(raw, _UNIT, len(raw) // UNIT_SIZE)
        # Skip units that were never written (zeros), and fillers before the queue's first unit.
        used = np.flatnonzero((units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE))
        if len(used):
            units = units[used]
            first = (at.name + position) // UNIT_SIZE
            yield _queue_rows(
                at,
                first + used,
                units["physical_offset"],
                units["size"],
                units["tags_code"],
            )
        position += len(raw)


def _batch_queue_columns(file: DiskFile, at: TableFile) -> Iterator[tuple[Columns, int]]:
    position = 0
    while raw := file.pread(CHUNK_ROWS * BATCH_UNIT_SIZE, Position(position)):
        places = range(0, len(raw) - BATCH_UNIT_SIZE + 1, BATCH_UNIT_SIZE)
        units = [unit for place in places if (unit := BatchUnit.from_bytes(raw, place)).size > 0]
        if units:
            yield _queue_rows(
                at,
                np.array([unit.base_offset for unit in units]),
                np.array([unit.physical_offset for unit in units]),
                np.array([unit.size for unit in units]),
                np.array([unit.tags_code for unit in units]),
            )
        position += len(raw)


def _queue_rows(
    at: TableFile,
    queue_offsets: np.ndarray,
    physical_offsets: np.ndarray,
    sizes: np.ndarray,
    tags_codes: np.ndarray,
) -> tuple[Columns, int]:
    count = len(queue_offsets)
    return {
        "topic": repeated(at.topic, "string", count),
        "queueId": repeated(at.queue_id, "int", count),
        "queueOffset": pa.array(queue_offsets.astype(np.int64)),
        "commitLogOffset": pa.array(physical_offsets.astype(np.int64)),
        "size": pa.array(sizes.astype(np.int32)),
        "tagsCode": pa.array(tags_codes.astype(np.int64)),
        "segment": repeated(f"{at.name:020d}", "string", count),
    }, count


def _index_columns(file: DiskFile, at: TableFile) -> Iterator[tuple[Columns, int]]:
    assert at.counts is not None
    header = read_header(file)
    # Entry 0 is never used: index 0 ends a chain.
    number, end = 1, min(header.index_count, at.counts.index_count_max)
    entries_at = INDEX_HEADER_SIZE + at.counts.slot_count * SLOT_SIZE
    while number < end:
        raw = file.pread(
            min(CHUNK_ROWS, end - number) * ENTRY_SIZE, Position(entries_at + number * ENTRY_SIZE)
        )
        count = len(raw) // ENTRY_SIZE
        if not count:
            return
        entries = np.frombuffer(raw, _ENTRY, count)
        hashes = entries["key_hash"].astype(np.int32)
        seconds = entries["time_difference_s"].astype(np.int64)
        yield (
            {
                "keyHash": pa.array(hashes),
                "commitLogOffset": pa.array(entries["physical_offset"].astype(np.int64)),
                "storeTimestamp": timestamps(header.begin_timestamp_ms + seconds * 1000),
                "slot": pa.array(hashes % np.int32(at.counts.slot_count)),
                "prev": pa.array(entries["previous_index"].astype(np.int32)),
                "segment": repeated(f"{at.name:017d}", "string", count),
                "number": pa.array(np.arange(number, number + count, dtype=np.int32)),
            },
            count,
        )
        number += count


# The broker's state

T = TypeVar("T")
Row = Mapping[str, Any]


def _tree(disk: Disk, root: str, name: str) -> tuple[str, Mapping[str, Any]]:
    path = f"{root}/config/{name}"
    if not disk.exists(path):
        return path, {}
    found = read_json(disk, path)
    if found.tree is None:
        raise CorruptStoreError(
            f"{path} cannot be read: {found.problem}; mode=permissive skips it, {path}.bak may have"
            " an older version"
        )
    return path, found.tree


def _read(disk: Disk, root: str, name: str, decode: Callable[[Mapping[str, Any]], T]) -> T:
    path, tree = _tree(disk, root, name)
    try:
        return decode(tree)
    except ValueError as error:
        raise CorruptStoreError(f"{path}: {error}") from error


def _consumer_offsets(disk: Disk, root: str) -> Iterator[Row]:
    found = _read(disk, root, CONSUMER_OFFSETS, consumer_offsets)
    for (topic, group, queue_id), offset in sorted(found.items()):
        yield {"topic": topic, "group": group, "queueId": queue_id, "offset": offset}


def _delay_offsets(disk: Disk, root: str) -> Iterator[Row]:
    found = _read(disk, root, DELAY_OFFSETS, delay_offsets)
    for level, offset in sorted(found.items()):
        yield {"delayLevel": level, "offset": offset}


def _topics(disk: Disk, root: str) -> Iterator[Row]:
    path, tree = _tree(disk, root, TOPICS)
    try:
        for name, topic in sorted((tree.get("topicConfigTable") or {}).items()):
            yield {
                "topic": str(name),
                "order": bool(topic.get("order", False)),
                "attributes": list((topic.get("attributes") or {}).items()),
                **{key: int(topic[key]) for key in _TOPIC_NUMBERS if topic.get(key) is not None},
            }
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptStoreError(f"{path}: not a table of topics: {error}") from error


_TOPIC_NUMBERS: Final = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")


def _checkpoint(disk: Disk, root: str) -> Iterator[Row]:
    path = f"{root}/checkpoint"
    if not disk.exists(path):
        return
    found = read_checkpoint(disk, path)
    yield {
        "physicMsgTimestamp": _micros(found.physic_msg_timestamp_ms),
        "logicsMsgTimestamp": _micros(found.logics_msg_timestamp_ms),
        "indexMsgTimestamp": _micros(found.index_msg_timestamp_ms),
        "masterFlushedOffset": found.master_flushed_offset,
        "confirmPhyOffset": found.confirm_physical_offset,
        "dispatchedOffset": None if found.dispatched_offset < 0 else found.dispatched_offset,
        "abort": disk.exists(f"{root}/abort"),
    }


def _micros(ms: int) -> int:
    return ms * 1000


_STATES: Final[dict[str, Callable[[Disk, str], Iterator[Row]]]] = {
    "consumeroffsets": _consumer_offsets,
    "delayoffsets": _delay_offsets,
    "topics": _topics,
    "checkpoint": _checkpoint,
}
