"""TransactionService: ends transactions, and checks open ones with their producers.

Java counterpart: TransactionalMessageServiceImpl.java, TransactionalMessageCheckService.java and
DefaultTransactionalMessageCheckListener.java of 5.3.3. Differences: only the broker's clock is
used, a check counts only if a producer was connected, and no transaction is dropped silently: one
that was checked too often, or whose log file will soon be deleted, is parked in
TRANS_CHECK_MAX_TIME_TOPIC.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

import trio

from ...common.clock import Clock
from ...common.message_properties import PROPERTY_PRODUCER_GROUP, PROPERTY_REAL_TOPIC
from ...common.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANSACTION_GROUP
from ...disk.errors import CorruptRecordError, StoreIOError
from ...native.path_counts import PathCounts
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError
from ...remoting.headers import CheckTransactionStateRequestHeader, encode_header
from ...remoting.hosts import host_text
from ...remoting.memory_limit import default_budget
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_record
from ...remoting.message_id import encode_offset_id
from ...remoting.request_codes import RequestCode
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset, QueueOffset
from ...store.reading.hidden_records import stored_record
from ...store.status import PutMessageStatus
from ..clients.client_channel_info import ClientChannel
from ..clients.producer_manager import ProducerManager
from ..messages.half_messages import (
    OP_PROPERTIES,
    OP_TAGS_CODE,
    check_times,
    ended_offsets,
    immunity_ms,
    is_op_message,
    op_body,
    op_message,
    parked_half,
    question,
    renewed_half,
)
from ..messages.inner_message import TOO_LARGE, InnerMessage, InnerPuts
from ..settings.broker_address import BrokerAddress
from ..settings.config import BrokerConfig
from ..stats.transaction_ends import TransactionEnds
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..waiting.due_task import DueTask
from .half_message_cache import CachedHalf, HalfMessageCache, cache_size
from .open_transactions import OpenTransactions

logger = logging.getLogger(__name__)

SLICE_COUNT: Final = 32
"""Transactions checked before other tasks run."""

RETRY_S: Final = 1.0
"""The pause after the store refused a message."""

SAVE_INTERVAL_S: Final = 10.0
"""Between two saves of the progress; a start reads the queues from the saved progress on."""

HOUR_MS: Final = 3_600_000
SCAN_COUNT: Final = 32


class _Refused(StoreIOError):
    """The store refuses a message."""

    def __init__(self, topic: str, reason: str, status: PutMessageStatus) -> None:
        super().__init__(topic, reason)
        self.status = status


class _Check(NamedTuple):
    """A half message that was written again, and the producer to check it with."""

    half: MessageExt
    old: int
    physical_offset: PhysicalOffset
    queue_offset: QueueOffset
    channel: ClientChannel


class TransactionService:
    """The open transactions of a broker, and the task that checks them.

    Args:
      store: already loaded when `load` is called.
      address: of this broker, for op messages.
      clock: its wall time decides when checks are due.
      offsets: stores the progress.
      puts: appends messages.
      on_messages: called with the queues that got messages.

    Attributes:
      open: the table of open transactions.
      cache: half messages that were stored lately.
      ends: counts of commits and rollbacks since the start.
      counts: of half messages and ends that were served as runs.
      parked: the number of transactions parked since the start.
      may_ask: whether a producer may see a topic's half messages: any may, without accounts.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        address: BrokerAddress,
        clock: Clock,
        producers: ProducerManager,
        offsets: ConsumerOffsetManager,
        puts: InnerPuts,
        on_messages: Callable[[Collection[tuple[str, int]]], None],
    ) -> None:
        self.open = OpenTransactions()
        self.cache = HalfMessageCache(cache_size(config.remoting_bytes_max or default_budget()))
        self.ends = TransactionEnds()
        self.counts = PathCounts(is_judged=False)
        self.parked = 0
        self.may_ask: Callable[[ClientChannel, str], bool] = lambda channel, topic: True
        self._config = config
        self._address = address
        self._store = store
        self._clock = clock
        self._producers = producers
        self._offsets = offsets
        self._puts = puts
        self._on_messages = on_messages
        self._task = DueTask(self._work, failing="transactions are checked later", retry_s=RETRY_S)
        # The time for which the task sleeps; it is woken for half messages that are due earlier.
        self._sleeps_until_ms = math.inf
        self._asked = 0
        # Collected during a turn, until its commit:
        self._new: list[tuple[int, int]] = []
        self._new_usual: list[CachedHalf] = []
        self._ending: dict[int, None] = {}

    def wake(self) -> None:
        """Read the clock again."""
        self._task.wake()

    @property
    def is_busy(self) -> bool:
        """Whether something is due and not done yet, as `DueTask.is_busy`."""
        return self._task.is_busy

    # ---- in a turn -----------------------------------------------------------------------

    def put_half(self, queue_offset: int, properties: bytes) -> None:
        """Record an appended half message, which is open once the turn is committed."""
        self._new.append((queue_offset, self._now_ms() + self._wait_ms(properties)))

    def put_usual_half(self, half: CachedHalf) -> None:
        """`put_half` for a half message without an immunity time, which is then cached."""
        self._new_usual.append(half)

    def can_end(self, queue_offset: int) -> int | None:
        """The newest copy of the open transaction at an offset; None: it has ended."""
        current = self.open.current(queue_offset)
        return None if current in self._ending else current

    def end(self, queue_offset: int) -> None:
        """Record the end of a transaction, which takes effect once the turn is committed."""
        self._ending[queue_offset] = None

    def age_ms(self, half: MessageExt) -> int:
        """The age of a half message by this broker's wall clock; 0 if that was set back since."""
        return max(self._clock.wall_ms() - half.store_timestamp_ms, 0)

    def _now_ms(self) -> int:
        """The time by which checks are due: it follows no jump of the wall clock."""
        return int(self._clock.elapsed_s() * 1000)

    def before_commit(self) -> None:
        """Append the turn's op message."""
        if self._ending:
            refusal, _, _ = self._store.put_message(
                TRANS_OP_HALF_TOPIC,
                0,
                op_body(self._ending),
                OP_PROPERTIES,
                born_timestamp_ms=self._store.wall_time_ms,
                born_host=self._address.store_host,
                store_host=self._address.store_host,
                tags_code=OP_TAGS_CODE,
            )
            if refusal is not None:
                # Committed messages stay; their producers are checked and commit again.
                logger.error(
                    "the ends of transactions %(queue_offsets)s could not be recorded: their "
                    "producers are asked again, and committed messages may be delivered twice",
                    {"queue_offsets": list(self._ending)},
                )
                self._ending.clear()

    def after_commit(self, done: bool) -> None:
        """Apply the turn's changes if it was committed (`done`); otherwise drop them."""
        if done:
            op_mark = self._op_end
            for offset in self._ending:
                self.open.end(offset)
            dues_ms = []
            for offset, due_ms in self._new:
                self.open.open(offset, due_ms, op_mark)
                dues_ms.append(due_ms)
            halves = self._new_usual
            if halves:
                due_ms = self._now_ms() + self._config.transaction_time_out
                self.open.open_all([half.queue_offset for half in halves], due_ms, op_mark)
                dues_ms.append(due_ms)
                for half in halves:
                    self.cache.add(half)
            # The service sleeps until the earliest check, and this one is earlier.
            if dues_ms and min(dues_ms) < self._sleeps_until_ms:
                self._task.wake()
        self._new.clear()
        self._new_usual.clear()
        self._ending.clear()

    @property
    def _op_end(self) -> int:
        return self._store.max_offset(TRANS_OP_HALF_TOPIC, 0)

    # ---- at the start --------------------------------------------------------------------

    def load(self) -> None:
        """Read the open transactions from the half queue and the op queue.

        Raises: StoreError: they could not be read.
        """
        half_start, op_start = (
            max(self._offsets.query_offset(TRANSACTION_GROUP, topic, 0), 0)
            for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
        )
        ended = {
            offset
            for op in self._read(TRANS_OP_HALF_TOPIC, op_start)
            if self._is_own(op)
            # Ends before the committed offset of the half queue belong to messages that are not
            # read again.
            for offset in ended_offsets(op)
            if offset >= half_start
        }
        for half in self._read(TRANS_HALF_TOPIC, half_start, skip=ended):
            if self.open.is_full:
                logger.error(
                    "more than %(count)d transactions are open, and the later ones are not "
                    "checked: end them from their producers, then restart the broker",
                    {"count": len(self.open)},
                )
                break
            try:
                self._puts.kinds.real_place(half)
            except ValueError as error:
                logger.error(
                    "half message %(queue_offset)d is skipped, its transaction cannot be "
                    "committed: %(error)s",
                    {"queue_offset": half.queue_offset, "error": error},
                )
                continue
            # A restart does not begin the wait for the first check anew.
            left_ms = self._wait_ms(half.properties_bytes) - self.age_ms(half)
            self.open.open(half.queue_offset, self._now_ms() + left_ms, op_start)
        if len(self.open):
            logger.info("%(count)d transactions are open", {"count": len(self.open)})

    def _is_own(self, op: MessageExt) -> bool:
        """Whether a broker wrote an op message; an older version let clients write them, too."""
        if is_op_message(op):
            return True
        logger.error(
            "op message %(queue_offset)d is ignored, because a client at %(born_host)s sent it: "
            "it would end the transactions %(body)r",
            {
                "queue_offset": op.queue_offset,
                "born_host": host_text(op.born_host),
                "body": op.body[:80],
            },
        )
        return False

    def _read(
        self, topic: str, queue_offset: int, skip: Collection[int] = ()
    ) -> Iterator[MessageExt]:
        store = self._store
        queue_offset = max(queue_offset, store.min_offset(topic, 0))
        # Also those that are not confirmed: they are not read again when they are.
        while queue_offset < store.queue_store.end_of(topic, 0):
            if queue_offset in skip:
                queue_offset += 1
                continue
            try:
                if queue_offset >= store.max_offset(topic, 0):
                    queue = store.queue_store.queues[topic, 0]
                    end = store.max_physical_offset
                    record = stored_record(store.reader, queue, queue_offset, end)
                    queue_offset += 1
                    if record is not None:
                        yield decode_record(bytes(record))
                    continue
                result = store.get_message(topic, 0, queue_offset, 1)
                # At least one further, also where no message is.
                queue_offset = max(queue_offset + 1, result.next_begin_offset)
                for buffer in result.buffers:
                    yield decode_record(buffer)
            except (CorruptRecordError, RemoteProtocolError) as error:
                logger.error(
                    "message %(queue_offset)d of %(topic)s is skipped: %(error)s",
                    {"queue_offset": queue_offset, "topic": topic, "error": error},
                )
                queue_offset += 1

    # ---- checks --------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check due transactions, until cancelled."""
        task_status.started()
        await self._task.run()

    def _work(self) -> float:
        """Check one slice of the due transactions; return the seconds until the next is due."""
        left_s = self._left_s()
        if left_s <= 0:
            self._check_slice()
            left_s = self._left_s()
        return left_s

    def _left_s(self) -> float:
        due_ms = self.open.next_due_ms()
        self._sleeps_until_ms = math.inf if due_ms is None else due_ms
        return math.inf if due_ms is None else (due_ms - self._now_ms()) / 1000

    def _check_slice(self) -> None:
        """Write due half messages again and ask their producers.

        Raises: StoreError: nothing was written; they are due again a little later.
        """
        now_ms = self._now_ms()
        taken: list[int] = []
        try:
            self._check_due(now_ms, taken)
        except Exception:
            self._store.roll_back()
            self._put_off(taken, now_ms)
            raise

    def _check_due(self, now_ms: int, taken: list[int]) -> None:
        """See `_check_slice`; the queue offsets of the checked half messages go into `taken`."""
        later_ms = now_ms + self._config.transaction_check_interval
        checks: list[_Check] = []
        parked: list[int] = []
        self._store.begin_burst()
        try:
            for _ in range(SLICE_COUNT):
                offset = self.open.take_due(now_ms)
                if offset is None:
                    break
                taken.append(offset)
                if offset >= self._store.max_offset(TRANS_HALF_TOPIC, 0):
                    self.open.put_off(offset, later_ms)  # not fsynced yet
                    continue
                half = self._due_half(offset)
                if half is None:
                    parked.append(offset)
                    continue
                times = check_times(half)
                if times >= self._config.transaction_check_max or self._is_old(half):
                    self._put(parked_half(half))
                    parked.append(offset)
                    logger.error(
                        "transaction %(message_id)s of producer group %(group)s is parked in "
                        "TRANS_CHECK_MAX_TIME_TOPIC after %(times)d checks; "
                        "RESUME_CHECK_HALF_MESSAGE (323) checks it again",
                        {
                            "message_id": half.unique_key,
                            "group": half.properties.get(PROPERTY_PRODUCER_GROUP),
                            "times": times,
                        },
                    )
                    continue
                channel = self._producer(half)
                if channel is None:
                    self.open.put_off(offset, later_ms)
                    continue
                place = self._put_renewed(half, times + 1)
                if place is None:
                    self.open.put_off(offset, later_ms)
                    continue
                checks.append(_Check(half, offset, *place, channel))
            refused = None
        except _Refused as error:
            refused = error
        op_mark = self._op_end
        try:
            ended = [*parked, *(check.old for check in checks)]
            if ended:
                self._put(op_message(ended, self._address.store_host, self._store.wall_time_ms))
        except _Refused as error:
            refused = error
        arrivals = self._store.commit()
        for offset in parked:
            self.open.end(offset)
        self.parked += len(parked)
        for check in checks:
            self.open.renew(check.old, check.queue_offset, later_ms, op_mark)
        self._ask_when_flushed(checks)
        if arrivals:
            self._on_messages(arrivals)
        if refused is not None:
            raise refused

    def _due_half(self, offset: int) -> MessageExt | None:
        """A half message that is due; None: it is gone."""
        half = next(self._read(TRANS_HALF_TOPIC, offset), None)
        if half is not None and half.queue_offset == offset:
            # It is written again or parked, and its end reads what is current then.
            self.cache.remove(half.physical_offset)
            return half
        logger.error(
            "half message %(offset)d is gone, its log file was deleted or is damaged: its "
            "transaction is dropped",
            {"offset": offset},
        )
        return None

    def _put_off(self, offsets: Iterable[int], due_ms: int) -> None:
        """Schedule those half messages again that have neither ended nor been written again."""
        for offset in offsets:
            if self.open.current(offset) == offset:
                self.open.put_off(offset, due_ms)

    def _wait_ms(self, properties: bytes) -> int:
        """The time from the storing of a half message to its first check, less than `_old_ms`."""
        timeout_ms = self._config.transaction_time_out
        return min(immunity_ms(properties, timeout_ms), max(self._old_ms, timeout_ms))

    @property
    def _old_ms(self) -> int:
        """The age at which a message's log file may soon be deleted: half of fileReservedTime."""
        return self._store.config.file_reserved_time * HOUR_MS // 2

    def _is_old(self, half: MessageExt) -> bool:
        return self.age_ms(half) > self._old_ms

    def _put(self, message: InnerMessage) -> tuple[PhysicalOffset, QueueOffset]:
        refusal, physical_offset, queue_offset = self._puts.put(message)
        if refusal is not None:
            status, remark = refusal
            raise _Refused(message.topic, remark or f"the store returned {status.name}", status)
        return physical_offset, queue_offset

    def _put_renewed(
        self, half: MessageExt, times: int
    ) -> tuple[PhysicalOffset, QueueOffset] | None:
        """Write a half message again; None: it is too large, so a retry would fail as well."""
        message = renewed_half(half, times)
        try:
            return self._put(message)
        except _Refused as error:
            if error.status not in TOO_LARGE:
                raise
        logger.error(
            "half message %(queue_offset)d of producer group %(group)s stays open and is not "
            "checked, because it is too large to be written again: end the transaction from its "
            "producer",
            {
                "queue_offset": half.queue_offset,
                "group": half.properties.get(PROPERTY_PRODUCER_GROUP),
            },
        )
        return None

    def _producer(self, half: MessageExt) -> ClientChannel | None:
        """One of the message's producer group, round-robin; a check shows it the message."""
        group = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
        topic = half.properties.get(PROPERTY_REAL_TOPIC, "")
        channels = [
            each
            for each in self._producers.group_table.get(group, ())
            # A check shows the message, so the client must be allowed to send to its topic.
            if not each.closed and self.may_ask(each, topic)
        ]
        if not channels:
            return None
        self._asked += 1
        return channels[self._asked % len(channels)]

    def _ask_when_flushed(self, checks: list[_Check]) -> None:
        """Ask the producers; under SYNC_FLUSH after the fsync, even a failed one."""

        def ask(_: bool) -> None:
            for check in checks:
                self._ask(check)

        # A producer must not learn of a copy that a power cut may undo: the check would not be
        # counted, and the answer might name an offset that holds another message by then.
        if checks and self._store.writer.sync_flush:
            self._store.flusher.when_flushed(checks[-1].physical_offset, ask)
        else:
            ask(True)

    def _ask(self, check: _Check) -> None:
        """Send CHECK_TRANSACTION_STATE 39, oneway; the body is the half message as it was sent.

        Source: AbstractTransactionalMessageCheckListener.sendCheckMessage.
        """
        half = check.half
        unique_key = half.unique_key or ""
        header = CheckTransactionStateRequestHeader(
            broker_name=self._config.broker_name,
            commit_log_offset=check.physical_offset,
            topic=TRANS_HALF_TOPIC,
            msg_id=unique_key,
            tran_state_table_offset=check.queue_offset,
            offset_msg_id=encode_offset_id(half.store_host, check.physical_offset),
            transaction_id=unique_key,
        )
        body = question(half, check.physical_offset, check.queue_offset)
        fields = encode_header(header)
        command = RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, fields, body)
        check.channel.send_oneway(command)

    # ---- the progress --------------------------------------------------------------------

    async def save(self) -> None:
        """Save the progress periodically, until cancelled."""
        while True:
            await trio.sleep(SAVE_INTERVAL_S)
            half, op = self._progress()
            # The op messages are on the device before the progress that relies on them is saved.
            flusher = self._store.flusher
            await flusher.flush_in_thread(threaded=self._store.disk.threaded)
            if flusher.failure is None:
                self._record_progress(half, op)

    def note_progress(self) -> None:
        """Save the progress at a stop; the store must be flushed."""
        if self._store.flusher.failure is None:
            self._record_progress(*self._progress())

    def _progress(self) -> tuple[int, int]:
        return self.open.through(self._store.max_offset(TRANS_HALF_TOPIC, 0), self._op_end)

    def _record_progress(self, half: int, op: int) -> None:
        for topic, offset in ((TRANS_HALF_TOPIC, half), (TRANS_OP_HALF_TOPIC, op)):
            known = self._offsets.query_offset(TRANSACTION_GROUP, topic, 0)
            if offset != max(known, 0):
                self._offsets.commit_offset(TRANSACTION_GROUP, topic, 0, offset)
