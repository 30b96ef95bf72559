"""OrderLocks: when queues that are consumed in order become free, to wake those who wait for them.

Java counterpart: broker/pop/orderly/QueueLevelConsumerOrderInfoLockManager.java of 5.5.0, which has
a timer for each queue. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final, NamedTuple

_STALE_MAX: Final = 64
"""Out-of-date entries of the heap, beyond as many as there are queues, before it is rebuilt."""


class LockedQueue(NamedTuple):
    """A queue of one group."""

    topic: str
    group: str
    queue_id: int


class OrderLocks:
    """The times at which queues become free, one of each queue."""

    def __init__(self) -> None:
        self._times: dict[LockedQueue, int] = {}
        self._heap: list[tuple[int, LockedQueue]] = []

    def __len__(self) -> int:
        return len(self._times)

    def set(self, queue: LockedQueue, free_ms: int) -> None:
        """Set when a queue becomes free, ms since 1970, instead of an earlier time for it."""
        if self._times.get(queue) == free_ms:
            return
        self._times[queue] = free_ms
        heapq.heappush(self._heap, (free_ms, queue))
        if len(self._heap) > 2 * len(self._times) + _STALE_MAX:
            self._heap = [(time_ms, each) for each, time_ms in self._times.items()]
            heapq.heapify(self._heap)

    def drop(self, queue: LockedQueue) -> None:
        self._times.pop(queue, None)

    @property
    def next_ms(self) -> int | None:
        """When the next queue becomes free, ms since 1970; None if there is none."""
        while self._heap:
            free_ms, queue = self._heap[0]
            if self._times.get(queue) == free_ms:
                return free_ms
            heapq.heappop(self._heap)
        return None

    def take_free(self, now_ms: int) -> Iterator[LockedQueue]:
        """Take the queues that are free, those that were first coming first."""
        while (next_ms := self.next_ms) is not None and next_ms <= now_ms:
            _, queue = heapq.heappop(self._heap)
            del self._times[queue]
            yield queue
