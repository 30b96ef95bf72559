"""QueueGrowth: the messages that the queues of a store have got since the last look.

Nothing is counted while messages are stored. The queues know how many they have, and their units
the messages' sizes, so a look every ten seconds finds the same numbers. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from ...common.histogram import Histogram
from ...remoting.steps import Steps

UNITS_PER_STEP: Final = 65_536
"""Units whose sizes one step adds up, some 2 ms."""

UNITS_PER_SORTED_STEP: Final = 8_192
"""Units of one step that puts sizes into buckets, which takes some 3 ms."""

_UNIT_SIZE: Final = 20
_WORDS: Final = _UNIT_SIZE // 4
"""A unit is five words: two of the physical offset, the size, two of the tags code."""


class Queue(Protocol):
    """The part of a consume queue that is used here."""

    @property
    def max_offset(self) -> int:
        """The next offset."""

    @property
    def min_offset(self) -> int:
        """The first offset that is still there."""

    def read(self, queue_offset: int, count_max: int) -> bytes:
        """Units of 20 bytes from an offset on."""


class QueueGrowth:
    """Remembers the ends of queues.

    Args:
      queues: of the store, by topic and queue id; read at each look.

    Attributes:
      size_bounds: upper ends of buckets for the sizes of messages; empty: sizes are added up only.
      sizes: the sizes by topic, since the bounds were set.
    """

    def __init__(self, queues: Mapping[tuple[str, int], Queue]) -> None:
        self.size_bounds: Sequence[float] = ()
        self.sizes: dict[str, Histogram] = {}
        self._queues = queues
        self._ends: dict[tuple[str, int], int] = {}

    def start(self) -> None:
        """Take the messages that are there now for known."""
        self._ends = {key: queue.max_offset for key, queue in self._queues.items()}

    def counts(self) -> dict[str, int]:
        """The number of new messages by topic, without taking them for known."""
        found: dict[str, int] = {}
        for key, queue in self._queues.items():
            new = queue.max_offset - self._begin(key, queue)
            if new > 0:
                found[key[0]] = found.get(key[0], 0) + new
        return found

    def look(self) -> Steps[dict[tuple[str, int], tuple[int, int]]]:
        """Steps that return the new messages and their bytes by queue, and take them for known.

        Raises: StoreError: a file cannot be read; the messages of that queue are found next time.
        """
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for key, queue in list(self._queues.items()):
            begin, end = self._begin(key, queue), queue.max_offset
            if begin >= end:
                continue
            size = yield from self._size_of(key[0], queue, begin, end)
            self._ends[key] = end
            found[key] = end - begin, size
        if len(self._ends) > len(self._queues):
            self._ends = {key: end for key, end in self._ends.items() if key in self._queues}
        return found

    def _size_of(self, topic: str, queue: Queue, begin: int, end: int) -> Steps[int]:
        """Steps that add up the sizes of a queue's messages."""
        bounds, size, left = self.size_bounds, 0, 0
        most = UNITS_PER_SORTED_STEP if bounds else UNITS_PER_STEP
        while begin < end:
            units = queue.read(begin, min(end - begin, most))
            count = len(units) // _UNIT_SIZE
            if not count:
                break
            words = array("I")
            words.frombytes(units[: count * _UNIT_SIZE])
            sizes = words[2::_WORDS]
            sizes.byteswap()
            total = sum(sizes)
            if bounds:
                histogram = self.sizes.get(topic)
                if histogram is None:
                    histogram = self.sizes[topic] = Histogram(bounds)
                histogram.add_counts(_in_buckets(sizes, bounds), total)
            size += total
            begin += count
            left += count
            if left >= most:
                left = 0
                yield
        return size

    def _begin(self, key: tuple[str, int], queue: Queue) -> int:
        """The first message that is not known. A queue that ends earlier was created again."""
        begin = self._ends.get(key, 0)
        return max(begin if begin <= queue.max_offset else 0, queue.min_offset)


def _in_buckets(sizes: array[int], bounds: Sequence[float]) -> list[int]:
    """How many of the sizes are in each bucket, those above the last bound at the end."""
    if max(sizes) <= bounds[0]:  # as in most topics
        return [len(sizes)]
    ordered = sorted(sizes)
    ends = [bisect_right(ordered, bound) for bound in bounds]
    return [end - begin for begin, end in zip([0, *ends], [*ends, len(ordered)], strict=True)]
