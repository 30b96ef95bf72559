"""The reader of messages: by queue offset, by physical offset, by key.

Java counterpart: DefaultMessageStore.getMessage and queryMessage of 5.3.3; statuses and next
offsets are Apache's, case by case. Results are slices of the log's read-only maps: they can be
written to a socket without a copy, and must not be kept.

Messages from before the store was opened are verified when they are served (`record_check.py`);
for newer ones a get pays one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, Protocol

import msgspec

from ...common.steps import Steps
from ...disk.errors import CorruptRecordError, StoreIOError
from ...native import Extension
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import RECORD_PREFIX, RECORD_SIZE_MIN, decode_record
from ..config import BrokerRole, MessageStoreConfig
from ..format import UNIT, UNIT_PLACE, UNIT_SIZE, Unit
from ..index.index_entries import TAG_KEY_HEAD
from ..index.index_service import IndexService
from ..log.commit_log import CommitLog
from ..queues.batch_consume_queue import BatchConsumeQueue
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queue_ext import EXT_ADDRESS_MAX, ExtendedConsumeQueue
from ..status import GetMessageStatus
from .batch_reader import collect_batches
from .recent_records import RecentRecords
from .record_check import RecordCheck, holds_key, holds_tags, no_unit, stored_since
from .record_filter import MATCHING, RecordFilter, Wanted, filtered

SIZE_MAX = 128 * 1024 * 1024
"""Bytes that one get answers at most. Source: DefaultMessageStore.java MAX_PULL_MSG_SIZE."""

SIZE_MAX_MIN = 100
"""A smaller size_max counts as this. Source: DefaultMessageStore.java getMessage."""

QUERY_COUNT_MAX_MIN = 1

_FOUND = GetMessageStatus.FOUND  # an attribute of the enum class costs 0.17 us each time
_OVERFLOW_ONE = GetMessageStatus.OFFSET_OVERFLOW_ONE
_TOO_SMALL = GetMessageStatus.OFFSET_TOO_SMALL


class GetMessageResult(msgspec.Struct, gc=False):
    """The result of a get. A msgspec.Struct is created in a third of a dataclass's time.

    Attributes:
      status: see `GetMessageStatus`.
      next_begin_offset: queue offset of the consumer's next get.
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
    """The result of a query by key.

    Attributes:
      buffers: one record each, oldest first.
      index_last_update_timestamp_ms, index_last_update_physical_offset: of the newest index entry.
    """

    buffers: list[memoryview]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int


Collected = tuple[GetMessageStatus, int, int, list[memoryview], int, int]
"""(status, units used, last one's physical offset, buffers, size, count). A plain tuple, which does
not leave this module: a NamedTuple makes a get of 2 us take 0.6 us more."""


class LogEnd(Protocol):
    """The end of the log, as `LogWriter` provides it."""

    @property
    def committed_offset(self) -> int:
        """Physical offset at which the log ends."""


