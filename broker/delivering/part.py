"""Delivering: messages that are delivered later, by a delay level or at a time."""

from __future__ import annotations

from ...common.supervision import Supervisor
from ..part import Foundation, Part, Processors, Serving
from ..tables.part import Tables
from .recall_message import RecallMessageProcessor
from .schedule_message_service import ScheduleMessageService
from .timer_message_service import TimerMessageService


class Delivering(Part):
    """The delayed messages of a broker.

    Attributes:
      schedule: delivers those with a delay level.
      timers: deliver those with a time.
    """

    name = "the timers"

    def __init__(self, foundation: Foundation, tables: Tables) -> None:
        self._config, self._store = foundation.config, foundation.store
        self._topics = tables.topics
        clock, notify = foundation.seams.clock, foundation.new_messages.notify
        self.schedule = ScheduleMessageService(
            foundation.store,
            clock=clock,
            levels=foundation.levels,
            offsets=tables.delay_offsets,
            puts=foundation.puts,
            on_messages=notify,
        )
        self.timers = TimerMessageService(
            foundation.store, clock=clock, puts=foundation.puts, on_messages=notify
        )
        foundation.new_messages.subscribe(self.schedule.arrived, self.timers.arrived)

    @property
    def used_timers(self) -> TimerMessageService | None:
        """The timers; None: timerWheelEnable is false."""
        return self.timers if self._store.config.timer_wheel_enable else None

    def load(self, *, was_killed: bool) -> None:
        """See `Part`."""
        self.timers.load(was_killed=was_killed)

    def processors(self, serving: Serving) -> Processors:
        """See `Part`."""
        recall = RecallMessageProcessor(self._config, self._store, serving.puts, self._topics)
        return recall.processors

    async def start(self, services: Supervisor) -> None:
        """See `Part`."""
        if self._store.is_slave:
            return
        await services.start("the delivery of delayed messages", self.schedule.run)
        if self.used_timers is not None:
            services.start_soon("the delivery of timer messages", self.timers.run)
            services.start_soon("the saving of timers", self.timers.save)

    def topic_deleted(self, topic: str) -> None:
        """See `Part`."""
        self.timers.counts.topic_deleted(topic)

    def wall_clock_set(self) -> None:
        """See `Part`."""
        self.schedule.wake()
        self.timers.wake()

    def owes(self) -> bool:
        """See `Part`."""
        return self.schedule.is_busy or self.timers.is_busy

    def note_progress(self) -> None:
        """See `Part`."""
        self.timers.note_progress()
