"""Ends transactions, and asks producers about those that stay open.

Java counterpart: TransactionalMessageServiceImpl.java, TransactionalMessageCheckService.java and
DefaultTransactionalMessageCheckListener.java of 5.3.3. Other than there, only the broker's own
clock counts, a check is counted only when a producer was there to be asked, and nothing is given up
in silence: what was asked for too often, or would soon be deleted with its log file, is parked in
TRANS_CHECK_MAX_TIME_TOPIC.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, NamedTuple

import trio

from ..common.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemoteProtocolError
from ..remoting.hosts import host_text
from ..remoting.message import MessageExt
from ..remoting.message_codec import decode_record
from ..remoting.message_id import encode_offset_id
from ..remoting.request_codes import RequestCode
from ..store.clock import Clock
from ..store.errors import CorruptRecordError, StoreIOError
from ..store.message_store import MessageStore
from ..store.offsets import PhysicalOffset, QueueOffset
from ..store.status import PutMessageStatus
from .broker_address import BrokerAddress
from .client_channel_info import ClientChannel
from .config import BrokerConfig
from .consumer_offset_manager import ConsumerOffsetManager
from .due_task import DueTask
from .inner_message import TOO_LARGE, InnerMessage, InnerPuts
from .open_transactions import OpenTransactions
from .producer_manager import ProducerManager
from .transactions import (
    TRANSACTION_GROUP,
    check_times,
    ended_offsets,
    immunity_ms,
    is_op_message,
    op_message,
    parked_half,
    question,
    renewed_half,
)

logger = logging.getLogger(__name__)

SLICE_COUNT: Final = 32
"""Transactions asked for before other work has its turn."""

RETRY_S: Final = 1.0
"""Before a store that refused is asked again."""

SAVE_INTERVAL_S: Final = 10.0
"""Between two notes of how far the transactions are through; a start reads what came since."""

HOUR_MS: Final = 3_600_000
SCAN_COUNT: Final = 32


class _Refused(StoreIOError):
    """The store does not take a message.

    Attributes:
      status: why.
    """

    def __init__(self, topic: str, reason: str, status: PutMessageStatus) -> None:
        super().__init__(topic, reason)
        self.status = status


class _Check(NamedTuple):
    """A half message that was written again, and whom to ask about it."""

    half: MessageExt
    old: int
    physical_offset: PhysicalOffset
    queue_offset: QueueOffset
    channel: ClientChannel


class TransactionService:
    """All open transactions of a broker.

    Args:
      config: the broker's.
      store: already loaded when `load` is called.
      address: of this broker, for op messages.
      clock: whose wall time counts.
      producers: who can be asked.
      offsets: where the progress is noted.
      puts: appends.
      on_messages: called with the queues that got messages.

    Attributes:
      open: the table.
      parked: how many were parked since the start.
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
        self.parked = 0
        self._config = config
        self._address = address
        self._store = store
        self._clock = clock
        self._producers = producers
        self._offsets = offsets
        self._puts = puts
        self._on_messages = on_messages
        self._task = DueTask(self._work, failing="transactions are checked later", retry_s=RETRY_S)
        self._asked = 0
        # Of this turn, until its commit:
        self._new: list[tuple[int, int]] = []
        self._ending: dict[int, None] = {}

    def wake(self) -> None:
        """Look at the clock again."""
        self._task.wake()

    # ---- in a turn -----------------------------------------------------------------------

    def put_half(self, queue_offset: int, properties: bytes) -> None:
        """A half message was appended, and is open once the turn is committed."""
        self._new.append((queue_offset, self._store.now_ms + self._wait_ms(properties)))

    def can_end(self, queue_offset: int) -> int | None:
        """The open transaction that a producer means; None: it is through."""
        current = self.open.current(queue_offset)
        return None if current in self._ending else current

    def end(self, queue_offset: int) -> None:
        """A transaction is through once the turn is committed."""
        self._ending[queue_offset] = None

    def age_ms(self, half: MessageExt) -> int:
        """How long ago a half message was stored, by this broker's clock."""
        return self._clock.wall_ms() - half.store_timestamp_ms

    def before_commit(self) -> None:
        """Append the turn's op message."""
        if self._ending:
            refusal, _, _ = self._puts.put(
                op_message(self._ending, self._address.store_host, self._store.now_ms)
            )
            if refusal is not None:
                # What was committed is; its producers will be asked, and say so again.
                logger.error("the ends of transactions %s are not noted", list(self._ending))
                self._ending.clear()

    def after_commit(self, done: bool) -> None:
        """The turn was committed, or nothing of it was stored."""
        if done:
            op_mark = self._op_end
            for offset in self._ending:
                self.open.end(offset)
            for offset, due_ms in self._new:
                self.open.open(offset, due_ms, op_mark)
            if self._new:
                self._task.wake()
        self._new.clear()
        self._ending.clear()

    @property
    def _op_end(self) -> int:
        return self._store.max_offset(TRANS_OP_HALF_TOPIC, 0)

    # ---- at the start --------------------------------------------------------------------

    def load(self) -> None:
        """Find out from the files what is open.

        Raises: StoreError: they could not be read.
        """
        half_start, op_start = (
            max(self._offsets.query_offset(TRANSACTION_GROUP, topic, 0), 0)
            for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
        )
        through = {
            offset
            for op in self._read(TRANS_OP_HALF_TOPIC, op_start)
            if self._is_own(op)
            for offset in ended_offsets(op)
            if offset >= half_start
        }
        for half in self._read(TRANS_HALF_TOPIC, half_start, skip=through):
            if self.open.is_full:
                logger.error("more than %d transactions are open", len(self.open))
                break
            try:
                self._puts.kinds.real_place(half)
            except ValueError as error:
                logger.error(
                    "half message %d is left out, its transaction cannot be committed: %s",
                    half.queue_offset, error,
                )  # fmt: skip
                continue
            due_ms = half.store_timestamp_ms + self._wait_ms(half.properties_bytes)
            self.open.open(half.queue_offset, due_ms, op_start)
        if len(self.open):
            logger.info("%d transactions are open", len(self.open))

    def _is_own(self, op: MessageExt) -> bool:
        """Whether a broker wrote an op message by itself; an old store may hold a client's."""
        if is_op_message(op):
            return True
        logger.error(
            "op message %d is left out, a client at %s made it: it would end the transactions %r",
            op.queue_offset, host_text(op.born_host), op.body[:80],
        )  # fmt: skip
        return False

    def _read(
        self, topic: str, queue_offset: int, skip: Collection[int] = ()
    ) -> Iterator[MessageExt]:
        queue_offset = max(queue_offset, self._store.min_offset(topic, 0))
        while queue_offset < self._store.max_offset(topic, 0):
            if queue_offset in skip:
                queue_offset += 1
                continue
            try:
                result = self._store.get_message(topic, 0, queue_offset, 1)
                queue_offset = max(queue_offset + 1, result.next_begin_offset)
                for buffer in result.buffers:
                    yield decode_record(buffer)
            except (CorruptRecordError, RemoteProtocolError) as error:
                logger.error("message %d of %s is left out: %s", queue_offset, topic, error)
                queue_offset += 1

    # ---- asking --------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask about what is due, until cancelled."""
        task_status.started()
        await self._task.run()

    def _work(self) -> float:
        """One slice of what is due; seconds until something is."""
        left_s = self._left_s()
        if left_s <= 0:
            self._ask_slice()
            left_s = self._left_s()
        return left_s

    def _left_s(self) -> float:
        due_ms = self.open.next_due_ms()
        return math.inf if due_ms is None else (due_ms - self._clock.wall_ms()) / 1000

    def _ask_slice(self) -> None:
        """Write again what is due and ask its producers.

        Raises: StoreError: nothing was written; all of it is due again a little later.
        """
        now_ms = self._clock.wall_ms()
        taken: list[int] = []
        try:
            self._ask_taken(now_ms, taken)
        except Exception:
            self._store.roll_back()
            self._put_off(taken, now_ms)
            raise

    def _ask_taken(self, now_ms: int, taken: list[int]) -> None:
        """See `_ask_slice`; `taken` gets the queue offsets of what it begins with."""
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
                    self.open.put_off(offset, later_ms)  # its fsync is not over yet
                    continue
                half = next(self._read(TRANS_HALF_TOPIC, offset), None)
                if half is None or half.queue_offset != offset:
                    logger.error("half message %d is not there any more, it is given up", offset)
                    parked.append(offset)
                    continue
                times = check_times(half)
                if times >= self._config.transaction_check_max or self._is_old(half, now_ms):
                    self._put(parked_half(half))
                    parked.append(offset)
                    logger.error(
                        "transaction %s of %s is parked in TRANS_CHECK_MAX_TIME_TOPIC after %d "
                        "checks", half.unique_key, half.properties.get("PGROUP"), times,
                    )  # fmt: skip
                    continue
                channel = self._producer(half.properties.get("PGROUP", ""))
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
            through = [*parked, *(check.old for check in checks)]
            if through:
                self._put(op_message(through, self._address.store_host, now_ms))
        except _Refused as error:
            refused = error
        arrivals = self._store.commit()
        for offset in parked:
            self.open.end(offset)
        self.parked += len(parked)
        for check in checks:
            self.open.renew(check.old, check.queue_offset, later_ms, op_mark)
        self._ask_when_stored(checks)
        if arrivals:
            self._on_messages(arrivals)
        if refused is not None:
            raise refused

    def _put_off(self, offsets: Iterable[int], due_ms: int) -> None:
        """What was taken, and is not through or planned already, is due again."""
        for offset in offsets:
            if self.open.current(offset) == offset:
                self.open.put_off(offset, due_ms)

    def _wait_ms(self, properties: bytes) -> int:
        """How long after it was stored a half message is checked: before it is old, in any case."""
        timeout_ms = self._config.transaction_time_out
        return min(immunity_ms(properties, timeout_ms), max(self._old_ms, timeout_ms))

    @property
    def _old_ms(self) -> int:
        """The age at which a message's log file may soon be deleted: half of fileReservedTime."""
        return self._store.config.file_reserved_time * HOUR_MS // 2

    def _is_old(self, half: MessageExt, now_ms: int) -> bool:
        return now_ms - half.store_timestamp_ms > self._old_ms

    def _put(self, message: InnerMessage) -> tuple[PhysicalOffset, QueueOffset]:
        refusal, physical_offset, queue_offset = self._puts.put(message)
        if refusal is not None:
            status, remark = refusal
            raise _Refused(message.topic, remark or f"the store answers {status.name}", status)
        return physical_offset, queue_offset

    def _put_renewed(
        self, half: MessageExt, times: int
    ) -> tuple[PhysicalOffset, QueueOffset] | None:
        """Write a half message again; None: it is too large, and no later try will be better."""
        message = renewed_half(half, times)
        try:
            return self._put(message)
        except _Refused as error:
            if error.status not in TOO_LARGE:
                raise
        logger.error(
            "half message %d of %s stays open and its producer is not asked about it: it is too "
            "large to be written again; end the transaction from its producer",
            half.queue_offset, half.properties.get("PGROUP"),
        )  # fmt: skip
        return None

    def _producer(self, group: str) -> ClientChannel | None:
        """One of a group's producers, each in its turn."""
        channels = [each for each in self._producers.group_table.get(group, ()) if not each.closed]
        if not channels:
            return None
        self._asked += 1
        return channels[self._asked % len(channels)]

    def _ask_when_stored(self, checks: list[_Check]) -> None:
        """Ask; under SYNC_FLUSH behind the fsync, whatever came of it.

        A producer must not hear of a copy that a power cut takes back: the check would not count,
        and its answer would name a place where something else may be by then.
        """

        def ask(_: bool) -> None:
            for check in checks:
                self._ask(check)

        if checks and self._store.writer.sync_flush:
            self._store.flusher.when_flushed(checks[-1].physical_offset, ask)
        else:
            ask(True)

    def _ask(self, check: _Check) -> None:
        """CHECK_TRANSACTION_STATE 39, oneway: the body is the half message as it was sent.

        Source: AbstractTransactionalMessageCheckListener.sendCheckMessage.
        """
        half = check.half
        unique_key = half.unique_key or ""
        fields = {
            "bname": self._config.broker_name,
            "commitLogOffset": str(check.physical_offset),
            "topic": TRANS_HALF_TOPIC,
            "msgId": unique_key,
            "tranStateTableOffset": str(check.queue_offset),
            "offsetMsgId": encode_offset_id(half.store_host, check.physical_offset),
            "transactionId": unique_key,
        }
        body = question(half, check.physical_offset, check.queue_offset)
        command = RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, fields, body)
        check.channel.send_oneway(command)

    # ---- the progress --------------------------------------------------------------------

    async def save(self) -> None:
        """Note from time to time how far the transactions are through, until cancelled."""
        while True:
            await trio.sleep(SAVE_INTERVAL_S)
            half, op = self._through()
            # What says that they are through is on the device before that is noted.
            flusher = self._store.flusher
            await flusher.flush_in_thread(threaded=self._store.disk.threaded)
            if flusher.failure is None:
                self._note(half, op)

    def note_through(self) -> None:
        """Note it now, at a stop; the store must be flushed."""
        if self._store.flusher.failure is None:
            self._note(*self._through())

    def _through(self) -> tuple[int, int]:
        return self.open.through(self._store.max_offset(TRANS_HALF_TOPIC, 0), self._op_end)

    def _note(self, half: int, op: int) -> None:
        for topic, offset in ((TRANS_HALF_TOPIC, half), (TRANS_OP_HALF_TOPIC, op)):
            known = self._offsets.query_offset(TRANSACTION_GROUP, topic, 0)
            if offset != max(known, 0):
                self._offsets.commit_offset(TRANSACTION_GROUP, topic, 0, offset)
