"""Histogram: counts of values in buckets, as Prometheus has them.

Pure; the counters of event loop, disk and requests are made of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends for times of work in an event loop, in seconds."""


class Histogram:
    """Counts of values in buckets.

    Args:
      bounds: upper ends of the buckets, rising; greater values have one more bucket.

    Attributes:
      counts: by bucket, one more than there are bounds.
      count, total: of all values: their number and their sum.
      largest: the greatest value; 0 if there is none.
    """

    __slots__ = ("bounds", "count", "counts", "largest", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0
        self.largest = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value.

        Args:
          value: at least 0.
          times: how often it occurred.
        """
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.total += value * times
        if value > self.largest:
            self.largest = value

    def add_counts(self, counts: Iterable[int], total: float) -> None:
        """Count values that are already sorted into the buckets.

        Args:
          counts: by bucket.
          total: the sum of the values.
        """
        for at, count in enumerate(counts):
            self.counts[at] += count
            self.count += count
        self.total += total

    def percentile(self, percent: float) -> float:
        """The upper end of the bucket in which a percentile lies; at most the greatest value.

        Args:
          percent: 0 to 100.
        """
        wanted = self.count * percent / 100
        below = 0
        for count, end in zip(self.counts, self.bounds, strict=False):
            below += count
            if below >= wanted:
                return min(end, self.largest)
        return self.largest
