"""When timer messages are due, and which of them are not to be delivered.

Pure. Every timer message of the last days is in here, as eight bytes: the queue offset at which it
waits in rmq_sys_wheel_timer, in the slot of the moment it is due. A slot is as long as
`timerPrecisionMs`, so there are at most some 260,000 of them.

Java counterpart: store/timer/TimerWheel.java and TimerLog.java of 5.3.3, which keep the same in
files; ours is made again from the queue at each start.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush


def out_ms(deliver_ms: int, precision_ms: int) -> int:
    """The begin of the slot at whose end a message is delivered: TIMER_OUT_MS, ms since 1970.

    Source: RocketMQ 5.3.3 HookUtils.transformTimerMessage.
    """
    return (deliver_ms - 1) // precision_ms * precision_ms


@dataclass(slots=True)
class Slot:
    """What is due at one moment.

    Attributes:
      offsets: queue offsets of its messages, rising.
      recalled: `topic+unique key` of messages that were taken back.
      rolled: `topic+unique key` of messages that Apache's broker wrote a second time to keep them
        longer; the earlier copies do not count.
      next: index of the next message to deliver.
    """

    offsets: array[int] = field(default_factory=lambda: array("Q"))
    recalled: set[str] = field(default_factory=set)
    rolled: set[str] = field(default_factory=set)
    next: int = 0

    @property
    def is_done(self) -> bool:
        """Whether none of its messages waits."""
        return self.next >= len(self.offsets)


class TimerWheel:
    """All slots that have something to deliver."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._moments: list[int] = []  # a heap of the slots' keys
        self._oldest: deque[Slot] = deque()  # in the order of their first messages
        self._count = 0

    def __len__(self) -> int:
        """How many messages wait."""
        return self._count

    def slot(self, moment_ms: int) -> Slot:
        """The slot of a moment, TIMER_OUT_MS; made when there is none."""
        slot = self._slots.get(moment_ms)
        if slot is None:
            slot = self._slots[moment_ms] = Slot()
            heappush(self._moments, moment_ms)
        return slot

    def add(self, moment_ms: int, queue_offset: int) -> None:
        """Have a message delivered at a moment.

        Args:
          queue_offset: greater than all before it.
        """
        slot = self.slot(moment_ms)
        if not slot.offsets:
            self._oldest.append(slot)
        slot.offsets.append(queue_offset)
        self._count += 1

    def first(self) -> tuple[int, Slot] | None:
        """The earliest slot and its moment; None: nothing waits."""
        return (self._moments[0], self._slots[self._moments[0]]) if self._moments else None

    def took(self, count: int) -> None:
        """So many messages of the earliest slot are through; after the last, so is the slot."""
        slot = self._slots[self._moments[0]]
        slot.next += count
        self._count -= count
        if slot.is_done:
            del self._slots[heappop(self._moments)]

    def waiting_offset(self, end: int) -> int:
        """No message with a smaller queue offset waits; `end` when none does."""
        while self._oldest and self._oldest[0].is_done:
            self._oldest.popleft()
        return self._oldest[0].offsets[0] if self._oldest else end
