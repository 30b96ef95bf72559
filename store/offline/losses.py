"""The messages lost in the log's holes, as queue units and queue offsets show them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import NamedTuple

from ..log.log_reader import Hole

LOST_MAX = 5_000_000
"""Lost messages kept one by one, about 200 bytes each; more are counted only."""


LOOKED_AT = 100
"""Holes among which one is chosen for messages without a known place."""


class Lost(NamedTuple):
    """One lost message."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int  # by its unit; -1: unknown
    size: int  # bytes of its record; 0: unknown
    before: int  # physical offset of the next record of its queue, or the hole's end


class Losses:
    """Lost messages by hole.

    Args:
      holes: the log's, rising.
      remember: keep each lost message, as a repair needs it.

    Attributes:
      counts: for each hole the number of lost messages by queue.
      lost: for each hole its messages, if they are remembered.
      is_complete: all are in `lost`, within the limit of memory.
    """

    def __init__(self, holes: list[Hole], *, remember: bool) -> None:
        self.holes = holes
        self.counts: list[Counter[tuple[str, int]]] = [Counter() for _ in holes]
        self.lost: list[list[Lost]] = [[] for _ in holes]
        self.is_complete = True
        self._starts = [hole.start for hole in holes]
        self._remember = remember
        self._remembered = 0
        self._seen: set[int] = set()

    def begin_queue(self) -> None:
        self._seen.clear()

    def hole_at(self, physical_offset: int) -> int | None:
        """The number of the hole that holds a byte; None when none does."""
        number = bisect_right(self._starts, physical_offset) - 1
        if number >= 0 and physical_offset < self.holes[number].end:
            return number
        return None

    def hole_between(self, start: int, end: int) -> int | None:
        """The number of the largest hole in [start, end), of the first `LOOKED_AT` ones."""
        first = number = bisect_right(self._starts, start - 1)
        while number < len(self.holes) and self.holes[number].end <= end:
            number += 1
        size = {at: self.holes[at].end - self.holes[at].start for at in range(first, number)}
        return max(list(size)[:LOOKED_AT], key=size.__getitem__, default=None)

    def add(self, key: tuple[str, int], queue_offset: int, physical_offset: int, size: int) -> bool:
        """Add a message whose unit points into a hole; False when it does not."""
        number = self.hole_at(physical_offset)
        if number is None:
            return False
        end = self.holes[number].end
        self._note(number, Lost(*key, queue_offset, physical_offset, size, end))
        return True

    def add_unplaced(
        self, key: tuple[str, int], queue_offset: int, before: int, number: int
    ) -> None:
        """Add a message of which only the queue offset is known, unless its unit was added."""
        if queue_offset not in self._seen:
            end = min(before, self.holes[number].end)
            self._note(number, Lost(*key, queue_offset, -1, 0, end))

    def _note(self, number: int, lost: Lost) -> None:
        self._seen.add(lost.queue_offset)
        self.counts[number][lost.topic, lost.queue_id] += 1
        if self._remember:
            self._remembered += 1
            if self._remembered > LOST_MAX:
                self.is_complete = False
            else:
                self.lost[number].append(lost)

    @property
    def total(self) -> Counter[tuple[str, int]]:
        """Lost messages of each queue, over all holes."""
        total: Counter[tuple[str, int]] = Counter()
        for counts in self.counts:
            total.update(counts)
        return total


def per_queue(counts: Counter[tuple[str, int]], limit: int = 8) -> str:
    """`3 of T queue 0, 1 of U queue 2`, largest first, and the number of omitted queues."""
    parts = [
        f"{count} of {topic} queue {number}" for (topic, number), count in most(counts)[:limit]
    ]
    if len(counts) > limit:
        parts.append(f"more of {len(counts) - limit} other queues")
    return ", ".join(parts)


def most(counts: Counter[tuple[str, int]]) -> list[tuple[tuple[str, int], int]]:
    """All counts, largest first, then by name."""
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
