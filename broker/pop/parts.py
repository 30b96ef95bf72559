"""Pop: the parts of pop consumption, and the services among them.

Each part belongs to one module of this folder; `assembly.py` creates and connects them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...common.supervision import Supervisor
from ...remoting.turn import Turn
from .buffer import PopBuffer
from .buffer_service import DROP_IDLE_INTERVAL_S, PopBufferService
from .hold import PopHold
from .order import CLEAN_INTERVAL_S, OrderedPops
from .positions import PopPositions
from .record_puts import RecordPuts
from .recorded_positions import NOTE_INTERVAL_S, RecordedPositions
from .retry_topics import PopRetryTopics
from .revive_service import ReviveService


@dataclass(frozen=True, slots=True)
class Pop:
    """The parts of pop consumption.

    Attributes:
      puts: appends the records of check points and acknowledgements.
      buffer: the check points in memory, and the order of commits.
      storing: stores what is due of the buffer.
      positions: where the next pops begin.
      retry_topics: names and creates retry topics.
      revive: gives messages to their group again that were not acknowledged.
      recorded: where pops continue after a crash.
    """

    puts: RecordPuts
    buffer: PopBuffer
    storing: PopBufferService
    positions: PopPositions
    retry_topics: PopRetryTopics
    hold: PopHold
    revive: ReviveService
    orders: OrderedPops
    recorded: RecordedPositions

    def load(self) -> None:
        """Read the files of pop consumption, on masters and slaves; the store is loaded.

        Raises: StoreError: one is damaged or cannot be read.
        """
        self.orders.load()

    def start(self, services: Supervisor, turn: Turn) -> None:
        services.start_soon("the storing of check points", self.storing.run)
        services.every(
            "the search for queues without pops", DROP_IDLE_INTERVAL_S, self.storing.drop_idle
        )
        services.start_soon("the waking of pops", self.hold.run, turn)
        self.revive.load()
        # After the revive service is loaded, and before anything is popped.
        self.recorded.load()
        services.every("the noting of recorded pops", NOTE_INTERVAL_S, self.recorded.note)
        services.start_soon("the revival of popped messages", self.revive.run)
        services.start_soon("the release of queues in order", self.orders.run)
        services.every("the cleaning of queues in order", CLEAN_INTERVAL_S, self.orders.clean)

    def note_progress(self) -> None:
        """Record what is done, at a clean stop of a master; the log is on the device."""
        self.revive.note_progress()
        self.recorded.note_all()

    def close(self) -> None:
        """Store and save what is in memory only, at a clean stop; the store is still open.

        Raises: StoreError: it could not be stored; the messages are popped again.
        """
        self.storing.store_all()

    def topic_deleted(self, topic: str) -> None:
        self.buffer.forget_topic(topic)
        self.orders.table.remove_topic(topic)
        self.recorded.leave_behind()

    def group_deleted(self, group: str) -> None:
        self.buffer.forget_group(group)
        self.orders.table.remove_group(group)
        self.recorded.leave_behind()
