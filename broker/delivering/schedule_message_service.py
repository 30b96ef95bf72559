"""ScheduleMessageService: delivers delayed messages from SCHEDULE_TOPIC_XXXX when they are due.

A message with delay level n waits in queue n - 1 of SCHEDULE_TOPIC_XXXX; its queue unit has the due
time. The messages of one level are due in the order in which they were stored, so only the next one
of each level matters: one heap of due times, one task. A due message is stored again, in the topic
and queue it was sent to. The delivered offset of each level is saved in `delayOffset.json` every
ten seconds and at a clean stop; after a crash the messages delivered since the last save are
delivered again.

Java counterpart: broker/schedule/ScheduleMessageService.java of 5.3.3, which polls each level every
100 ms.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from functools import partial
from heapq import heappop, heappush, heapreplace
from typing import Final

import trio

from ...common.clock import Clock, WallTimeMs
from ...common.supervision import FailureLog
from ...common.topic_names import SCHEDULE_TOPIC
from ...disk.errors import CorruptRecordError, StoreError, StoreIOError
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_record
from ...store.message_store import MessageStore
from ..messages.admission import TOPICS_CACHED_MAX, NotDeliverableError
from ..messages.inner_message import TOO_LARGE, DelayLevels, InnerMessage, InnerPuts
from ..tables.delay_offset_manager import DelayOffsetManager
from ..waiting.due_task import DELIVERY_LAG_MS, DueTask

logger = logging.getLogger(__name__)

SLICE_COUNT: Final = 64
"""Messages delivered before other tasks run: about a millisecond in pure Python."""

READ_COUNT: Final = 32
"""Messages of one level that are read at once; the store reads no more for a get by default."""

SCAN_COUNT: Final = 1_000
"""Due times that are read at once in the search for the first message that waits."""

PUT_OFF_MS: Final = 1_000
"""The pause before a level is retried whose next message failed with an unexpected error. The
message is not skipped, because its send was acknowledged."""

Queues = Collection[tuple[str, int]]


class ScheduleMessageService:
    """Delivers delayed messages, in one task.

    Args:
      store: already loaded.
      clock: its wall time decides which messages are due.
      offsets: already read from its file.
      puts: appends the delivered messages.
      on_messages: called with the queues that got messages.

    Attributes:
      delivered: the number of messages delivered since the start.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        clock: Clock,
        levels: DelayLevels,
        offsets: DelayOffsetManager,
        puts: InnerPuts,
        on_messages: Callable[[Queues], None],
    ) -> None:
        self.delivered = 0
        self._refusal = ""  # the remark of the last refused put
        self._store = store
        self._clock = clock
        self._levels = levels
        self._offsets = offsets
        self._puts = puts
        self._runs = store.runs
        self._deliverable: set[str] = set()  # topics that `_deliver_one` delivered to
        self._on_messages = on_messages
        self._due: list[tuple[int, int]] = []  # (ms, level), a heap: each level once
        self._idle: set[tuple[str, int]] = set()  # queues without a known waiting message
        # By level, by how much the due times of messages are ahead that were sent before the clock
        # was set back.
        self._ahead_ms: dict[int, int] = {}
        self._failures = FailureLog(logger)
        self._task = DueTask(self._work, failing="delayed messages are delivered later")
        self._reset()

    def arrived(self, queues: Queues) -> None:
        """Process new messages; called with all queues that have some."""
        if not self._idle.isdisjoint(queues):
            self._task.wake()

    def wake(self) -> None:
        """Read the clock again."""
        self._task.wake()

    @property
    def is_busy(self) -> bool:
        """Whether something is due and not done yet, as `DueTask.is_busy`."""
        return self._task.is_busy

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled."""
        for queue in self._idle:
            self._offsets.correct(
                queue[1] + 1,
                min_offset=self._store.min_offset(*queue),
                max_offset=self._store.queue_store.end_of(*queue),
                waiting=partial(self._first_waiting, queue),
            )
        task_status.started()
        await self._task.run()

    def _first_waiting(self, queue: tuple[str, int]) -> int:
        """The offset of a level's first message that became due after this broker last worked."""
        offset, end = self._store.min_offset(*queue), self._store.max_offset(*queue)
        # The log's newest time is ahead of the time of day if the clock was set back.
        newest_ms = min(self._store.opened.newest_ms, self._clock.wall_ms())
        delivered_ms = newest_ms - DELIVERY_LAG_MS
        try:
            # All are looked at: after a jump of the clock they are not due in their order.
            while offset < end:
                for due_ms in self._store.tags_codes(*queue, offset, SCAN_COUNT):
                    if due_ms > delivered_ms:
                        return offset
                    offset += 1
        except CorruptRecordError:
            return self._store.min_offset(*queue)
        return offset

    def _work(self) -> float:
        """Deliver one slice of the due messages; return the seconds until the next is due."""
        self._scan_idle()
        self._follow_clock()
        left_s = self._left_s()
        if left_s <= 0:
            self._deliver_slice()
            left_s = self._left_s()
        return left_s

    def _left_s(self) -> float:
        if not self._due:
            return math.inf
        return (self._due[0][0] - self._clock.wall_ms()) / 1000

    def _scan_idle(self) -> None:
        """Read the due time of the next message of each idle level."""
        for queue in list(self._idle):
            level = queue[1] + 1
            due_ms = self._due_ms(level, self._offset(level))
            if due_ms is not None:
                self._idle.discard(queue)
                heappush(self._due, (due_ms, level))
                # A level that waits for its first delivery is in the file, too: the next start
                # takes a store with delayed messages and without the file for a damaged one.
                if level not in self._offsets.offset_table:
                    self._offsets.update_offset(level, self._offset(level))

    def _follow_clock(self) -> None:
        """Find the due times anew if the clock was set back since `_due_ms` read it."""
        now_ms, latest_ms = self._clock.wall_ms(), self._levels.due_ms
        if any(due_ms > latest_ms(level, now_ms) for due_ms, level in self._due):
            self._idle.update((SCHEDULE_TOPIC, level - 1) for _, level in self._due)
            self._due.clear()
            self._scan_idle()

    def _offset(self, level: int) -> int:
        known = self._offsets.offset_table.get(level, 0)
        return max(known, self._store.min_offset(SCHEDULE_TOPIC, level - 1))

    def _due_ms(self, level: int, queue_offset: int) -> int | None:
        """The due time of a level's message; None if there is no message at the offset."""
        if queue_offset >= self._store.max_offset(SCHEDULE_TOPIC, level - 1):
            return None
        now_ms = self._clock.wall_ms()
        try:
            (due_ms,) = self._store.tags_codes(SCHEDULE_TOPIC, level - 1, queue_offset)
        except CorruptRecordError:
            return now_ms  # due now, so that the delivery skips it
        latest_ms = self._levels.due_ms(level, now_ms)
        if due_ms <= latest_ms:
            self._ahead_ms.pop(level, None)
            return due_ms
        # The clock was set back since the message was sent. So its delay counts from now, and the
        # due times of the messages behind it move by as much. RocketMQ delivers them at once
        # (correctDeliverTimestamp): too early by any clock.
        ahead_ms = self._ahead_ms.get(level, 0)
        if due_ms - ahead_ms > latest_ms:
            ahead_ms = self._ahead_ms[level] = due_ms - latest_ms
        return due_ms - ahead_ms

    def _deliver_slice(self) -> None:
        """Deliver SLICE_COUNT due messages or a few more, and commit them.

        Raises: StoreError: nothing was delivered, or the store could not be read.
        """
        now_ms = self._clock.wall_ms()
        reached: dict[int, int] = {}
        count = failed = gone = 0
        self._store.begin_burst()
        try:
            while self._due and self._due[0][0] <= now_ms and count < SLICE_COUNT:
                # All due messages of the level that is due first, so that they are read and stored
                # together.
                level = self._due[0][1]
                # The table of offsets changes only after the commit, so that a failed commit
                # delivers again; until then the slice counts for itself.
                offset = reached.get(level)
                if offset is None:
                    offset = self._offset(level)
                    if not self._is_due(level, offset, now_ms):
                        gone += 1
                        continue
                try:
                    done = self._deliver(level, offset, now_ms)
                except StoreError:
                    raise
                except Exception as error:  # noqa: BLE001 - other levels are delivered
                    meaning = "The messages of that level wait; it is tried again each second"
                    self._failures.note(f"delivering delay level {level}", meaning, error)
                    heapreplace(self._due, (now_ms + PUT_OFF_MS, level))
                    failed += 1
                    continue
                if not done:
                    break
                count += done
                reached[level] = offset + done
                heappop(self._due)
                self._note_next(level, offset + done)
            arrivals = self._store.commit()
        # The heap is ahead of the store now: it is built again from the committed offsets.
        except Exception:
            self._store.roll_back()
            self._reset()
            raise
        for level, offset in reached.items():
            self._offsets.update_offset(level, offset)
        self.delivered += count
        if arrivals:
            self._on_messages(arrivals)
        if not (count or failed or gone):
            raise StoreIOError(SCHEDULE_TOPIC, self._refusal or "the store accepts no messages")

    def _is_due(self, level: int, offset: int, now_ms: WallTimeMs) -> bool:
        """Whether the first message of a level, for which the heap says so, is due."""
        due_ms = self._due_ms(level, offset)
        if due_ms is not None and due_ms <= now_ms:
            return True
        # The message of which the heap has the time may be gone with its log file. The next one, if
        # any, is due later.
        heappop(self._due)
        self._note_next(level, offset)
        return False

    def _note_next(self, level: int, offset: int) -> None:
        """Record when a level's next message is due; without one, the level is idle."""
        due_ms = self._due_ms(level, offset)
        if due_ms is None:
            self._idle.add((SCHEDULE_TOPIC, level - 1))
        else:
            heappush(self._due, (due_ms, level))

    def _reset(self) -> None:
        """Drop the known due times; the next scan starts at the saved offsets."""
        self._due.clear()
        self._idle = {(SCHEDULE_TOPIC, number) for number in range(self._levels.level_max)}

    def _deliver(self, level: int, queue_offset: int, now_ms: WallTimeMs) -> int:
        """Append the due messages of a level to their queues, READ_COUNT at most.

        Args:
          queue_offset: of the first, which is due.

        Returns: the number of messages that were appended or skipped; 0: the store refuses the
          first for now.

        Raises: StoreError: nothing could be read. Any other error is of the first message.
        """
        try:
            count = self._due_count(level, queue_offset, now_ms)
            result = self._store.get_message(SCHEDULE_TOPIC, level - 1, queue_offset, count)
            if result.next_begin_offset != queue_offset + result.count:  # some are lost
                result = self._store.get_message(SCHEDULE_TOPIC, level - 1, queue_offset, 1)
        except CorruptRecordError as error:
            _log_skipped(level, queue_offset, error)
            return 1
        if not result.buffers:  # its log file was deleted, and perhaps those after it
            return max(result.next_begin_offset - queue_offset, 1)
        data, position, done = b"".join(result.buffers), 0, 0
        while done < result.count:
            run = self._runs and self._runs.deliver(data, position, self._deliverable)
            if run:
                position += run.size
                done += run.message_count
                continue
            try:
                message = decode_record(data, position)
                is_done = self._deliver_one(message, level)
            # An error after others ends the call; the next one begins with it.
            except (RemoteProtocolError, NotDeliverableError) as error:
                if not done:
                    _log_skipped(level, queue_offset, error)
                    return 1
                break
            except Exception:  # our bug: the caller postpones the level
                if not done:
                    raise
                break
            if not is_done:
                break
            position += message.store_size
            done += 1
        return done

    def _due_count(self, level: int, queue_offset: int, now_ms: WallTimeMs) -> int:
        """The number of due messages from the first one on, which is due; READ_COUNT at most."""
        latest_ms = self._levels.due_ms(level, now_ms)
        ahead_ms = self._ahead_ms.get(level, 0)
        count = 0
        for due_ms in self._store.tags_codes(SCHEDULE_TOPIC, level - 1, queue_offset, READ_COUNT):
            if count and now_ms < (due_ms - ahead_ms if due_ms > latest_ms else due_ms):
                break
            count += 1
        return count

    def _deliver_one(self, message: MessageExt, level: int) -> bool:
        """Append a message to its queue; False: the store refuses it for now.

        Raises: NotDeliverableError: it names no topic that messages may be delivered to.
        """
        real_topic, real_queue_id = self._puts.kinds.real_place(message)
        again = InnerMessage.of(message)
        again.topic, again.queue_id = real_topic, real_queue_id
        refusal, _, _ = self._puts.put(again)
        if refusal is None:
            if self._runs is not None:
                self._runs.deliveries.left += 1
            if len(self._deliverable) >= TOPICS_CACHED_MAX:
                self._deliverable.clear()
            self._deliverable.add(real_topic)
            return True
        status, self._refusal = refusal
        if status in TOO_LARGE:
            error = f"topic {real_topic} refuses it: {status.name}"
            _log_skipped(level, message.queue_offset, error)
            return True
        return False


def _log_skipped(level: int, queue_offset: int, error: object) -> None:
    logger.error(
        "message %(queue_offset)d of delay level %(delay_level)d is skipped and will not be "
        "delivered: %(error)s",
        {"queue_offset": queue_offset, "delay_level": level, "error": error},
    )
