"""Delivers timer messages: those that say when they are due, up to `timerMaxDelaySec` from now.

They wait in queue 0 of rmq_sys_wheel_timer. Whatever comes there is put into the wheel
(`timer_wheel.py`), which is made again from the queue at each start; what is due is stored once
more, in the topic and queue it was sent to. How far that came is saved every second while there is
something to save; after a crash what was delivered since is delivered again.

Java counterpart: store/timer/TimerMessageStore.java of 5.3.3.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import Final

import trio

from ..common.message_properties import (
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
)
from ..common.topic_names import TIMER_TOPIC
from ..remoting.errors import RemoteProtocolError
from ..remoting.message import MessageExt
from ..remoting.message_codec import decode_record
from ..store.clock import Clock
from ..store.errors import CorruptRecordError, StoreError, StoreIOError
from ..store.format import TIMER_FILE_SIZE
from ..store.message_store import MessageStore
from ..store.offsets import START
from .admission import NotDeliverableError
from .due_task import DELIVERY_LAG_MS, DueTask
from .inner_message import TOO_LARGE, InnerMessage, InnerPuts
from .timer_checkpoint import TimerCheckpoint
from .timer_wheel import Slot, TimerWheel

logger = logging.getLogger(__name__)

SLICE_COUNT: Final = 64
"""Messages read or delivered before other work has its turn: about a millisecond."""

_QUEUE: Final = (TIMER_TOPIC, 0)
_MS_DIGITS: Final = 18
"""Digits of a time in ms since 1970 that every field of the checkpoint can hold."""


def _name(topic: str, unique_key: str | None) -> str:
    """What tells a message of a slot from the others; unique keys are so within a topic.

    Source: TimerMessageStore.buildDeleteKey with appendTopicForTimerDeleteKey.
    """
    return f"{topic}+{unique_key or ''}"


class TimerMessageService:
    """The one task that delivers.

    Args:
      store: already loaded when `load` is called.
      clock: whose wall time says what is due.
      puts: appends what is delivered.
      on_messages: called with the queues that got messages.

    Attributes:
      delivered: how many messages were delivered since the start.
      wheel: what waits, as far as the queue was read.
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
        self._refusal = ""  # the remark of the put that was refused last
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
        """Take note of new messages; called with all queues that have some."""
        if _QUEUE in queues:
            self._task.wake()

    def wake(self) -> None:
        """Look at the clock again."""
        self._task.wake()

    # ---- at the start --------------------------------------------------------------------

    def load(self) -> None:
        """Read how far the messages were delivered; the queue itself is read by `run`.

        Raises: StoreIOError: the file could not be read, or not be put right.
        """
        disk = self._store.disk
        if disk.exists(self._path):
            file = disk.open(self._path)
            try:
                page = TimerCheckpoint.from_page(file.pread(TIMER_FILE_SIZE, START))
            finally:
                file.close()
            self._known = page.correct(
                self._path,
                queue_end=self._store.max_offset(*_QUEUE),
                latest_ms=max(self._clock.wall_ms(), self._store.opened.newest_ms),
                delivered_ms=self._store.opened.newest_ms - DELIVERY_LAG_MS,
            )
            if self._known is not page and not self._store.read_only:
                self._write(self._known.to_page(self._clock.wall_ms()))
        self._read_offset = self._known.waiting_offset or 0

    # ---- delivering ----------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._task.run()

    def _work(self) -> float:
        """One slice: read what is new, deliver what is due; seconds until something is."""
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
        """Put some of the queue into the wheel; whether all of it is in there now."""
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
                "timer message %d is left out and will not be delivered: its time is %r",
                queue_offset, text[:40],
            )  # fmt: skip
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

    def _real_place(self, message: MessageExt, queue_offset: int) -> tuple[str, int] | None:
        """Where a message belongs; None: it does not say, or nothing may be delivered there."""
        try:
            return self._puts.kinds.real_place(message)
        except NotDeliverableError as error:
            logger.error(
                "timer message %d is left out and will not be delivered: %s", queue_offset, error
            )
            return None

    def _deliver_slice(self) -> None:
        """Deliver some of the earliest slot, which is due, and commit it.

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
            arrivals = self._store.commit()
        except Exception:
            self._store.roll_back()
            raise
        self.wheel.took(count)
        self._moved.set()
        self.delivered += delivered
        if arrivals:
            self._on_messages(arrivals)
        if failure is not None:
            raise failure
        if offsets and not count:
            raise StoreIOError(TIMER_TOPIC, self._refusal or "the store takes no message")

    def _deliver(self, slot: Slot, queue_offset: int) -> bool | None:
        """Append one message to its own queue.

        Returns: whether it was delivered; None: the store does not take it now.
        """
        message = self._message(queue_offset)
        if message is None:
            return False
        place = self._real_place(message, queue_offset)
        if place is None:
            return False
        topic, queue_id = place
        name = _name(topic, message.unique_key)
        if slot.is_recalled(name):
            return False
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
            logger.error("timer message %d is left out, %s: %s", queue_offset, topic, status.name)
            return False
        return None

    def _message(self, queue_offset: int) -> MessageExt | None:
        """A message of the queue; None: it is damaged, or its log file was deleted."""
        try:
            result = self._store.get_message(*_QUEUE, queue_offset, 1)
            if result.buffers:
                return decode_record(result.buffers[0])
        except (CorruptRecordError, RemoteProtocolError) as error:
            logger.error("timer message %d is left out: %s", queue_offset, error)
        return None

    # ---- the progress --------------------------------------------------------------------

    def progress(self) -> TimerCheckpoint:
        """How far the messages are delivered now.

        While the queue is still being read again, and on a slave, what was saved knows more.
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

    def _new_progress(self) -> TimerCheckpoint | None:
        """`progress`; None: there is nothing new to save."""
        if not self._moved.is_set() or self._read_offset < self._known.read_offset:
            return None
        self._moved = trio.Event()
        return self.progress()

    async def take_over(self, answer: bytes) -> None:
        """Of a slave, whose timers do not run: note how far its master has delivered them.

        Args:
          answer: to GET_TIMER_CHECK_POINT (60); the log must have what was delivered.
        Raises: StoreError: it could not be noted.
        """
        page = answer[:TIMER_FILE_SIZE].ljust(TIMER_FILE_SIZE, b"\0")
        progress = TimerCheckpoint.from_page(page)
        if progress != self._known:
            await self._save(page)
            self._known = progress

    async def save(self) -> None:
        """Note from time to time how far the messages are delivered, until cancelled."""
        while True:
            await self._moved.wait()
            await trio.sleep(self._store.config.timer_flush_interval_ms / 1000)
            progress = self._new_progress()
            if progress is None:
                continue
            try:
                await self._save(progress.to_page(self._clock.wall_ms()))
            except StoreError as error:
                self._moved.set()
                logger.error("how far timer messages are delivered is not saved: %s", error)
            except Exception:
                self._moved.set()
                raise

    def note_progress(self) -> None:
        """Note it now, at a stop; the store must be flushed.

        Raises: StoreIOError: it could not be.
        """
        progress = self._new_progress()
        if progress is not None and self._store.flusher.failure is None:
            self._write(progress.to_page(self._clock.wall_ms()))

    async def _save(self, page: bytes) -> None:
        """Have a page in the file, and before it on the device what it says is delivered."""
        flusher, threaded = self._store.flusher, self._store.disk.threaded
        await flusher.flush_in_thread(threaded=threaded)
        if flusher.failure is not None:
            raise flusher.failure
        if threaded:
            await trio.to_thread.run_sync(self._write, page)
        else:
            self._write(page)

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
        if is_new:
            disk.sync_folder(folder)
