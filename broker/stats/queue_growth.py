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
from ...common.steps import STEP_ITEMS, Steps

UNITS_PER_STEP: Final = 65_536
"""Units whose sizes one step adds up, of all its queues together: some 2 ms."""

UNITS_PER_SORTED_STEP: Final = 8_192
"""The same where sizes are put into buckets, which takes some 3 ms."""

QUEUES_PER_STEP: Final = 2_000
"""Queues of one step, which takes some 2 ms if they have no new messages."""

_UNIT_SIZE: Final = 20
_WORDS: Final = _UNIT_SIZE // 4
"""A unit is five words: two of the physical offset, the size, two of the tags code."""


class Queue(Protocol):
    """The part of a consume queue that is used here."""

    @property
    def max_offset(self) -> int: ...

    @property
    def min_offset(self) -> int:
        """The first offset that is still there."""

    def read(self, queue_offset: int, count_max: int) -> bytes:
        """Units of 20 bytes from an offset on."""


class Note(Protocol):
    """Takes what one queue has got."""

    def __call__(self, topic: str, queue_id: int, count: int, size: int, /) -> None:
        """Take `count` messages of `size` bytes together."""


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

    def look(self, note: Note) -> Steps[None]:
        """Steps that find the new messages of each queue, and take them for known.

        Several looks may be under way; each message is found by one of them.

        Args:
          note: called for each queue with new messages.
        Raises: StoreError: a file cannot be read. The messages of that queue and of those behind it
          are found next time.
        """
        grown = scanned = 0
        units_max = UNITS_PER_SORTED_STEP if self.size_bounds else UNITS_PER_STEP
        # The keys only: a pair for each of 50,000 queues takes 3 ms and more.
        for number, key in enumerate(list(self._queues), 1):
            if number % QUEUES_PER_STEP == 0:
                yield
            queue = self._queues.get(key)
            if queue is None:
                continue  # it was deleted meanwhile
            begin, end = self._begin(key, queue), queue.max_offset
            if begin >= end:
                continue
            self._ends[key] = end  # before the steps, between which another look may begin
            total, size = 0, None
            try:
                for start in range(begin, end, units_max):
                    count = min(end - start, units_max)
                    # Before the units are read: a step has at most `units_max` of them.
                    if scanned + count > units_max:
                        scanned = 0
                        yield
                    scanned += count
                    total += self._size_of(key[0], queue, start, count)
                size = total
            finally:
                if size is None:
                    self._ends[key] = begin
            note(*key, end - begin, size)
            grown += 1
            if grown % STEP_ITEMS == 0:
                scanned = 0
                yield
        if len(self._ends) > len(self._queues):
            self._ends = {key: end for key, end in self._ends.items() if key in self._queues}

    def _size_of(self, topic: str, queue: Queue, begin: int, count: int) -> int:
        """The sizes of some messages of a queue together; those that are gone have none."""
        bounds, total, end = self.size_bounds, 0, begin + count
        while begin < end:
            units = queue.read(begin, end - begin)
            count = len(units) // _UNIT_SIZE
            if not count:
                break
            words = array("I")
            words.frombytes(units[: count * _UNIT_SIZE])
            sizes = words[2::_WORDS]
            sizes.byteswap()
            total_here = _sum(sizes)
            if bounds:
                histogram = self.sizes.get(topic)
                if histogram is None:
                    histogram = self.sizes[topic] = Histogram(bounds)
                histogram.add_counts(_in_buckets(sizes, bounds), total_here)
            total += total_here
            begin += count
        return total

    def _begin(self, key: tuple[str, int], queue: Queue) -> int:
        """The first message that is not known. A queue that ends earlier was created again."""
        begin = self._ends.get(key, 0)
        return max(begin if begin <= queue.max_offset else 0, queue.min_offset)


def _sum(sizes: array[int]) -> int:
    first = sizes[:1]
    # Most topics have messages of one size, and comparing bytes takes a tenth of adding numbers.
    return first[0] * len(sizes) if sizes == first * len(sizes) else sum(sizes)


def _in_buckets(sizes: array[int], bounds: Sequence[float]) -> list[int]:
    """How many of the sizes are in each bucket, those above the last bound at the end."""
    if max(sizes) <= bounds[0]:  # as in most topics
        return [len(sizes)]
    ordered = sorted(sizes)
    ends = [bisect_right(ordered, bound) for bound in bounds]
    return [end - begin for begin, end in zip([0, *ends], [*ends, len(ordered)], strict=True)]
