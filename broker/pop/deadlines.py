"""Deadlines: items by the time at which they are due, in a wheel of short slots.

Adding and removing take the same time however many items there are. Pure: the time is an argument.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

SLOT_S: Final = 0.02
"""Seconds of a slot; items are due at its end. RocketMQ looks for pops whose time is over as often
(PopLongPollingService.run)."""

T = TypeVar("T")


class Deadlines(Generic[T]):
    """The items that are not due yet."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[T, None]] = {}
        self._numbers: list[int] = []  # a heap of the slots' keys
        self._due: dict[T, None] = {}  # of a slot whose time is over

    def add(self, item: T, deadline_s: float) -> None:
        number = _slot_of(deadline_s)
        slot = self._slots.get(number)
        if slot is None:
            # It stays until its time, even if it gets empty: so the heap has each slot once.
            slot = self._slots[number] = {}
            heappush(self._numbers, number)
        slot[item] = None

    def remove(self, item: T, deadline_s: float) -> None:
        """Remove an item that was added with this deadline, and not taken."""
        slot = self._slots.get(_slot_of(deadline_s))
        (self._due if slot is None or item not in slot else slot).pop(item, None)

    def take_due(self, now_s: float, count_max: int) -> list[T]:
        """Remove and return items that are due, at most this many."""
        taken: list[T] = []
        while len(taken) < count_max and self.next_s <= now_s:
            if not self._due:
                self._due = self._slots.pop(heappop(self._numbers))
            elif len(taken) + len(self._due) <= count_max:
                taken += self._due
                self._due = {}
            else:
                # From the end, because to look for the first of many removed keys again and again
                # takes quadratic time.
                taken.append(self._due.popitem()[0])
        return taken

    @property
    def next_s(self) -> float:
        """When the next slot is over; infinity if there is none."""
        if self._due:
            return -math.inf
        return self._numbers[0] * SLOT_S if self._numbers else math.inf


def _slot_of(deadline_s: float) -> int:
    return math.ceil(deadline_s / SLOT_S)
