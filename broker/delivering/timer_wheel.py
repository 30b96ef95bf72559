"""TimerWheel: the waiting timer messages by due time, and those that were recalled.

Pure. Every waiting timer message is stored as eight bytes: its queue offset in rmq_sys_wheel_timer,
in the slot of its due time. A slot is `timerPrecisionMs` long and takes some 350 bytes. Timers wait
for at most `timerMaxDelaySec`, so there are at most 260,000 slots, which take 90 MB.

Java counterpart: store/timer/TimerWheel.java and TimerLog.java of 5.3.3, which are files; ours is
rebuilt from the queue at each start.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Final

from ...common.steps import Steps, in_parts

SLOTS_PER_STEP: Final = 5_000
"""Slots that are counted in one step, some 2 ms."""


NAME_SIZE: Final = 16
"""Bytes of the digest that identifies a recalled message; names may be of any length."""


def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=NAME_SIZE).digest()


class Slot:
    """The messages that are due at one moment.

    Attributes:
      offsets: queue offsets of its messages, rising.
      next: index of the next message to deliver.
    """

    __slots__ = ("_recalled", "_rolled", "next", "offsets")

    def __init__(self) -> None:
        self.offsets: array[int] = array("Q")
        self.next = 0
        self._recalled: set[bytes] | None = None  # most slots have none
        self._rolled: set[bytes] | None = None

    @property
    def is_done(self) -> bool:
        """Whether all of its messages are delivered."""
        return self.next >= len(self.offsets)

    def recall(self, name: str) -> None:
        """Mark a message as recalled, by its `topic+unique key`."""
        self._recalled = self._recalled or set()
        self._recalled.add(_digest(name))

    def roll(self, name: str) -> None:
        """Mark earlier copies of a message as invalid, because Apache's broker wrote it again."""
        self._rolled = self._rolled or set()
        self._rolled.add(_digest(name))

    def is_recalled(self, name: str) -> bool:
        """Whether a message was recalled."""
        return self._recalled is not None and _digest(name) in self._recalled

    def is_rolled(self, name: str) -> bool:
        """Whether there is a later copy of a message."""
        return self._rolled is not None and _digest(name) in self._rolled


class TimerWheel:
    """The slots with waiting messages."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self._moments: list[int] = []  # a heap of the slots' keys
        self._oldest: dict[int, int] = {}  # first offset by moment, rising
        self._count = 0

    def __len__(self) -> int:
        """The number of waiting messages."""
        return self._count

    def slot(self, moment_ms: int) -> Slot:
        """The slot of a TIMER_OUT_MS, created if there is none."""
        slot = self._slots.get(moment_ms)
        if slot is None:
            slot = self._slots[moment_ms] = Slot()
            heappush(self._moments, moment_ms)
        return slot

    def add(self, moment_ms: int, queue_offset: int) -> None:
        """Add a message.

        Args:
          moment_ms: its TIMER_OUT_MS.
          queue_offset: greater than all earlier ones.
        """
        slot = self.slot(moment_ms)
        if not slot.offsets:
            self._oldest[moment_ms] = queue_offset
        slot.offsets.append(queue_offset)
        self._count += 1

    def first(self) -> tuple[int, Slot] | None:
        """The earliest slot and its moment; None: nothing waits."""
        return (self._moments[0], self._slots[self._moments[0]]) if self._moments else None

    def first_ms(self) -> int:
        """The moment of the earliest slot; 0: nothing waits."""
        return self._moments[0] if self._moments else 0

    def waiting_before(self, bounds_ms: Sequence[int]) -> Steps[list[int]]:
        """Steps that count the waiting messages by their moments.

        Args:
          bounds_ms: rising.
        Returns: steps that return a number for each bound: of the messages whose moments are before
          it, and not before the previous bound.
        """
        counts = [0] * (len(bounds_ms) + 1)
        for slots in in_parts(list(self._slots.items()), SLOTS_PER_STEP):
            for moment_ms, slot in slots:
                counts[bisect_right(bounds_ms, moment_ms)] += len(slot.offsets) - slot.next
            yield
        return counts[:-1]

    def took(self, count: int) -> None:
        """Remove delivered messages from the earliest slot, and the slot once it is empty."""
        slot = self._slots[self._moments[0]]
        slot.next += count
        self._count -= count
        if slot.is_done:
            moment_ms = heappop(self._moments)
            del self._slots[moment_ms]
            self._oldest.pop(moment_ms, None)

    def waiting_offset(self, end: int) -> int:
        """The smallest queue offset of a waiting message; `end` when there is none."""
        return next(iter(self._oldest.values()), end)
