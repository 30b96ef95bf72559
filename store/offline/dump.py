"""Dumps of a store's files other than the log, entry by entry, for people and scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...common.java_hash import index_key_hash
from ...disk.numbered import numbered, size_of
from ...disk.os_disk import Disk
from ...disk.position import Position
from ..format import (
    BATCH_UNIT_SIZE,
    ENTRY,
    ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    PRE_BLANK_SIZE,
    SLOT_SIZE,
    UNIT_SIZE,
    Unit,
)
from ..log.commit_log import CommitLog
from ..log.log_reader import record_at
from ..queues.batch_consume_queue import BatchUnit
from ..queues.consume_queue import QueueFiles
from ..queues.consume_queue_ext import EXT_ADDRESS_MAX
from ..recovery.checkpoint import read_checkpoint
from .findings import Findings
from .index_counts import IndexCounts, find_counts, read_header
from .json_files import is_json_name, read_json
from .layout import Layout, queue_folders
from .log_walk import LogWalk
from .queue_files import QueuesOnDisk
from .selection import Selection, keys_of

CHUNK_COUNT = 3000

Row = dict[str, Any]


def dump_queues(disk: Disk, layout: Layout, selection: Selection) -> Iterator[Row]:
    """The units of the consume queues: topic, queueId, queueOffset and the unit's fields.

    `record` is ok, missing (no whole record of that size is there) or removed (by retention). The
    selection's offsets are queue offsets.

    Raises:
      StoreIOError: a file cannot be read.
    """
    queues = QueuesOnDisk(disk, layout.root, layout.queue_file_size, Findings())
    log = layout.commit_log(disk)
    count = 0
    try:
        for (topic, queue_id), queue in sorted(queues.queues.items()):
            if selection.topic not in ("", topic) or selection.queue_id not in (None, queue_id):
                continue
            stop = selection.stop if selection.stop is not None else queues.end_offset(queue)
            for offset, unit in queues.written(queue, selection.start or 0, stop):
                if count == selection.limit:
                    return
                row = _queue_row(log, selection, offset, unit)
                if row is not None:
                    yield {"topic": topic, "queueId": queue_id, **row}
                    count += 1
        yield from _dump_batch_queues(disk, layout, selection, count)
    finally:
        queues.close()
        log.close()


def _queue_row(log: CommitLog, selection: Selection, offset: int, unit: Unit) -> Row | None:
    """One unit; None when its record is not wanted."""
    physical_offset, size, tags_code = unit
    record = record_at(log, physical_offset)
    row: Row = {
        "queueOffset": offset,
        "physicalOffset": physical_offset,
        "size": size,
        "tagsCode": tags_code,
        "isExtAddress": tags_code <= EXT_ADDRESS_MAX,
        "record": "ok",
    }
    if physical_offset < log.min_offset:
        row["record"] = "removed"
    elif record is None or record.size != size:
        row["record"] = "missing"
    if record is None:
        # Without its record a unit cannot match a key or a time.
        asks = selection.key or selection.since_ms is not None or selection.until_ms is not None
        return None if asks else row
    row["storeTimestamp"] = record.store_timestamp_ms
    row["keys"] = keys_of(record.properties)
    wanted = replace(selection, topic="", queue_id=None, start=None, stop=None)
    return row if wanted.matches(record) else None


def _dump_batch_queues(
    disk: Disk, layout: Layout, selection: Selection, count: int
) -> Iterator[Row]:
    files = QueueFiles(disk, layout.batch_file_size)
    try:
        for topic, queue_id, folder in queue_folders(disk, f"{layout.root}/batchconsumequeue"):
            if selection.topic not in ("", topic) or selection.queue_id not in (None, queue_id):
                continue
            for unit in _batch_units(disk, files, folder):
                if count == selection.limit:
                    return
                if selection.start is not None and unit.end_offset <= selection.start:
                    continue
                if selection.stop is not None and unit.base_offset >= selection.stop:
                    break
                yield {
                    "topic": topic,
                    "queueId": queue_id,
                    "queueOffset": unit.base_offset,
                    "batchSize": unit.batch_size,
                    "physicalOffset": unit.physical_offset,
                    "size": unit.size,
                    "tagsCode": unit.tags_code,
                    "storeTimestamp": unit.store_timestamp_ms,
                }
                count += 1
    finally:
        files.close()


def _batch_units(disk: Disk, files: QueueFiles, folder: str) -> Iterator[BatchUnit]:
    for path in numbered(disk, folder).values():
        file, position = files.get(path), 0
        while True:
            data = file.pread(CHUNK_COUNT * BATCH_UNIT_SIZE, Position(position))
            for at in range(0, len(data) - BATCH_UNIT_SIZE + 1, BATCH_UNIT_SIZE):
                unit = BatchUnit.from_bytes(data, at)
                if unit.size <= 0:
                    return
                yield unit
            if len(data) < CHUNK_COUNT * BATCH_UNIT_SIZE:
                break
            position += len(data)


def dump_index(
    disk: Disk, layout: Layout, selection: Selection, given: IndexCounts | None
) -> Iterator[Row]:
    """The index files' headers (`kind` header) and entries (`kind` entry).

    The selection's topic and key apply, both together, and its physical offsets.

    Raises:
      StoreIOError: a file cannot be read.
    """
    paths = list(numbered(disk, f"{layout.root}/index").values())
    log = layout.commit_log(disk)
    count = 0
    wanted_hash = None
    if selection.topic and selection.key:
        wanted_hash = index_key_hash(f"{selection.topic}#{selection.key}")
    try:
        counts = find_counts(disk, paths, given, log)
        for path in paths:
            file = disk.open(path)
            try:
                header = read_header(file)
                yield {"kind": "header", "path": path, **_header_row(header._asdict(), counts)}
                if counts is None:  # without them it is unknown where the entries begin
                    continue
                number = 1
                entries_at = INDEX_HEADER_SIZE + counts.slot_count * SLOT_SIZE
                end = min(max(header.index_count, 1), counts.index_count_max)
                while number < end:
                    taken = min(CHUNK_COUNT, end - number)
                    raw = file.pread(taken * ENTRY_SIZE, Position(entries_at + number * ENTRY_SIZE))
                    for key_hash, offset, seconds, previous in ENTRY.iter_unpack(raw):
                        if count == selection.limit:
                            return
                        if (
                            (selection.start is None or offset >= selection.start)
                            and (selection.stop is None or offset < selection.stop)
                            and wanted_hash in (None, key_hash)
                        ):
                            yield {
                                "kind": "entry",
                                "path": path,
                                "number": number,
                                "keyHash": key_hash,
                                "slot": key_hash % counts.slot_count,
                                "physicalOffset": offset,
                                "storeTimestamp": header.begin_timestamp_ms + seconds * 1000,
                                "previous": previous,
                            }
                            count += 1
                        number += 1
            finally:
                file.close()
    finally:
        log.close()


def _header_row(fields: dict[str, int], counts: IndexCounts | None) -> Row:
    names = {
        "begin_timestamp_ms": "beginTimestamp",
        "end_timestamp_ms": "endTimestamp",
        "begin_physical_offset": "beginPhyOffset",
        "end_physical_offset": "endPhyOffset",
        "hash_slot_count": "hashSlotCount",
        "index_count": "indexCount",
    }
    row: Row = {names[name]: value for name, value in fields.items()}
    if counts is not None:
        row["maxHashSlotNum"], row["maxIndexNum"] = counts
    return row


def dump_checkpoint(disk: Disk, layout: Layout) -> Row:
    """The checkpoint's fields; `dispatchedOffset` and `index` are trocket's own.

    Raises:
      StoreIOError: it cannot be read.
    """
    path = f"{layout.root}/checkpoint"
    found = read_checkpoint(disk, path)
    row: Row = {
        "path": path,
        "exists": disk.exists(path),
        "physicMsgTimestamp": found.physic_msg_timestamp_ms,
        "logicsMsgTimestamp": found.logics_msg_timestamp_ms,
        "indexMsgTimestamp": found.index_msg_timestamp_ms,
        "masterFlushedOffset": found.master_flushed_offset,
        "confirmPhyOffset": found.confirm_physical_offset,
        "dispatchedOffset": found.dispatched_offset,
        "abort": disk.exists(f"{layout.root}/abort"),
    }
    if found.index is not None:
        row["index"] = {
            "fileName": f"{found.index.file_name:017d}",
            "indexCount": found.index.index_count,
            "indexedOffset": found.index.indexed_offset,
        }
    return row


def dump_config(disk: Disk, layout: Layout) -> Iterator[Row]:
    """The files of config/: path, problem, and what each holds.

    Raises:
      StoreIOError: one cannot be read.
    """
    folder = f"{layout.root}/config"
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if is_json_name(name) and not disk.is_folder(path):
            found = read_json(disk, path)
            yield {"path": path, "problem": found.problem, "content": found.tree}


def dump_summary(disk: Disk, layout: Layout, stop: int | None = None) -> Row:
    """Sizes, offsets, and for each queue how many messages the log has of it.

    The log is not walked: only queues and the first and last records of each log file are read.

    Args:
      stop: a live store's end.

    Raises:
      StoreIOError: a file cannot be read.
    """
    queues = QueuesOnDisk(disk, layout.root, layout.queue_file_size, Findings())
    log = layout.commit_log(disk)
    try:
        log_files = []
        for base, file in log.files.items():
            first = record_at(log, base)
            log_files.append(
                {
                    "path": file.path,
                    "physicalOffset": base,
                    "size": file.size(),
                    "firstStoreTimestamp": first.store_timestamp_ms if first else None,
                }
            )
        found: list[Row] = []
        for (topic, queue_id), queue in sorted(queues.queues.items()):
            end = queues.max_offset(queue)
            low, high = (queue.bases[0] // UNIT_SIZE if queue.bases else 0), end
            # The oldest unit whose record the log still has: expired log files leave their units
            # behind, at the front, so a binary search finds it.
            while low < high:
                middle = (low + high) // 2
                physical_offset, size, _ = queues.unit(queue, middle)
                if size == PRE_BLANK_SIZE or physical_offset < log.min_offset:
                    low = middle + 1
                else:
                    high = middle
            found.append({"topic": topic, "queueId": queue_id, "minOffset": low, "maxOffset": end})
        per_topic: Counter[str] = Counter()
        for row in found:
            per_topic[row["topic"]] += row["maxOffset"] - row["minOffset"]
        # Records of the newest file only: its end is the end of the log.
        newest = max(log.files, default=0)
        walk = LogWalk(log, start=newest, stop=stop)
        for _ in walk.records():
            pass
        index = numbered(disk, f"{layout.root}/index")
        return {
            "path": layout.root,
            "minPhyOffset": log.min_offset,
            "maxPhyOffset": walk.end if log.files else 0,
            "newestStoreTimestamp": walk.newest_ms,
            "mappedFileSizeCommitLog": layout.log_file_size,
            "mappedFileSizeConsumeQueue": layout.queue_file_size,
            "logFiles": log_files,
            "topics": dict(sorted(per_topic.items())),
            "queues": found,
            "indexFiles": [{"path": path, "size": size_of(disk, path)} for path in index.values()],
        }
    finally:
        queues.close()
        log.close()
