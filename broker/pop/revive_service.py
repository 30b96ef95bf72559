"""ReviveService: redelivers popped messages that were not acknowledged in time.

It reads the revive topic, has `revive_queue.py` decide what is due, and stores copies of the
messages in the group's retry topic. A message that cannot be read now is tried again later, by a
new check point. One task for all queues; it sleeps until a record arrives or a check point is due.

The offset of CID_RMQ_SYS_REVIVE_GROUP in a queue is that of the last record that is not needed any
more. It is recorded only when the log is on the device up to what was written for that record; a
crash repeats the last deliveries.

Java counterpart: broker/processor/PopReviveService.java of 5.5.0, which has a thread for each queue
and reads each acknowledgement many times.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import trio

from ...common.clock import Clock
from ...common.supervision import FailureLog
from ...common.topic_names import REVIVE_GROUP, REVIVE_TOPIC_PREFIX
from ...disk.errors import CorruptRecordError, StoreError
from ...remoting.channel import Postponed
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import decode_record
from ...store.message_store import MessageStore
from ..delivering.timer_message_service import TimerMessageService
from ..settings.config import BrokerConfig
from ..settings.pop_config import REVIVE_QUEUES_MAX
from ..stats.pop_counts import PopCounts, RecordKind
from ..tables.consumer_offset_manager import ConsumerOffsetManager, key_of
from ..tables.topic_config_manager import TopicConfigManager
from ..waiting.due_task import DueTask
from .check_point import CheckPoint
from .records import Ack
from .redelivery import SLICE_COUNT, Redelivery, ReviveSlice
from .revive_queue import ReviveQueue

logger = logging.getLogger(__name__)

BEHIND_S: Final = 0.05
"""Between two looks at a timer service that is behind."""

RECORD_S: Final = 0.2
"""Between two looks whether the log is on the device. The store syncs it each half second."""

EARLY_ACKS_S: Final = 1.0
"""Between two looks whether acks still wait for their check points."""

PUT_OFF_MS: Final = 1_000
"""The pause before a check point is tried again that failed with an unexpected error."""


class ReviveLag(NamedTuple):
    """How far a revive queue is behind.

    Attributes:
      unread: records that are not read.
      oldest_ms: when the first of them was stored, ms since 1970; 0 if there is none.
    """

    unread: int
    oldest_ms: int


class _Moment(NamedTuple):
    """A state of the timer service, and of the log that has what it delivered.

    Attributes:
      timers_ms: all timer messages with a lower TIMER_OUT_MS were delivered.
      now_ms: the wall clock.
      log_end: physical offset.
    """

    timers_ms: float
    now_ms: int
    log_end: int


class _Progress(NamedTuple):
    """Offsets that may be recorded when the log is on the device up to `log_end`.

    Attributes:
      log_end: physical offset.
      offsets: of the last record that is done, by queue.
    """

    log_end: int
    offsets: Mapping[int, int]


class ReviveService:
    """Revives messages, in one task, on a master.

    Args:
      store: already loaded when `load` is called.
      clock: its wall time decides what is due.
      timers: deliver the records.
      topic: the revive topic.
      redelivery: appends what check points need.
      on_messages: called with the queues that got messages.
      counts: counts the records that are read.

    Attributes:
      revived: the number of messages put into retry topics since the start.
      re_puts: the number of messages that could not be read and are tried again later.
      on_revived: called with a check point and the number of its messages that are decided.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        clock: Clock,
        timers: TimerMessageService,
        offsets: ConsumerOffsetManager,
        topic: str,
        topics: TopicConfigManager,
        redelivery: Redelivery,
        on_messages: Callable[[Collection[tuple[str, int]]], None],
        counts: PopCounts | None = None,
    ) -> None:
        self.revived = 0
        self.re_puts = 0
        self.on_revived: Callable[[CheckPoint, int], None] = _ignore
        self._config = config
        self._store = store
        self._clock = clock
        self._timers = timers
        self._offsets = offsets
        self._topic = topic
        self._topics = topics
        self._redelivery = redelivery
        self._on_messages = on_messages
        self._counts = counts or PopCounts()
        self._queues: dict[int, ReviveQueue] = {}
        self._turns: deque[int] = deque()  # the queues, the next one to be served first
        self._keys: frozenset[tuple[str, int]] = frozenset()
        self._pending: _Moment | None = None
        self._settled = _Moment(0, 0, 0)
        self._unrecorded: _Progress | None = None
        self._failures = FailureLog(logger)
        self._task = DueTask(self._work, failing="popped messages are revived later")

    # ---- at the start --------------------------------------------------------------------

    def load(self) -> None:
        """Begin after the recorded offsets. The offsets and topics are loaded, too.

        The topic keeps the queues of a higher reviveQueueNum: records for them may still wait as
        timer messages.
        """
        topic = self._topics.select(self._topic)
        count = self._config.revive_queue_num
        if topic is not None:
            count = max(count, min(topic.read_queue_nums, REVIVE_QUEUES_MAX))
        topics = self._store.topics()
        for name in topics:
            if name.startswith(REVIVE_TOPIC_PREFIX) and name != self._topic:
                logger.warning(
                    "topic %(other)s is that of another brokerClusterName: messages that were "
                    "popped under that name and not acknowledged do not come again. Start the "
                    "broker with that name, and wait for their invisible time, if they matter",
                    {"other": name},
                )
        ids = sorted({*range(count), *topics.get(self._topic, ())})
        self._turns = deque(ids)
        self._keys = frozenset((self._topic, queue_id) for queue_id in ids)
        for queue_id in ids:
            recorded = self._recorded(queue_id)
            end = self._store.queue_store.end_of(self._topic, queue_id)
            begin = max(recorded + 1, self._store.min_offset(self._topic, queue_id))
            self._queues[queue_id] = ReviveQueue(min(begin, end), self._config.broker_name)
            if recorded >= end > 0:  # after a power cut; the next records would be skipped
                self._record(queue_id, end - 1)
            elif recorded >= end:
                self._offsets.drop_offset(key_of(self._topic, REVIVE_GROUP), queue_id)

    def _recorded(self, queue_id: int) -> int:
        return self._offsets.query_offset(REVIVE_GROUP, self._topic, queue_id)

    def _record(self, queue_id: int, offset: int) -> None:
        self._offsets.commit_offset(REVIVE_GROUP, self._topic, queue_id, offset)

    # ---- running -------------------------------------------------------------------------

    def arrived(self, queues: Collection[tuple[str, int]]) -> None:
        """Process new messages; called with all queues that have some."""
        if not self._keys.isdisjoint(queues):
            self._task.wake()

    def clock_set(self) -> None:
        """Read the clock again, which a test moved."""
        now_ms = self._clock.wall_ms()
        for queue in self._queues.values():
            queue.set_ms = now_ms
        self._task.wake()

    @property
    def is_busy(self) -> bool:
        """Whether a check point is due and not decided yet, or records are not read."""
        next_ms = min((each.next_due_ms() for each in self._queues.values()), default=math.inf)
        return self._task.is_busy or next_ms <= self._clock.wall_ms()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Revive until cancelled."""
        task_status.started()
        await self._task.run()

    def _work(self) -> float:
        """Do one slice of the due work; return the seconds until more is due."""
        now_ms = self._clock.wall_ms()
        self._settle(now_ms)
        self._note_progress()
        used = 0
        for _ in range(len(self._turns)):
            queue_id = self._turns[0]
            self._turns.rotate(-1)
            used += self._serve(queue_id)
            if used >= SLICE_COUNT:
                return 0
        self._note_progress()
        return self._left_s(now_ms)

    def _left_s(self, now_ms: int) -> float:
        queues = self._queues.values()
        next_ms = min((queue.next_due_ms() for queue in queues), default=math.inf)
        left_s = (next_ms - now_ms) / 1000
        if left_s <= 0:
            left_s = BEHIND_S
        if self._unrecorded is not None:
            left_s = min(left_s, RECORD_S)
        if any(queue.has_early_acks for queue in queues):
            left_s = min(left_s, EARLY_ACKS_S)
        return left_s

    def _settle(self, now_ms: int) -> None:
        """Record what the timer service has delivered, once that can be read.

        Under SYNC_FLUSH it is visible only when it is on the device.
        """
        if self._pending is None:
            log_end = self._store.max_physical_offset
            self._pending = _Moment(self._timers.delivered_before_ms(), now_ms, log_end)
        if self._store.dispatched_offset >= self._pending.log_end:
            self._settled, self._pending = self._pending, None

    def _serve(self, queue_id: int) -> int:
        """Read a slice of a queue, and revive what is due; return the number of messages."""
        queue = self._queues[queue_id]
        end = self._store.max_offset(self._topic, queue_id)
        used = self._read(queue, queue_id, end) if queue.next_offset < end else 0
        queue.note(timers_ms=self._settled.timers_ms, now_ms=self._settled.now_ms, end=end)
        return used + self._revive(queue, queue_id)

    # ---- reading -------------------------------------------------------------------------

    def _read(self, queue: ReviveQueue, queue_id: int, end: int) -> int:
        """Read records of a queue, SLICE_COUNT at most; return their number."""
        begin = queue.next_offset
        count = min(end - begin, SLICE_COUNT)
        try:
            result = self._store.get_message(self._topic, queue_id, begin, count)
        except CorruptRecordError as error:
            self._skip(queue, queue_id, begin, error)
            return 1
        if not result.buffers:
            queue.skip_to(max(result.next_begin_offset, begin + 1))  # its log file was deleted
            return 1
        data, position = b"".join(result.buffers), 0
        while position < len(data):
            offset = queue.next_offset
            try:
                message = decode_record(data, position)
                position += message.store_size
                self._count(queue.take(message, message.queue_offset), queue_id)
            except RemoteProtocolError as error:
                self._skip(queue, queue_id, offset, error)
                if queue.next_offset <= offset + 1:
                    break
        return result.count

    def _count(self, record: CheckPoint | Ack | None, queue_id: int) -> None:
        if isinstance(record, CheckPoint):
            self._counts.got(record.group, record.topic, RecordKind.CK, queue_id)
        elif record is not None:
            self._counts.got(record.key.group, record.key.topic, RecordKind.ACK, queue_id)

    def _skip(self, queue: ReviveQueue, queue_id: int, offset: int, error: Exception) -> None:
        queue.skip_to(offset + 1)
        logger.error(
            "record %(queue_offset)d of revive queue %(queue_id)d cannot be read and is skipped: "
            "%(error)s. Popped messages of its group that were not acknowledged may be missing, or "
            "acknowledged ones come again",
            {"queue_offset": offset, "queue_id": queue_id, "error": error},
        )

    # ---- reviving ------------------------------------------------------------------------

    def _revive(self, queue: ReviveQueue, queue_id: int) -> int:
        """Revive a slice of what is due; return the number of messages.

        Raises: StoreError: the store accepts no messages, or cannot be written.
        """
        point = queue.take_due()
        if point is None:
            return 0
        part, failure = ReviveSlice(queue), None
        self._store.begin_burst()
        while point is not None:
            closed: list[int] = []
            part.taken.append((point, closed))
            try:
                self._redelivery.put_point(part, point.check_point, closed, queue_id)
            except (StoreError, Postponed) as error:
                failure = error
                break
            except Exception as error:  # noqa: BLE001 - others are revived
                meaning = "It is tried again each second, and its record is kept"
                self._failures.note(f"reviving {point.key}", meaning, error)
                part.taken.pop()
                queue.put_back(point, self._clock.wall_ms() + PUT_OFF_MS)
                break
            # A slice is bounded, so that sends are served between two of them.
            point = None if part.is_full else queue.take_due()
        try:
            # In the same commit as the copies: a crash between the two would deliver them twice.
            self._redelivery.put_done(part, queue_id)
            arrivals = self._store.commit()
        except Exception:
            self._store.roll_back()
            part.undo()
            raise
        part.settle()
        self.revived += part.revived
        self.re_puts += part.re_puts
        for taken, closed in part.taken:
            if closed:
                self.on_revived(taken.check_point, len(closed))
        if arrivals:
            self._on_messages(arrivals)
        if isinstance(failure, Postponed):
            # The retry topic is being saved; the service is woken when that is done.
            failure.when(self._task.wake)
        elif failure is not None:
            raise failure
        return part.used

    # ---- the progress --------------------------------------------------------------------

    def _note_progress(self) -> None:
        """Record offsets whose log is on the device, and note the current ones."""
        noted = self._unrecorded
        if noted is not None:
            if self._store.flusher.flushed_offset < noted.log_end:
                return
            for queue_id, offset in noted.offsets.items():
                self._record(queue_id, offset)
            self._unrecorded = None
        changed = self._changed()
        if changed:
            self._unrecorded = _Progress(self._store.max_physical_offset, changed)

    def _changed(self) -> dict[int, int]:
        """The offsets that are done and not recorded, by queue."""
        done = {queue_id: queue.committed for queue_id, queue in self._queues.items()}
        return {
            queue_id: offset
            for queue_id, offset in done.items()
            if offset > self._recorded(queue_id)
        }

    def note_progress(self) -> None:
        """Record the progress at a stop; the store must be flushed."""
        if self._store.flusher.failure is None:
            for queue_id, offset in self._changed().items():
                self._record(queue_id, offset)

    @property
    def queue_ids(self) -> Collection[int]:
        """The revive queues, in ascending order."""
        return self._queues.keys()

    def lag(self, queue_id: int) -> ReviveLag:
        """How far a revive queue is behind.

        Raises: StoreError: the store cannot be read.
        """
        queue = self._queues.get(queue_id)
        if queue is None:
            return ReviveLag(0, 0)
        offset = queue.next_offset
        count = max(self._store.max_offset(self._topic, queue_id) - offset, 0)
        oldest_ms = self._store.store_time_at(self._topic, queue_id, offset) if count else 0
        return ReviveLag(count, max(oldest_ms, 0))


def _ignore(check_point: CheckPoint, count: int) -> None: ...
