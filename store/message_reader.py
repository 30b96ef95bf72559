"""Reading messages: by queue offset, by physical offset, by key.

Java counterpart: DefaultMessageStore.getMessage and queryMessage of 5.3.3; statuses and next
offsets are Apache's, case by case. What is returned are slices of the log's read-only maps: they
can be written to a socket without a copy, and must be let go soon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..remoting.errors import RemoteProtocolError
from ..remoting.message_codec import RECORD_PREFIX, RECORD_SIZE_MIN, decode_record
from .commit_log import CommitLog
from .config import BrokerRole, MessageStoreConfig
from .consume_queue import ConsumeQueue
from .format import UNIT, UNIT_SIZE
from .index_service import IndexService
from .status import GetMessageStatus

SIZE_MAX = 128 * 1024 * 1024
"""Bytes that one get answers at most. Source: DefaultMessageStore.java MAX_PULL_MSG_SIZE."""

SIZE_MAX_MIN = 100
"""The least that a caller's size_max counts for. Source: DefaultMessageStore.java getMessage."""

QUERY_COUNT_MAX_MIN = 1

EXTENSION_ADDRESS_MAX = -(1 << 31) - 1
"""A tags code up to here is the address of a queue extension unit, which says nothing about tags.
Source: ConsumeQueueExt.java isExtAddr."""


