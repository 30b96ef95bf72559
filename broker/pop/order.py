"""OrderedPops: what a pop in order, and the acknowledgement and change of its messages, do.

No check point is stored: a message that is not acknowledged stays in its queue, before the group's
offset moves past it, and no later message of the queue is given to anyone.

Java counterpart: the branches for order of PopMessageProcessor, AckMessageProcessor and
ChangeInvisibleTimeProcessor of 5.5.0.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ...common.java_integers import INT64_MAX
from ...common.steps import in_steps
from ...disk.errors import CorruptRecordError
from ...disk.state_files import StateFiles
from ...remoting.errors import RequestRefused
from ...remoting.headers import ChangeInvisibleTimeResponseHeader
from ...remoting.receipt import ORDER_REVIVE_QUEUE, OrderCounts, QueueKey, TopicForm
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ..settings.attributes import BATCH_CQ, QUEUE_TYPE
from ..settings.config import BrokerConfig
from ..tables.consumer_offset_manager import ConsumerOffsetManager, key_of
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager
from ..waiting.due_task import DueTask
from .buffer import PopBuffer
from .check_point import CheckPoint
from .order_info import ATTEMPT_ID_LENGTH_MAX, OrderInfo
from .order_info_manager import ILLEGAL, UNKNOWN, ConsumerOrderInfoManager

# OrderLocks: when queues that are consumed in order become free, to wake those who wait for them.
#
# Java counterpart: broker/pop/orderly/QueueLevelConsumerOrderInfoLockManager.java of 5.5.0, which
# has a timer for each queue. Pure.

_STALE_MAX: Final = 64
"""Out-of-date entries of the heap, beyond as many as there are queues, before it is rebuilt."""


class LockedQueue(NamedTuple):
    """A queue of one group."""

    topic: str
    group: str
    queue_id: int


class OrderLocks:
    """The times at which queues become free, one of each queue."""

    def __init__(self) -> None:
        self._times: dict[LockedQueue, int] = {}
        self._heap: list[tuple[int, LockedQueue]] = []

    def __len__(self) -> int:
        return len(self._times)

    def set(self, queue: LockedQueue, free_ms: int) -> None:
        """Set when a queue becomes free, ms since 1970, instead of an earlier time for it."""
        if self._times.get(queue) == free_ms:
            return
        self._times[queue] = free_ms
        heapq.heappush(self._heap, (free_ms, queue))
        if len(self._heap) > 2 * len(self._times) + _STALE_MAX:
            self._heap = [(time_ms, each) for each, time_ms in self._times.items()]
            heapq.heapify(self._heap)

    def drop(self, queue: LockedQueue) -> None:
        self._times.pop(queue, None)

    @property
    def next_ms(self) -> int | None:
        """When the next queue becomes free, ms since 1970; None if there is none."""
        while self._heap:
            free_ms, queue = self._heap[0]
            if self._times.get(queue) == free_ms:
                return free_ms
            heapq.heappop(self._heap)
        return None

    def take_free(self, now_ms: int) -> Iterator[LockedQueue]:
        """Take the queues that are free, those that were first coming first."""
        while (next_ms := self.next_ms) is not None and next_ms <= now_ms:
            _, queue = heapq.heappop(self._heap)
            del self._times[queue]
            yield queue


logger = logging.getLogger(__name__)

CLEAN_INTERVAL_S: Final = 60.0
"""Between two searches for entries without a topic, group or queue. RocketMQ: with each save."""

_WAKES_PER_SLICE: Final = 50
"""Queues whose waiting pops are woken in one slice; a wake only notes what to do."""

Wake = Callable[[str, str, int], None]
"""Wakes one pop, or notification, that waits: topic, group, and queue id or -1 for all queues."""


class OrderedPops:
    """Pops in order. Not thread-safe: used from the broker's one trio run.

    Args:
      table: of messages in order.
      buffer: the pops in parallel that the groups' offsets have not passed.
      offsets, topics, groups: the broker's tables.
      max_offset: returns the next offset of a queue, of topic and queue id.
      queue_end: the same of all messages, visible or not; None: all are visible.
      now_ms: the wall clock, ms since 1970.
      wake: see `Wake`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        files: StateFiles,
        table: ConsumerOrderInfoManager,
        *,
        buffer: PopBuffer,
        offsets: ConsumerOffsetManager,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        max_offset: Callable[[str, int], int],
        now_ms: Callable[[], int],
        wake: Wake,
        queue_end: Callable[[str, int], int] | None = None,
    ) -> None:
        self._config = config
        self._files = files
        self.table = table
        self._buffer = buffer
        self._offsets = offsets
        self._max_offset = max_offset
        self._queue_end = queue_end or max_offset
        self._topics = topics
        self._groups = groups
        self._now_ms = now_ms
        self._wake = wake
        self._locks = OrderLocks()
        self._task = DueTask(
            self._wake_waiting,
            failing="pops that wait for messages in order are answered later",
        )

    @classmethod
    def of_store(
        cls,
        config: BrokerConfig,
        store: MessageStore,
        *,
        files: StateFiles,
        buffer: PopBuffer,
        offsets: ConsumerOffsetManager,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        wake: Wake,
    ) -> OrderedPops:
        """Pops in order with an empty table, and the clock and the queues of a store."""
        return cls(
            config,
            files,
            ConsumerOrderInfoManager(save=files.save),
            buffer=buffer,
            offsets=offsets,
            topics=topics,
            groups=groups,
            max_offset=store.max_offset,
            queue_end=store.queue_store.end_of,
            now_ms=store.clock.wall_ms,
            wake=wake,
        )

    # Pop

    def check(self, topic: str, attempt_id: str | None) -> None:
        """Check a pop before anything is read.

        Raises: RequestRefused: INVALID_PARAMETER if its attempt id is too long to be kept, or the
          records of the topic hold whole batches, of which no message can be blocked alone.
        """
        if attempt_id is not None and len(attempt_id) > ATTEMPT_ID_LENGTH_MAX:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"the attemptId has {len(attempt_id)} characters, the limit is "
                f"{ATTEMPT_ID_LENGTH_MAX}",
            )
        config = self._topics.topic_config_table.get(topic)
        if config is not None and config.attributes.get(QUEUE_TYPE) == BATCH_CQ:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"topic[{topic}] cannot be popped in order, because its {QUEUE_TYPE} is {BATCH_CQ}",
            )

    def is_blocked(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, invisible_time: int
    ) -> bool:
        """Whether a pop, or a notification, must not get messages of a queue now.

        A queue that would need a new entry is blocked while the table is full. So is one with
        messages that were popped in parallel, until their check points are acknowledged or stored:
        the group's offset must not pass those that are in memory only.

        Args:
          topic, group, queue_id: they exist.
          invisible_time: of the request, ms; 0 for a notification.
        """
        if self._buffer.next_offset(topic, group, queue_id) >= 0:
            return True
        if not self.table.has_room(topic, group, queue_id):
            logger.warning(
                "queue %(queue_id)d of %(key)s is not popped in order: %(count)d queues already "
                "have messages that were not acknowledged. Consumers are too slow or do not "
                "acknowledge; the queues become free with time",
                {"key": key_of(topic, group), "queue_id": queue_id, "count": self.table.count},
            )
            return True
        return self.table.check_block(
            attempt_id,
            topic,
            group,
            queue_id,
            invisible_time=invisible_time,
            now_ms=self._now_ms(),
        )

    def popped(self, check_point: CheckPoint, attempt_id: str | None) -> OrderCounts:
        """Record the messages that a pop gets from one queue, and commit where it began to read.

        Args:
          check_point: the messages, as those of another pop; it is not kept.
          attempt_id: of the request; None: it has none.
        Returns: how often the messages were popped before.
        """
        ck = check_point
        queue = LockedQueue(ck.topic, ck.group, ck.queue_id)
        info = self.table.update(
            attempt_id,
            *queue,
            pop_time=ck.pop_time,
            invisible_time=ck.invisible_time,
            offsets=tuple(ck.offsets()),
        )
        # Where it began, not where it ended: without an acknowledgement the messages come again.
        self._offsets.commit_offset(ck.group, ck.topic, ck.queue_id, ck.start_offset)
        self._lock(queue, info)
        key = QueueKey(TopicForm.of(ck.topic), ck.queue_id)
        return OrderCounts(key, info.consumed or {}, info.times)

    def reset(self, topic: str, group: str, queue_id: int) -> None:
        """Clear the block of a queue, because an administrator set the group's offset."""
        self.table.clear_block(topic, group, queue_id)
        self._locks.drop(LockedQueue(topic, group, queue_id))

    # Acknowledgement and change

    def ack(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: Iterable[int],
        *,
        pop_time: int,
        remote_address: str,
    ) -> str | None:
        """Acknowledge messages of one pop and one queue. Late and repeated ones change nothing.

        Args:
          topic, group, queue_id, pop_time: of the receipts.
          offsets: queue offsets of the messages.
        Returns: None; or the remark of an answer MESSAGE_ILLEGAL, because the pop did not have one
          of the messages; the others are acknowledged.
        Source: AckMessageProcessor.ackOrderly.
        """
        illegal: str | None = None
        for offset in offsets:
            committed = self._offsets.query_offset(group, topic, queue_id)
            if offset < committed:
                continue
            following = self.table.commit_and_next(
                topic, group, queue_id, offset, pop_time=pop_time
            )
            if following == ILLEGAL:
                illegal = (
                    f"offset is illegal, key:{key_of(topic, group)}@{queue_id}, old:{committed}, "
                    f"commit:{offset}, next:{ILLEGAL}, /{remote_address}"
                )
            elif following == UNKNOWN:
                break  # and so are the others: a batch of many must not log a line for each
            else:
                if not self._offsets.has_offset_reset(group, topic, queue_id):
                    # A client may have committed a later offset itself.
                    following = max(following, committed)
                    self._offsets.commit_offset(group, topic, queue_id, following)
                self._changed(LockedQueue(topic, group, queue_id))
        return illegal

    def change_invisible_time(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        *,
        pop_time: int,
        invisible_time: int,
    ) -> ChangeInvisibleTimeResponseHeader:
        """Set when a message becomes visible again; return the answer.

        Args:
          topic, group, queue_id, offset, pop_time: of the receipt.
          invisible_time: from now on, ms.
        Source: ChangeInvisibleTimeProcessor.processChangeInvisibleTimeForOrder.
        """
        # Acknowledged, or skipped by a reset: there is nothing to change.
        if offset < self._offsets.query_offset(group, topic, queue_id):
            return ChangeInvisibleTimeResponseHeader(pop_time=0, invisible_time=0, revive_qid=0)
        visible_ms = min(self._now_ms() + invisible_time, INT64_MAX)
        if self.table.update_next_visible_time(
            topic, group, queue_id, offset, pop_time=pop_time, visible_ms=visible_ms
        ):
            self._changed(LockedQueue(topic, group, queue_id))
        return ChangeInvisibleTimeResponseHeader(
            pop_time=pop_time,
            invisible_time=min(visible_ms - pop_time, INT64_MAX),
            revive_qid=ORDER_REVIVE_QUEUE,
        )

    # Waking

    def _changed(self, queue: LockedQueue) -> None:
        info = self.table.find(*queue)
        if info is None or info.free_ms <= self._now_ms():
            self._locks.drop(queue)
            self._wake_one(queue)
        else:
            self._lock(queue, info)

    def _lock(self, queue: LockedQueue, info: OrderInfo) -> None:
        before = self._locks.next_ms
        self._locks.set(queue, info.free_ms)
        if before is None or info.free_ms < before:
            self._task.wake()

    def _wake_one(self, queue: LockedQueue) -> None:
        """Wake one who waits for all queues and one who waits for this, if there is a message."""
        topic, group, queue_id = queue
        end = self._max_offset(topic, queue_id)
        if end > self._offsets.query_offset(group, topic, queue_id):
            self._wake(topic, group, -1)
            self._wake(topic, group, queue_id)

    def _wake_waiting(self) -> float:
        """Wake pops for queues whose messages are visible again; return the seconds until more."""
        now_ms = self._now_ms()
        for count, queue in enumerate(self._locks.take_free(now_ms), 1):
            if self._config.enable_notify_after_pop_order_lock_release:
                self._wake_one(queue)
            # Each wake serves a pop; other requests get their turn between the slices.
            if count == _WAKES_PER_SLICE:
                break
        next_ms = self._locks.next_ms
        return math.inf if next_ms is None else (next_ms - now_ms) / 1000

    def wake(self) -> None:
        """Read the clock again."""
        self._task.wake()

    @property
    def is_busy(self) -> bool:
        """Whether queues are free and their waiting pops not woken, as `DueTask.is_busy`."""
        return self._task.is_busy

    async def run(self) -> None:
        """Wake pops when queues become free, until cancelled."""
        await self._task.run()

    async def clean(self) -> None:
        """Drop entries that are no longer needed; to be called every CLEAN_INTERVAL_S."""
        await in_steps(
            self.table.clean(
                self._now_ms(), queue_count=self._queue_count, has_group=self._groups.contains
            )
        )

    def _queue_count(self, topic: str) -> int:
        config = self._topics.topic_config_table.get(topic)
        return 0 if config is None else config.read_queue_nums

    # The file

    def load(self) -> None:
        """Read the table's file; a damaged one is left alone, as it protects no message.

        To be called once offsets and store are loaded.

        Raises: StoreIOError: it could not be read.
        """
        table = self.table
        try:
            self._files.load(table.file.name, table.decode)
        except CorruptRecordError as error:
            logger.error(
                "%(error)s. It is replaced: messages that were popped in order and not "
                "acknowledged are delivered again at once",
                {"error": error},
            )
            table.file.is_dirty = True
        table.correct(self._offsets.query_offset, self._queue_end)
        for topic, group, queue_id, info in table.entries():
            self._locks.set(LockedQueue(topic, group, queue_id), info.free_ms)
