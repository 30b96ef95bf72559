"""PopBufferService: stores the check points of the buffer that are due, in one task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from ...common.clock import Clock
from ...common.steps import in_steps
from ...disk.errors import StoreIOError
from ...store.message_store import MessageStore
from ...store.status import PutRefusal
from ..waiting.due_task import DueTask
from .buffer import Buffered, PopBuffer
from .record_puts import RecordPuts
from .records import Ack

logger = logging.getLogger(__name__)

SLICE_COUNT: Final = 32
"""Check points stored before other tasks run, each with a record of acknowledgements: about two
milliseconds."""

SYNC_S: Final = 0.25
"""Between two looks whether the log is on the device, while commits wait for that; it is synced
each half second."""

DROP_IDLE_INTERVAL_S: Final = 60.0
"""Between two searches for queues that no group pops."""


class PopBufferService:
    """Stores due check points, and commits what waits for an fsync.

    Args:
      store: already loaded.
      clock: its wall time decides which are due.
      on_messages: called with the queues that got records.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        clock: Clock,
        buffer: PopBuffer,
        puts: RecordPuts,
        on_messages: Callable[[Collection[tuple[str, int]]], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._buffer = buffer
        self._puts = puts
        self._on_messages = on_messages
        self._task = DueTask(self._work, failing="check points of pops are stored later")
        buffer.wake = self._task.wake

    def wake(self) -> None:
        """Read the clock again."""
        self._task.wake()

    @property
    def is_busy(self) -> bool:
        """Whether something is due and not done yet, as `DueTask.is_busy`."""
        return self._task.is_busy

    async def run(self) -> None:
        """Store what is due, until cancelled."""
        await self._task.run()

    async def drop_idle(self) -> None:
        """Forget queues without recent pops."""
        await in_steps(self._buffer.drop_idle(self._clock.wall_ms()))

    def store_all(self) -> None:
        """Store all check points, and commit what can be, at a clean stop.

        Raises: StoreError: some could not be stored; their messages are popped again.
        """
        while entries := self._buffer.take_all(SLICE_COUNT):
            self._store_slice(entries)
        self._store.flusher.flush()
        self._buffer.synced()

    def _work(self) -> float:
        """Store one slice of what is due; return the seconds until more is."""
        buffer = self._buffer
        if buffer.waits_for_sync:
            buffer.synced()
        due = buffer.take_due(self._clock.wall_ms(), SLICE_COUNT)
        if due:
            began_s = self._clock.elapsed_s()
            self._store_slice(due)
            elapsed_ms = (self._clock.elapsed_s() - began_s) * 1000
            buffer.counts.scans_ms.add(elapsed_ms)
        left_s = buffer.left_ms(self._clock.wall_ms()) / 1000
        # An fsync wakes no task, so it is looked for.
        return min(left_s, SYNC_S) if buffer.waits_for_sync and left_s > 0 else left_s

    def _store_slice(self, entries: list[Buffered]) -> None:
        """Store check points, each with what is acknowledged of it.

        Raises: StoreError: none of them is stored, or the store refuses one.
        """
        stored: list[Buffered] = []
        refusal: PutRefusal | None = None
        self._store.begin_burst()
        try:
            for entry in entries:
                refused = self._put(entry)
                if refused is None:
                    stored.append(entry)
                else:
                    # The others are stored all the same.
                    refusal = refused
            arrivals = self._store.commit()
        except Exception:
            self._store.roll_back()
            now_ms = self._clock.wall_ms()
            for entry in entries:
                self._buffer.was_not_written(entry, now_ms)
            raise
        log_end = self._store.max_physical_offset
        for entry in stored:
            self._buffer.was_written(entry, log_end)
        if arrivals:
            self._on_messages(arrivals)
        if refusal is not None:
            now_ms = self._clock.wall_ms()
            for entry in entries:
                if entry.text:
                    self._buffer.was_not_written(entry, now_ms)
            reason = refusal.remark or refusal.status.name
            raise StoreIOError(self._puts.topic, f"{reason} ({refusal.status.name})")

    def _put(self, entry: Buffered) -> PutRefusal | None:
        """Append the records of a check point; return why they cannot be stored, None: they are."""
        check_point, queue_id = entry.check_point, entry.revive_queue_id
        refusal = self._puts.put_check_point(check_point, queue_id)
        if refusal is None and check_point.acked:
            ack = Ack(check_point.key, tuple(check_point.acked_offsets()))
            refusal = self._puts.put_ack(ack, check_point.revive_time, queue_id)
        # If only the acknowledgements are refused, both are appended again later: the revive
        # service counts equal check points once.
        return refusal