@dataclass(slots=True)
class GetMessageResult:
    """What a get came to.

    Attributes:
      status: see `GetMessageStatus`.
      next_begin_offset: where the consumer is to go on.
      min_offset, max_offset: of the queue.
      buffers: whole records, in the queue's order, neighbours in the log as one buffer.
      size: bytes in buffers.
      count: messages in buffers.
      suggest_pulling_from_slave: the wanted messages are too old to be in memory.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview]
    size: int
    count: int
    suggest_pulling_from_slave: bool


class QueryResult(NamedTuple):
    """What a look-up by key came to.

    Attributes:
      buffers: one record each, oldest first.
      index_last_update_timestamp_ms, index_last_update_physical_offset: how far the index reaches.
    """

    buffers: list[memoryview]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int


class MessageReader:
    """The reading half of a store.

    Args:
      log, queues, index: the store's.
      config: limits.
      memory_bytes: the machine's memory.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: dict[tuple[str, int], ConsumeQueue],
        index: IndexService,
        config: MessageStoreConfig,
        memory_bytes: int,
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._config = config
        self._units_per_file = config.queue_file_size // UNIT_SIZE
        self._near = memory_bytes * config.access_message_in_memory_max_ratio // 100
        self._keeps_offsets = (
            config.broker_role is BrokerRole.SLAVE and not config.offset_check_in_slave
        )

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        size_max: int,
        tags_codes: frozenset[int] | None,
        log_end: int,
    ) -> GetMessageResult:
        """Messages from a queue offset on.

        Args:
          queue_offset: where to begin; any number.
          count_max: messages wanted at most; the configured limits count too. The first message is
            answered whatever its size.
          size_max: bytes wanted at most.
          tags_codes: answer only messages with one of these tags codes; None: all.
          log_end: where the commit log ends.

        Raises:
          StoreIOError: a file could not be read.

        Source: RocketMQ 5.3.3 store/DefaultMessageStore.java getMessage, isTheBatchFull.
        """
        queue = self._queues.get((topic, queue_id))
        max_offset = queue.max_offset if queue is not None else 0
        if queue is None or max_offset == 0:
            # Apache makes a queue that is asked for, so that an unknown one is an empty one.
            return self._nothing(GetMessageStatus.NO_MESSAGE_IN_QUEUE, queue_offset, 0, 0, 0)
        min_offset = queue.min_offset
        if queue_offset < min_offset:
            status, correct = GetMessageStatus.OFFSET_TOO_SMALL, min_offset
            return self._nothing(status, queue_offset, correct, min_offset, max_offset)
        if queue_offset >= max_offset:
            status = GetMessageStatus.OFFSET_OVERFLOW_BADLY
            if queue_offset == max_offset:
                status = GetMessageStatus.OFFSET_OVERFLOW_ONE
            return self._nothing(status, queue_offset, max_offset, min_offset, max_offset)
        wanted = count_max if count_max > 1 else 1
        if tags_codes is not None:
            wanted = max(self._config.max_filter_message_size // UNIT_SIZE, wanted)
        units = queue.read(queue_offset, min(wanted, max_offset - queue_offset))
        if not units:
            correct = queue_offset + self._units_per_file - queue_offset % self._units_per_file
            status = GetMessageStatus.OFFSET_FOUND_NULL
            return self._nothing(status, queue_offset, correct, min_offset, max_offset)
        size_max = min(max(size_max, SIZE_MAX_MIN), SIZE_MAX)
        status, read, last, buffers, size, count = self._collect(
            units, count_max, size_max, tags_codes, log_end
        )
        self._log.served(size)
        far = log_end - last > self._near
        next_offset = queue_offset + read
        return GetMessageResult(
            status, next_offset, min_offset, max_offset, buffers, size, count, far
        )

    def _collect(
        self,
        units: bytes,
        count_max: int,
        size_max: int,
        tags_codes: frozenset[int] | None,
        log_end: int,
    ) -> tuple[GetMessageStatus, int, int, list[memoryview], int, int]:
        """(status, units used, last one's physical offset, buffers, size, count) for units."""
        log, config, file_size = self._log, self._config, self._log.file_size
        near_from = log_end - self._near
        memory_bytes = min(config.max_transfer_bytes_on_message_in_memory, size_max)
        memory_count = min(config.max_transfer_count_on_message_in_memory, count_max)
        disk_bytes = min(config.max_transfer_bytes_on_message_in_disk, size_max)
        disk_count = min(config.max_transfer_count_on_message_in_disk, count_max)
        status = GetMessageStatus.NO_MATCHED_MESSAGE
        buffers: list[memoryview] = []
        view: memoryview | None = None
        view_base = run_start = run_end = -1
        read = total = count = skip_until = physical_offset = 0
        for physical_offset, size, tags_code in UNIT.iter_unpack(units):
            if count:
                if physical_offset >= near_from:
                    if count >= memory_count or total + size > memory_bytes:
                        break
                elif count >= disk_count or total + size > disk_bytes:
                    break
            read += 1
            if physical_offset < skip_until:
                continue
            if (
                tags_codes is not None
                and tags_code not in tags_codes
                and tags_code > EXTENSION_ADDRESS_MAX
            ):
                continue
            if physical_offset == run_end and physical_offset != view_base + file_size:
                run_end += size
            else:
                base = physical_offset - physical_offset % file_size
                if base != view_base:
                    new_view = log.view(base)
                    if new_view is None or not 0 < size <= log_end - physical_offset:
                        if not count:
                            status = GetMessageStatus.MESSAGE_WAS_REMOVING
                        skip_until = base + file_size
                        continue
                    if run_end > run_start and view is not None:
                        buffers.append(view[run_start - view_base : run_end - view_base])
                    view, view_base = new_view, base
                elif run_end > run_start and view is not None:
                    buffers.append(view[run_start - view_base : run_end - view_base])
                run_start, run_end = physical_offset, physical_offset + size
            total += size
            count += 1
        if count and view is not None:
            buffers.append(view[run_start - view_base : run_end - view_base])
            status = GetMessageStatus.FOUND
        return status, read, physical_offset, buffers, total, count

    def record_at(self, physical_offset: int, log_end: int) -> memoryview | None:
        """The record at a physical offset; None when no whole record starts there."""
        head = self._log.read(physical_offset, RECORD_PREFIX.size)
        if head is None:
            return None
        size = RECORD_PREFIX.unpack(head)[0]
        if not RECORD_SIZE_MIN <= size <= log_end - physical_offset:
            return None
        data = self._log.read(physical_offset, size)
        if data is None:
            return None
        try:
            record = decode_record(data, 0, check_crc=False, read_body=False)
        except RemoteProtocolError:
            return None
        self._log.served(size)
        return data if record.physical_offset == physical_offset else None

    def query_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, log_end: int
    ) -> QueryResult:
        """Messages whose KEYS or UNIQ_KEY hold a key (or one with the same hash), oldest first.

        Args:
          count_max: at most so many, and at most maxMsgsNumBatch; the newest ones.
          begin_ms, end_ms: store time, both included, to the second.
          log_end: where the visible log ends.

        Raises:
          StoreIOError: an index file could not be read.
        """
        count_max = max(min(count_max, self._config.max_msgs_num_batch), QUERY_COUNT_MAX_MIN)
        found = self._index.query(topic, key, count_max, begin_ms, end_ms)
        records = (self.record_at(at, log_end) for at in sorted(found.physical_offsets))
        return QueryResult(
            [record for record in records if record is not None],
            found.last_update_timestamp_ms,
            found.last_update_physical_offset,
        )

    def _nothing(
        self, status: GetMessageStatus, asked: int, correct: int, min_offset: int, max_offset: int
    ) -> GetMessageResult:
        # A slave does not correct the consumer: the master may be ahead of it.
        next_offset = asked if self._keeps_offsets else correct
        return GetMessageResult(status, next_offset, min_offset, max_offset, [], 0, 0, False)
