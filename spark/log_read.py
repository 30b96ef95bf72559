"""Task of `rocketmq-store`: from a part of a commit log to Arrow record batches."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..common.message_properties import PROPERTY_TAGS
from ..disk.os_disk import Disk
from ..store.log.commit_log import file_name
from ..store.log.log_reader import Hole
from .arrow import repeated, schema_of, type_of
from .errors import CorruptStoreError, DataLossError
from .log_segment import RAW_SHOWN, Block, LogSegment
from .queue_units import QueueUnits
from .record_columns import RecordColumns, column_of, constant
from .store_options import LogRequest
from .store_plan import LogSplit

logger = logging.getLogger(__name__)

_OF_HOLES: Final = ("brokerName", "segment", "position", "size", "valid", "_corrupt", "_raw")
"""Columns of a row that stands for a hole; the others are null."""


def read_log(
    disk: Disk, split: LogSplit, request: LogRequest, *, fail_on_data_loss: bool = True
) -> Iterator[pa.RecordBatch]:
    """The requested rows of a split, in the log's order.

    Args:
      fail_on_data_loss: whether a file that no longer exists is an error; else it has no rows.

    Raises:
      CorruptStoreError: bytes that are not records, and the request is not permissive.
      DataLossError: the file is gone.
      StoreIOError: it cannot be read.
      MissingPackageError: a body's compression needs a package.
    """
    if not disk.exists(split.path):
        text = f"{split.path} was removed after the query was planned: its messages expired"
        if fail_on_data_loss:
            raise DataLossError(f"{text}; set failOnDataLoss=false to read the other files")
        logger.warning("%s; skipping it", text)
        return
    file = disk.open(split.path)
    units = QueueUnits(disk, split.root) if request.only_queues else None
    try:
        segment = LogSegment(
            file,
            base=split.base,
            file_size=split.file_size,
            limit=split.limit,
            is_newest=split.is_newest,
            verify_crc=request.verify_crc,
        )
        for piece in segment.pieces(split.begin, split.end):
            if isinstance(piece, Hole):
                yield from _hole_row(split, request, piece, segment.head(piece))
            else:
                yield from _batches(split, request, piece, units)
    finally:
        if units is not None:
            units.close()
        file.close()


def _hole_row(
    split: LogSplit, request: LogRequest, hole: Hole, head: bytes
) -> Iterator[pa.RecordBatch]:
    if hole.at_end and not request.with_tail:
        return
    position, size = hole.start - split.base, hole.end - hole.start
    if not request.is_permissive:
        raise CorruptStoreError(
            f"{split.path}: {size} bytes at {position} are not records: {hole.reason};"
            " mode=permissive reads what follows, `trocket store fsck` shows the damage"
        )
    values = {
        "brokerName": split.broker_name,
        "segment": file_name(split.base),
        "position": position,
        "size": min(size, 2**31 - 1),
        "valid": False,
        "_corrupt": f"tail: {hole.reason}" if hole.at_end else hole.reason,
        "_raw": head,
    }
    assert set(values) == set(_OF_HOLES)
    kinds = request.kinds
    columns = [pa.array([values.get(name)], type_of(kinds[name])) for name in request.columns]
    yield _batch(request, columns, 1)


def _batches(
    split: LogSplit, request: LogRequest, block: Block, units: QueueUnits | None
) -> Iterator[pa.RecordBatch]:
    records = block.records
    for begin in range(0, len(records), request.batch_rows):
        part = wanted(records.part(begin, begin + request.batch_rows), request)
        if units is not None and len(part):
            part = part.where(units.seen(part))
        if len(part):
            yield _decoded(split, request, block.position, part)


def wanted(records: RecordColumns, request: LogRequest) -> RecordColumns:
    """The records that match the request's times, topics and tags, tested in order of cost."""
    if request.first_ms is not None or request.last_ms is not None:
        times = records.field("store_timestamp_ms")
        low = request.first_ms if request.first_ms is not None else times.min(initial=0)
        high = request.last_ms if request.last_ms is not None else times.max(initial=0)
        records = records.where((times >= low) & (times <= high))
    if request.topics is not None and len(records):
        records = records.where(_is_in(records.topics, request.topics))
    if request.tags is not None and len(records):
        records = records.where(_is_in(records.properties.column(PROPERTY_TAGS), request.tags))
    return records


def _is_in(column: pa.Array, values: frozenset[str]) -> np.ndarray:
    found: np.ndarray = pc.is_in(column, pa.array(sorted(values), pa.string())).to_numpy(
        zero_copy_only=False
    )
    return found


def _decoded(
    split: LogSplit, request: LogRequest, position: int, records: RecordColumns
) -> pa.RecordBatch:
    bad: dict[int, str] = {}
    bodies = None
    if "body" in request.columns:
        bodies = records.inflated(bad.__setitem__) if request.decompress else records.bodies
    # A body that does not inflate ends the query by default, at the first such message.
    if bad and not request.is_permissive:
        row, reason = next(iter(bad.items()))
        one = records.part(row, row + 1)
        raise CorruptStoreError(
            f"{split.path}: the message at {position + int(one.starts[0])}, topic"
            f" {one.topics[0].as_py()}, queue {one.field('queue_id')[0]}, offset"
            f" {one.field('queue_offset')[0]}: {reason}; mode=permissive or decompress=false"
            " returns it as stored"
        )
    count = len(records)
    columns = []
    for name in request.columns:
        if name == "body":
            column = bodies
        elif name == "brokerName":
            column = constant(split.broker_name, records)
        elif name == "segment":
            column = constant(file_name(split.base), records)
        elif name == "position":
            column = pa.array(records.starts + position)
        elif name == "valid":
            column = pa.array([row not in bad for row in range(count)]) if bad else _true(count)
        elif name == "_corrupt":
            column = pa.array([bad.get(row) for row in range(count)] if bad else [None] * count,
                              pa.string())  # fmt: skip
        elif name == "_raw":
            column = _raw(records, bad)
        else:
            column = column_of(records, name, request.properties_as)
        columns.append(column)
    return _batch(request, columns, count)


def _true(count: int) -> pa.Array:
    return repeated(True, "boolean", count)


def _raw(records: RecordColumns, bad: dict[int, str]) -> pa.Array:
    if not bad:
        return pa.nulls(len(records), pa.binary())
    heads = {row: records.head(row, RAW_SHOWN) for row in bad}
    return pa.array([heads.get(row) for row in range(len(records))], pa.binary())


def _batch(request: LogRequest, columns: list[pa.Array], count: int) -> pa.RecordBatch:
    schema = schema_of(request.columns, request.kinds)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    assert batch.num_rows == count or not columns
    return batch