class MessageReader:
    """Reads messages of a store.

    Args:
      memory_bytes: the machine's memory.
      end: the end of the log.
      native: the C extension; None: pure Python.

    Attributes:
      recent: what the C extension needs to get recent messages; None: pure Python.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: dict[tuple[str, int], ConsumeQueue],
        index: IndexService,
        config: MessageStoreConfig,
        memory_bytes: int,
        end: LogEnd,
        *,
        native: Extension | None,
    ) -> None:
        self._log = log
        self._end = end
        self._queues = queues
        self._index = index
        self._config = config
        self._units_per_file = config.queue_file_size // UNIT_SIZE
        self._check = RecordCheck(log)
        self._verified_from = 0
        self._near = memory_bytes * config.access_message_in_memory_max_ratio // 100
        self.recent: RecentRecords | None = None
        if native is not None:
            self.recent = RecentRecords(
                native,
                log,
                self._near,
                config.max_transfer_bytes_on_message_in_memory,
                config.max_transfer_count_on_message_in_memory,
                self._units_per_file,
            )
        self._keeps_offsets = (
            config.broker_role is BrokerRole.SLAVE and not config.offset_check_in_slave
        )

    def opened(self, log_end: int, own_from: int) -> None:
        """Verify all present messages when they are served; see verifyOldRecords.

        Args:
          log_end: the end of the commit log, bytes.
          own_from: the physical offset from which this program wrote the log, in this process or an
            earlier one.
        """
        self._check.own_from = own_from
        if self._config.verify_old_records:
            self._verified_from = log_end
            for queue in self._queues.values():
                queue.cold_end = queue.max_offset

    def ends_at(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a get would find nothing but that this offset is the next one of the queue.

        Its status would be OFFSET_OVERFLOW_ONE, and its next offset and the queue's end this one.
        """
        queue = self._queues.get((topic, queue_id))
        return queue is not None and queue.max_offset == queue_offset > 0

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        size_max: int = 0x7FFFFFFF,
        tags_codes: frozenset[int] | None = None,
        record_filter: RecordFilter | None = None,
    ) -> GetMessageResult:
        """Messages from a queue offset on.

        Args:
          queue_offset: of the first message; any number.
          count_max: most messages; the configured limits apply, too. The first message is answered
            at any size.
          size_max: most bytes.
          tags_codes: answer only messages with one of these tags codes; None: all.
          record_filter: answer only messages that match it as well; None: all.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: the message at the offset is damaged, or lost though its neighbours
            are not. A damaged message after others ends the answer before it.

        Source: RocketMQ 5.3.3 store/DefaultMessageStore.java getMessage, isTheBatchFull.
        """
        queue, log_end = self._queues.get((topic, queue_id)), self._end.committed_offset
        if queue is None:
            # Apache creates a queue that is asked for: an unknown queue answers as an empty one.
            return self._nothing(GetMessageStatus.NO_MESSAGE_IN_QUEUE, queue_offset, 0, 0, 0)
        min_offset, max_offset = queue.min_offset, queue.max_offset
        if queue_offset < min_offset and max_offset:
            return self._nothing(_TOO_SMALL, queue_offset, min_offset, min_offset, max_offset)
        if queue_offset >= max_offset or not max_offset:
            return self._at_end(queue, queue_offset)
        # Here and below: a comparison costs a tenth of a call of `min`, 0.2 us.
        if not SIZE_MAX_MIN <= size_max <= SIZE_MAX:
            size_max = SIZE_MAX_MIN if size_max < SIZE_MAX_MIN else SIZE_MAX
        if isinstance(queue, BatchConsumeQueue):
            wanted = Wanted(max(count_max, 1), size_max, tags_codes, record_filter, log_end)
            return self._get_batches(queue, queue_offset, wanted)
        count = count_max if count_max > 1 else 1
        is_unfiltered = tags_codes is None and record_filter is None
        if not is_unfiltered:
            count = max(self._config.max_filter_message_size // UNIT_SIZE, count)
        if count > max_offset - queue_offset:
            count = max_offset - queue_offset
        if is_unfiltered and count == 1:
            newest = self._newest(queue, queue_offset, size_max, log_end)
            if newest is not None:
                return newest
        units = queue.read(queue_offset, count)
        if not units:
            return self._no_units(queue, queue_offset)
        found = None
        if is_unfiltered and queue_offset >= queue.cold_end:
            found = self._collect_recent(units, size_max, log_end)
        if found is None:
            wanted = Wanted(count_max, size_max, tags_codes, record_filter, log_end)
            found = self._collect(self._entries(queue, queue_offset, units, wanted), wanted)
        status, read, last, buffers, size, count = found
        self._log.served(size)
        far = log_end - last > self._near
        return GetMessageResult(
            status, queue_offset + read, min_offset, max_offset, buffers, size, count, far
        )

    def _at_end(self, queue: ConsumeQueue, asked: int) -> GetMessageResult:
        """The answer at the visible end of a queue, or beyond it."""
        begin, end = queue.min_offset, queue.max_offset
        if end < asked <= queue.committed_offset:  # hidden messages lie before it, or from it on
            return GetMessageResult(_OVERFLOW_ONE, asked, begin, end, [], 0, 0, False)
        if end == 0:
            return self._nothing(GetMessageStatus.NO_MESSAGE_IN_QUEUE, asked, 0, 0, 0)
        status = _OVERFLOW_ONE if asked == end else GetMessageStatus.OFFSET_OVERFLOW_BADLY
        return self._nothing(status, asked, end, begin, end)

    def _no_units(self, queue: ConsumeQueue, queue_offset: int) -> GetMessageResult:
        """The answer where a queue has no unit at one of its offsets."""
        if queue_offset < queue.cold_end:
            raise no_unit(queue, queue_offset)
        status = GetMessageStatus.OFFSET_FOUND_NULL
        following = queue_offset + self._units_per_file - queue_offset % self._units_per_file
        return self._nothing(status, queue_offset, following, queue.min_offset, queue.max_offset)

    def _entries(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        units: bytes,
        wanted: Wanted,
    ) -> Iterable[Unit]:
        """Units for `_collect`: old ones verified, with real tags codes or, if there is a filter,
        with its results in their place."""
        tags_codes, record_filter, log_end = wanted.tags_codes, wanted.record_filter, wanted.log_end
        if tags_codes is not None and isinstance(queue, ExtendedConsumeQueue):
            units = queue.with_real_tags_codes(units)
        entries: Iterable[Unit]
        if queue_offset < queue.cold_end:
            entries = self._check.verified(queue, queue_offset, units, log_end)
        else:
            entries = UNIT.iter_unpack(units)
        if record_filter is None:
            return entries
        is_hidden = _hidden(queue, queue_offset, record_filter)
        return filtered(entries, self._log, record_filter, tags_codes, log_end, is_hidden)

    def _get_batches(
        self, queue: BatchConsumeQueue, queue_offset: int, wanted: Wanted
    ) -> GetMessageResult:
        """`get_message` of a queue of batches, for an offset between its ends."""
        log_end = wanted.log_end
        found = collect_batches(
            queue,
            self._log,
            self._config,
            queue_offset=queue_offset,
            wanted=wanted,
            near_from=log_end - self._near,
            verify=self._check.batches(queue, queue_offset, log_end),
        )
        self._log.served(found.size)
        return GetMessageResult(
            found.status,
            found.next_offset,
            queue.min_offset,
            queue.max_offset,
            found.buffers,
            found.size,
            found.message_count,
            log_end - found.physical_offset > self._near,
        )

    def _collect_recent(self, raw: bytes, size_max: int, log_end: int) -> Collected | None:
        """The fast path of `_collect`, for unfiltered messages in one file and in memory.

        It takes a third of the time, and returns None in all other cases.

        Args:
          raw: units, 20 bytes each; at least one, and at most the wanted count.
        """
        config, log = self._config, self._log
        count = len(raw) // UNIT_SIZE
        if count > config.max_transfer_count_on_message_in_memory:
            count = max(config.max_transfer_count_on_message_in_memory, 1)
        # The C extension copies small records that lie apart into one body; a view of each would
        # cost more.
        if self.recent is not None and count > 1:
            units = raw[: count * UNIT_SIZE]
            joined = self.recent.join(units, log_end, size_max)
            if joined is not None:
                (last, _) = UNIT_PLACE.unpack_from(units, len(units) - UNIT_SIZE)
                return _FOUND, count, last, [memoryview(joined)], len(joined), count
        fields = _places_struct(count).unpack_from(raw)
        offsets, sizes = fields[::2], fields[1::2]
        first, last = offsets[0], offsets[-1]
        base = first - first % log.file_size
        end, total = last + sizes[-1], sum(sizes)
        if (
            # Units are not trusted: each of these may be wrong after a crash. `_collect` finds out
            # which.
            not log_end - self._near <= first <= last < base + log.file_size
            or total > size_max
            or total > config.max_transfer_bytes_on_message_in_memory
            or min(sizes) <= 0
            or end > log_end
        ):
            return None
        view = log.view(base)
        if view is None:
            return None
        # No other queue's message lies between them.
        if end - first == total:
            buffers = [view[first - base : end - base]]
        # In the log's first file, positions are offsets: no subtraction for each message.
        elif base:
            buffers = [
                view[at - base : at - base + size] for at, size in zip(offsets, sizes, strict=True)
            ]
        else:
            buffers = [view[at : at + size] for at, size in zip(offsets, sizes, strict=True)]
        return _FOUND, count, last, buffers, total, count

    def _newest(
        self, queue: ConsumeQueue, queue_offset: int, size_max: int, log_end: int
    ) -> GetMessageResult | None:
        """`_collect_recent` of one message whose unit is in memory, as a woken pull gets it.

        It takes half of the time, and returns None in all other cases.
        """
        config, log = self._config, self._log
        # Units from before the start are verified by `_collect`, and older ones are not in memory.
        if queue_offset < queue.cold_end or queue_offset < queue.tail_offset:
            return None
        at = (queue_offset - queue.tail_offset) * UNIT_SIZE
        first, size = UNIT_PLACE.unpack_from(queue.tail, at)
        position = first % log.file_size
        end = position + size
        if (
            first < log_end - self._near
            or size <= 0
            or first + size > log_end
            or end > log.file_size
            or size > size_max
            or size > config.max_transfer_bytes_on_message_in_memory
        ):
            return None
        view = log.view(first - position)
        if view is None:
            return None
        log.served(size)
        next_offset = queue_offset + 1
        return GetMessageResult(
            _FOUND, next_offset, queue.min_offset, queue.max_offset, [view[position:end]], size, 1,
            False,
        )  # fmt: skip

    def _collect(self, units: Iterable[Unit], wanted: Wanted) -> Collected:
        """Records of `_entries` within the limits, neighbours in the log as one buffer."""
        log, config, file_size = self._log, self._config, self._log.file_size
        count_max, size_max, tags_codes, record_filter, log_end = wanted
        if record_filter is not None:
            tags_codes = MATCHING
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
        for physical_offset, size, tags_code in units:
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
                and tags_code > EXT_ADDRESS_MAX  # otherwise the address of a lost extension
            ):
                continue
            # [run_start, run_end) are neighbours in the log: they become one buffer.
            if physical_offset == run_end and physical_offset != view_base + file_size:
                run_end += size
            else:
                base = physical_offset - physical_offset % file_size
                if not 0 < size <= log_end - physical_offset:
                    if count:  # the next get begins here, and fails
                        read -= 1
                        break
                    raise _no_message(log, physical_offset, size)
                if base != view_base:
                    try:
                        new_view = log.view(base)
                    except StoreIOError:  # no address space for another map: answer the others
                        if not count:
                            raise
                        read -= 1
                        break
                    if new_view is None:
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

    def unit_at(self, queue: ConsumeQueue, queue_offset: int, log_end: int) -> Unit:
        """(physical_offset, size, tags_code) of one message between a queue's ends.

        In a queue of batches these are the fields of the record that holds the message; zeros where
        none does.

        Raises:
          CorruptRecordError: the message is damaged.
          StoreIOError: it could not be read.
        """
        if queue_offset >= queue.cold_end:
            return queue.unit_at(queue_offset)
        if not isinstance(queue, BatchConsumeQueue):
            return self._check.check(queue, queue_offset, log_end)
        verify = self._check.batches(queue, queue_offset, log_end)
        for unit in queue.units(queue_offset):
            if verify is not None:
                verify(unit)
            break
        return queue.unit_at(queue_offset)

    def store_time_at(self, queue: ConsumeQueue, queue_offset: int, *, log_end: int) -> int:
        """Store timestamp (ms) of one message between a queue's ends; -1: its file is gone.

        Raises:
          CorruptRecordError: the message is damaged; see `RecordCheck.large_store_time_at`.
          StoreIOError: it could not be read.
        """
        stored_ms = self._check.large_store_time_at(queue, queue_offset, log_end)
        if stored_ms is not None:
            return stored_ms
        return self._log.store_timestamp_ms(self.unit_at(queue, queue_offset, log_end)[0])

    def record_at(self, physical_offset: int, log_end: int) -> memoryview | None:
        """The record at a physical offset; None when no whole record starts there.

        Raises:
          CorruptRecordError: one starts there, but its checksums are wrong.
          StoreIOError: it could not be read.
        """
        # From before the start: its checksums are checked, because a crash may have torn it.
        if physical_offset < self._verified_from:
            checked = self._check.record_at(physical_offset, log_end)
            return None if checked is None else memoryview(checked)
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
        # A body can hold bytes that look like a record, but not at its own offset.
        return data if record.physical_offset == physical_offset else None

    def query_by_key(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        log_end: int,
        *,
        by_tags: bool = False,
    ) -> Steps[QueryResult]:
        """Steps that find messages by key, unique key or tags, oldest first.

        Entries of other keys with the same hash count towards `count_max`, but are not answered.

        Args:
          count_max: most messages, the newest ones; maxMsgsNumBatch applies, too.
          begin_ms, end_ms: store time, both included. The end is that of the index, whose entries
            have whole seconds: messages of up to 999 ms later may be there, as in RocketMQ.
          log_end: the end of the visible log.
          by_tags: the key is the value of TAGS. Messages that an earlier version indexed are not
            found by it.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: a message that the index names is damaged, or is not there.
        """
        count_max = max(min(count_max, self._config.max_msgs_num_batch), QUERY_COUNT_MAX_MIN)
        indexed = f"{TAG_KEY_HEAD}{key}" if by_tags else key
        found = yield from self._index.query(topic, indexed, count_max, begin_ms, end_ms)
        holds = holds_tags if by_tags else holds_key
        records = []
        for physical_offset in sorted(found.physical_offsets):
            if physical_offset < self._log.min_offset:
                continue  # its file was deleted
            record = self.record_at(physical_offset, log_end)
            if record is None:
                raise CorruptRecordError(
                    self._index.folder,
                    physical_offset,
                    f"the index names a message of topic {topic} with the key {key[:80]!r} at this "
                    "offset, where the log has none; remove this folder while the broker is down "
                    "to have the index built again, and check the log with `trocket store fsck`",
                )
            if holds(record, topic, key) and stored_since(record, begin_ms):
                records.append(record)
        return QueryResult(
            records,
            found.last_update_timestamp_ms,
            found.last_update_physical_offset,
        )

    def _nothing(
        self, status: GetMessageStatus, asked: int, correct: int, min_offset: int, max_offset: int
    ) -> GetMessageResult:
        # A slave does not correct the consumer: the master may be ahead of it.
        next_offset = asked if self._keeps_offsets else correct
        return GetMessageResult(status, next_offset, min_offset, max_offset, [], 0, 0, False)


def _hidden(
    queue: ConsumeQueue, queue_offset: int, record_filter: RecordFilter
) -> Callable[[int], bool] | None:
    """Whether the record of a tags code need not be read; None: all must be.

    Records from before the start are always read: they are verified, but not their bit maps.
    """
    hides = record_filter.hides
    if hides is None or queue_offset < queue.cold_end:
        return None
    return queue.hidden_by(hides) if isinstance(queue, ExtendedConsumeQueue) else None


@lru_cache(maxsize=64)
def _places_struct(count: int) -> Struct:
    """(physical_offset, size) of `count` consecutive units; tags codes are skipped."""
    tags_code_size = UNIT_SIZE - UNIT_PLACE.size
    return Struct(UNIT_PLACE.format[:1] + f"{UNIT_PLACE.format[1:]}{tags_code_size}x" * count)


def _no_message(log: CommitLog, physical_offset: int, size: int) -> CorruptRecordError:
    return CorruptRecordError(
        log.folder,
        physical_offset,
        f"a queue says {size} bytes at this offset, where the log has no message",
    )
