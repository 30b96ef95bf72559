"""TimerMessageService: delivers timer messages at their time, up to `timerMaxDelaySec` ahead.

They wait in queue 0 of rmq_sys_wheel_timer. Its messages are put into the wheel (`timer_wheel.py`),
which is rebuilt from the queue at each start. A due message is stored again, in the topic and queue
it was sent to. Changed progress is saved every second; after a crash the messages delivered since
the last save are delivered again.

Java counterpart: store/timer/TimerMessageStore.java of 5.3.3.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import Final

import trio

from ...common.clock import Clock
from ...common.message_properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
)
from ...common.topic_names import TIMER_TOPIC
from ...disk.errors import CorruptRecordError, StoreError, StoreIOError
from ...disk.json_config import read_bytes
from ...disk.position import START
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_record
from ...store.format import TIMER_FILE_SIZE
from ...store.message_store import MessageStore
from ..messages.admission import NotDeliverableError
from ..messages.inner_message import TOO_LARGE, InnerMessage, InnerPuts, out_ms
from ..stats.timer_counts import TimerCounts
from ..waiting.due_task import DELIVERY_LAG_MS, DueTask
from .timer_checkpoint import TimerCheckpoint
from .timer_wheel import Slot, TimerWheel

logger = logging.getLogger(__name__)

SLICE_COUNT: Final = 64
"""Messages read or delivered before other tasks run: about a millisecond."""

_QUEUE: Final = (TIMER_TOPIC, 0)
_MS_DIGITS: Final = 18
"""Digits of a time in ms since 1970 that every field of the checkpoint can hold."""


def _name(topic: str, unique_key: str | None) -> str:
    """The identity of a message within a slot; unique keys are unique within a topic.

    Source: TimerMessageStore.buildDeleteKey with appendTopicForTimerDeleteKey.
    """
    return f"{topic}+{unique_key or ''}"


class TimerMessageService:
    """Delivers timer messages, in one task.

    Args:
      store: already loaded when `load` is called.
      clock: its wall time decides which messages are due.
      puts: appends the delivered messages.
      on_messages: called with the queues that got messages.

    Attributes:
      delivered: the number of messages delivered since the start.
      counts: messages by topic.
      wheel: the waiting messages of the part of the queue that was read.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        clock: Clock,
        puts: InnerPuts,
        on_messages: Callable[[Collection[tuple[str, int]]], None],
    ) -> None:
        self.delivered = 0
        self.counts = TimerCounts()
        self._refusal = ""  # the remark of the last refused put
        self.wheel = TimerWheel()
        self._store = store
        self._clock = clock
        self._puts = puts
        self._on_messages = on_messages
        self._precision_ms = store.config.timer_precision_ms
        root = store.config.store_path_root_dir
        self._path = str(PurePosixPath(root) / "config" / "timercheck")
        self._read_offset = 0
        self._known = TimerCheckpoint()
        self._moved = trio.Event()
        self._task = DueTask(self._work, failing="timer messages are delivered later")

    def arrived(self, queues: Collection[tuple[str, int]]) -> None:
        """Process new messages; called with all queues that have some."""
        if _QUEUE in queues:
            self._task.wake()

    def wake(self) -> None:
        """Read the clock again."""
        self._task.wake()

    @property
    def is_busy(self) -> bool:
        """Whether something is due and not done yet, as `DueTask.is_busy`."""
        return self._task.is_busy

    # ---- at the start --------------------------------------------------------------------

    def load(self, *, was_killed: bool = False) -> None:
        """Read the saved progress; `run` reads the queue.

        Args:
          was_killed: the last broker may not have saved any progress yet.

        Raises: StoreIOError: the file could not be read, or its correction not be written.
        """
        disk = self._store.disk
        text = read_bytes(disk, self._path) if disk.exists(self._path) else b""
        if len(text) >= TIMER_FILE_SIZE:
            page = TimerCheckpoint.from_page(text[:TIMER_FILE_SIZE])
            self._known = page.correct(
                self._path,
                queue_end=self._store.queue_store.end_of(*_QUEUE),
                latest_ms=max(self._clock.wall_ms(), self._store.opened.newest_ms),
                delivered_ms=self._store.opened.newest_ms - DELIVERY_LAG_MS,
            )
            if self._known is not page and not self._store.read_only:
                self._write(self._known.to_page(self._clock.wall_ms()))
        elif not was_killed:
            self._warn_of_lost_progress()
        self._read_offset = self._known.waiting_offset or 0

    def _warn_of_lost_progress(self) -> None:
        count = self._store.max_offset(*_QUEUE) - self._store.min_offset(*_QUEUE)
        if count <= 0:
            return
        logger.warning(
            "%(path)s is missing or too short, but there are %(count)d timer messages in the log: "
            "they are delivered again, and their consumers get them twice. If you have a backup of "
            "the file, stop the broker and restore it before you continue",
            {"path": self._path, "count": count},
        )
        if not (self._store.read_only or self._store.is_slave):
            self._write(self._known.to_page(self._clock.wall_ms()))

    # ---- delivering ----------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._task.run()

    def _work(self) -> float:
        """Read and deliver one slice; return the seconds until the next message is due."""
        is_read = self._read_slice()
        left_s = self._left_s()
        if left_s <= 0:
            self._deliver_slice()
            left_s = self._left_s()
        return left_s if is_read else 0

    def _left_s(self) -> float:
        first = self.wheel.first()
        if first is None:
            return math.inf
        return (first[0] + self._precision_ms - self._clock.wall_ms()) / 1000

    def _read_slice(self) -> bool:
        """Put a slice of the queue into the wheel; return whether the queue is read to its end."""
        self._read_offset = max(self._read_offset, self._store.min_offset(*_QUEUE))
        end = self._store.max_offset(*_QUEUE)
        stop = min(end, self._read_offset + SLICE_COUNT)
        while self._read_offset < stop:
            message = self._message(self._read_offset)
            if message is not None:
                self._enter(message, self._read_offset)
            self._read_offset += 1
            self._moved.set()
        return self._read_offset >= end

    def _enter(self, message: MessageExt, queue_offset: int) -> None:
        properties = message.properties
        text = properties.get(PROPERTY_TIMER_OUT_MS, "")
        moment_ms = int(text) if text.isdecimal() and len(text) <= _MS_DIGITS else None
        if moment_ms is None:
            logger.error(
                "timer message %(queue_offset)d is skipped and will not be delivered: its time "
                "is %(text)r",
                {"queue_offset": queue_offset, "text": text[:40]},
            )
            return
        known = self._known
        if queue_offset < known.read_offset and moment_ms < known.read_time_ms:
            return  # delivered
        recalled = properties.get(PROPERTY_TIMER_DEL_UNIQKEY)
        if recalled is not None or PROPERTY_TIMER_ROLL_TIMES in properties:
            place = self._real_place(message, queue_offset)
            if place is None:
                return
            slot, topic = self.wheel.slot(moment_ms), place[0]
            if recalled is not None:
                slot.recall(_name(topic, recalled.removeprefix(_name(topic, ""))))
                return
            slot.roll(_name(topic, message.unique_key))
        self.wheel.add(moment_ms, queue_offset)
        # The store's time may be ahead of the time of day, by which the delay was asked.
        came_ms = min(message.store_timestamp_ms, self._clock.wall_ms())
        delay_s = (moment_ms + self._precision_ms - came_ms) / 1000
        self.counts.come(properties.get(PROPERTY_REAL_TOPIC, TIMER_TOPIC), delay_s)

    def _real_place(self, message: MessageExt, queue_offset: int) -> tuple[str, int] | None:
        """The topic and queue that a message was sent to; None: missing or not allowed."""
        try:
            return self._puts.kinds.real_place(message)
        except NotDeliverableError as error:
            logger.error(
                "timer message %(queue_offset)d is skipped and will not be delivered: %(error)s",
                {"queue_offset": queue_offset, "error": error},
            )
            return None

    def _deliver_slice(self) -> None:
        """Deliver a slice of the earliest slot, which is due, and commit it.

        Raises: StoreError: nothing was delivered, or the store could not be read.
        """
        first = self.wheel.first()
        if first is None:
            return
        slot = first[1]
        offsets = slot.offsets[slot.next : slot.next + SLICE_COUNT]
        count = delivered = 0
        failure: Exception | None = None
        self._store.begin_burst()
        for queue_offset in offsets:
            try:
                done = self._deliver(slot, queue_offset)
            except Exception as error:  # noqa: BLE001 - raised again when the others are stored
                failure = error
                break
            if done is None:
                break
            count += 1
            delivered += done
        try:
            # What precedes a failure is committed, as it does not depend on the message that
            # failed.
            arrivals = self._store.commit()
        except Exception:
            self._store.roll_back()
            raise
        # Only after the commit: messages of a failed one stay in the wheel.
        self.wheel.took(count)
        self._moved.set()
        self.delivered += delivered
        if arrivals:
            self._on_messages(arrivals)
        if failure is not None:
            raise failure
        if offsets and not count:
            raise StoreIOError(TIMER_TOPIC, self._refusal or "the store accepts no messages")

    def _deliver(self, slot: Slot, queue_offset: int) -> bool | None:
        """Append one message to its destination queue.

        Returns: whether it was delivered; None: the store refuses it for now.
        """
        message = self._message(queue_offset)
        if message is None:
            return False
        place = self._real_place(message, queue_offset)
        if place is None:
            return False
        done = self._put_due(slot, message, place)
        if done is not None:
            self.counts.leave(place[0], is_delivered=done)
        return done

    def _put_due(self, slot: Slot, message: MessageExt, place: tuple[str, int]) -> bool | None:
        """`_deliver` for a message that can be delivered."""
        topic, queue_id = place
        name = _name(topic, message.unique_key)
        if slot.is_recalled(name):
            return False
        # A rolled message of the same key is in the slot, too: only that one is delivered.
        if PROPERTY_TIMER_ROLL_TIMES not in message.properties and slot.is_rolled(name):
            return False
        again = InnerMessage.of(message)
        again.topic, again.queue_id = topic, queue_id
        again.change_properties(
            {
                PROPERTY_TIMER_ENQUEUE_MS: str(message.store_timestamp_ms),
                PROPERTY_TIMER_DEQUEUE_MS: str(self._clock.wall_ms()),
            }
        )
        refusal, _, _ = self._puts.put(again)
        if refusal is None:
            return True
        status, self._refusal = refusal
        if status in TOO_LARGE:
            logger.error(
                "timer message %(queue_offset)d is skipped and will not be delivered, topic "
                "%(topic)s refuses it: %(status)s",
                {"queue_offset": message.queue_offset, "topic": topic, "status": status.name},
            )
            return False
        # Tried again: the store may accept it later.
        return None

    def _message(self, queue_offset: int) -> MessageExt | None:
        """A message of the queue; None: it is damaged, or its log file was deleted."""
        try:
            result = self._store.get_message(*_QUEUE, queue_offset, 1)
            if result.buffers:
                return decode_record(result.buffers[0])
        except (CorruptRecordError, RemoteProtocolError) as error:
            logger.error(
                "timer message %(queue_offset)d is skipped and will not be delivered: %(error)s",
                {"queue_offset": queue_offset, "error": error},
            )
        return None

    # ---- the progress --------------------------------------------------------------------

    def progress(self) -> TimerCheckpoint:
        """The current progress of delivery.

        While the queue is still being read after a start, and on a slave, it is the saved progress.
        """
        if self._read_offset < self._known.read_offset:
            return self._known
        now_ms = self._clock.wall_ms() // self._precision_ms * self._precision_ms
        first = self.wheel.first()
        return TimerCheckpoint(
            read_time_ms=now_ms if first is None else min(now_ms, first[0]),
            read_offset=self._read_offset,
            waiting_offset=self.wheel.waiting_offset(self._read_offset),
        )

    def unread(self) -> tuple[int, int]:
        """The timer messages that were not yet read from the queue.

        Returns: their number, and when the oldest was stored, ms since 1970; 0 if there is none, or
          it cannot be read.
        """
        count = max(self._store.max_offset(*_QUEUE) - self._read_offset, 0)
        if not count:
            return 0, 0
        try:
            return count, max(self._store.store_time_at(*_QUEUE, self._read_offset), 0)
        except StoreError:
            return count, 0

    def delivered_before_ms(self) -> float:
        """The TIMER_OUT_MS before which every stored timer message is delivered, ms since 1970.

        Returns: infinity when none waits. A message that is stored later is due later than now.
        """
        first = self.wheel.first()
        waiting_ms = math.inf if first is None else first[0]
        count, oldest_ms = self.unread()
        if count:  # each of them was due after it was stored
            waiting_ms = min(waiting_ms, out_ms(oldest_ms + 1, self._precision_ms))
        return waiting_ms

    def _new_progress(self) -> TimerCheckpoint | None:
        """`progress`; None: there is nothing new to save."""
        if not self._moved.is_set() or self._read_offset < self._known.read_offset:
            return None
        self._moved = trio.Event()
        return self.progress()

    async def take_over(self, answer: bytes) -> None:
        """On a slave, whose timers do not run: save its master's progress.

        Args:
          answer: to GET_TIMER_CHECK_POINT (60); the log must contain the delivered messages.
        Raises: StoreError: it could not be saved.
        """
        page = answer[:TIMER_FILE_SIZE].ljust(TIMER_FILE_SIZE, b"\0")
        progress = TimerCheckpoint.from_page(page)
        if progress != self._known:
            await self._save(page)
            self._known = progress

    async def save(self) -> None:
        """Save the progress periodically, until cancelled."""
        while True:
            await self._moved.wait()
            # Progress that comes meanwhile is saved with it.
            await trio.sleep(self._store.config.timer_flush_interval_ms / 1000)
            progress = self._new_progress()
            if progress is None:
                continue
            end = self._store.max_physical_offset
            try:
                if not await self._save(progress.to_page(self._clock.wall_ms()), end):
                    self._moved.set()
            except StoreError as error:
                # The progress is still unsaved, so the next round must not wait for a message.
                self._moved.set()
                logger.error(
                    "the progress of timer messages could not be saved, trying again: "
                    "%(error)s. After a crash some would be delivered twice",
                    {"error": error},
                )
            except Exception:
                self._moved.set()
                raise

    def note_progress(self) -> None:
        """Save the progress at a stop; the store must be flushed.

        Raises: StoreIOError: it could not be saved.
        """
        progress = self._new_progress()
        if progress is None and self.unread()[0] and not self._store.disk.exists(self._path):
            # Such as check points of pops, which are stored at the stop: without a file, the next
            # start would take the progress for lost.
            progress = self.progress()
        if progress is not None and self._store.flusher.failure is None:
            self._write(progress.to_page(self._clock.wall_ms()))

    async def _save(self, page: bytes, end: int = 0) -> bool:
        """Write a page, after syncing the log that has the messages it counts as delivered.

        Args:
          end: of these messages, a physical offset.
        Returns: False: it was not written, as they may still be cut from the log, in controller
          mode.
        """
        flusher, threaded = self._store.flusher, self._store.disk.threaded
        # Otherwise a power cut could lose messages that the page counts as delivered.
        await flusher.flush_in_thread(threaded=threaded)
        if flusher.failure is not None:
            raise flusher.failure
        if not self._store.durability.is_confirmed(end):
            return False
        if threaded:
            await trio.to_thread.run_sync(self._write, page)
        else:
            self._write(page)
        return True

    def _write(self, page: bytes) -> None:
        disk = self._store.disk
        is_new = not disk.exists(self._path)
        folder = self._path.rpartition("/")[0]
        disk.make_folder(folder)
        file = disk.open(self._path, create=True)
        try:
            file.pwrite(page, START)
            file.sync()
        finally:
            file.close()
        # Its name, too, must survive a power cut.
        if is_new:
            disk.sync_folder(folder)
