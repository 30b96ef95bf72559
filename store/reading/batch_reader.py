"""The reader of batch queues: whole records, found by the offset of any message in them.

Java counterpart: DefaultMessageStore.getMessage and isTheBatchFull of 5.3.3, where one loop serves
both kinds of queue. Here plain queues have `MessageReader`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...disk.errors import CorruptRecordError, StoreIOError
from ..config import MessageStoreConfig
from ..format import BATCH_UNIT_SIZE
from ..log.commit_log import CommitLog
from ..queues.batch_consume_queue import BatchConsumeQueue, BatchUnit
from ..status import GetMessageStatus
from .record_filter import Wanted, is_wanted


class BatchesFound(NamedTuple):
    """The result of a get.

    Attributes:
      status: FOUND, NO_MATCHED_MESSAGE or MESSAGE_WAS_REMOVING.
      next_offset: queue offset of the next get.
      physical_offset: of the last record scanned.
      buffers: one record each.
      size: bytes in buffers.
      message_count: messages in buffers.
    """

    status: GetMessageStatus
    next_offset: int
    physical_offset: int
    buffers: list[memoryview]
    size: int
    message_count: int


def collect_batches(
    queue: BatchConsumeQueue,
    log: CommitLog,
    config: MessageStoreConfig,
    *,
    queue_offset: int,
    wanted: Wanted,
    near_from: int,
    verify: Callable[[BatchUnit], None] | None = None,
) -> BatchesFound:
    """Records from the one that holds a queue offset.

    Args:
      queue_offset: in [min_offset, max_offset) of the queue.
      wanted: limits and filters; the first record may exceed the limits. The tags code of an inner
        batch is that of the batch's TAGS, usually none: 0, whatever its messages have; the filter
        gets the batch's properties.
      near_from: records from this physical offset on count as in memory.
      verify: called with each unit before it is used; raises CorruptRecordError. A bad unit after
        others ends the answer before it.

    Raises:
      CorruptRecordError: `verify` refused the first record.
      StoreIOError: a file could not be read.
    """
    tags_codes, record_filter = wanted.tags_codes, wanted.record_filter
    scan_end = queue_offset + max(
        config.max_filter_message_size // BATCH_UNIT_SIZE, wanted.count_max
    )
    status = GetMessageStatus.NO_MATCHED_MESSAGE
    buffers: list[memoryview] = []
    total = count = skip_until = physical_offset = 0
    next_offset = queue_offset
    for unit in queue.units(queue_offset):
        if verify is not None:
            try:
                verify(unit)
            except (CorruptRecordError, StoreIOError):
                if next_offset == queue_offset:
                    raise
                break
        if unit.base_offset >= min(queue.max_offset, scan_end):
            break
        near = unit.physical_offset >= near_from
        if count and _is_full(config, unit, wanted, count, total, near=near):
            break
        # The first record is answered at any size, so a large one cannot block its consumer.
        next_offset, physical_offset = unit.end_offset, unit.physical_offset
        if physical_offset < skip_until:
            continue
        if tags_codes is not None and unit.tags_code not in tags_codes:
            continue
        fits = 0 < unit.size <= wanted.log_end - physical_offset
        record = log.read(physical_offset, unit.size) if fits else None
        if record is None:
            if not count:
                status = GetMessageStatus.MESSAGE_WAS_REMOVING
            skip_until = physical_offset - physical_offset % log.file_size + log.file_size
            continue
        if record_filter is None or is_wanted(record, record_filter):
            buffers.append(record)
            status = GetMessageStatus.FOUND
            total += unit.size
            count += unit.batch_size
        if record_filter is not None and record_filter.is_over():
            break
    return BatchesFound(status, next_offset, physical_offset, buffers, total, count)


def _is_full(
    config: MessageStoreConfig,
    unit: BatchUnit,
    wanted: Wanted,
    count: int,
    total: int,
    *,
    near: bool,
) -> bool:
    """Whether an answer of `count` messages and `total` bytes has no room for one more record."""
    if count + unit.batch_size > wanted.count_max or total + unit.size > wanted.size_max:
        return True
    if near:
        bytes_max = config.max_transfer_bytes_on_message_in_memory
        return (
            total + unit.size > bytes_max or count >= config.max_transfer_count_on_message_in_memory
        )
    bytes_max = config.max_transfer_bytes_on_message_in_disk
    return total + unit.size > bytes_max or count >= config.max_transfer_count_on_message_in_disk
