"""StatsItem: the growth of one counter over the last minute, hour and day.

Java counterpart: common/stats/StatsItem.java of 5.5.0. Pure.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

SAMPLE_INTERVAL_MS: Final = 10_000
"""Milliseconds between two samples of a minute. Source: StatsItemSet.init."""


class Period(NamedTuple):
    """A period over which growth is stated.

    Attributes:
      every: how many samples of a minute pass between two samples of this period.
      count_max: samples that are kept; they span the period.
    """

    every: int
    count_max: int

    @property
    def interval_ms(self) -> int:
        """Milliseconds between two samples."""
        return self.every * SAMPLE_INTERVAL_MS


PERIODS: Final = (Period(1, 7), Period(60, 7), Period(360, 25))
"""The last minute, hour and day. Source: StatsItem.samplingInSeconds and the like."""
MINUTE, HOUR, DAY = range(3)


class StatsSnapshot(NamedTuple):
    """Growth during a period.

    Attributes:
      tps: of the value per second.
      avgpt: of the value per counted event.
    """

    sum: int
    tps: float
    avgpt: float


_NOTHING: Final = StatsSnapshot(0, 0.0, 0.0)

_FIELDS: Final = 3
"""Numbers of a sample: its moment, value, times. A counter has up to 39 samples, 1 KB in arrays,
and each queue of a broker has counters."""


class StatsItem:
    """A counter and its samples.

    Attributes:
      value, times: the sum of what was counted, and the number of events.
    """

    __slots__ = ("_samples", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        # The samples of each period one after the other; empty until the first one.
        self._samples: tuple[array[int] | None, ...] = (None, None, None)

    def add(self, value: int, times: int) -> None:
        """Count events."""
        self.value += value
        self.times += times

    def sample(self, passed_ms: int, number: int) -> None:
        """Take the samples that are due.

        Args:
          passed_ms: since some fixed moment, by a clock that is never set.
          number: of this sample among all that are taken every SAMPLE_INTERVAL_MS.
        """
        # The tuple is replaced for the first sample of a period only. The garbage collector would
        # find a new one of each counter when it next looks for young objects: with the 150,000
        # counters of 50,000 queues that took 40 ms.
        samples = self._samples
        for at, period in enumerate(PERIODS):
            if number % period.every:
                continue
            kept = samples[at]
            if kept is None:
                kept = array("q", (passed_ms - period.interval_ms, 0, 0))
                samples = self._samples = (*samples[:at], kept, *samples[at + 1 :])
            kept.extend((passed_ms, self.value, self.times))
            if len(kept) > period.count_max * _FIELDS:
                del kept[:_FIELDS]

    def growth(self, period: int) -> StatsSnapshot:
        """The growth between the oldest and the newest sample of MINUTE, HOUR or DAY."""
        samples = self._samples[period]
        if samples is None:
            return _NOTHING
        begin_ms, begin, begin_times = samples[:_FIELDS]
        end_ms, end, end_times = samples[-_FIELDS:]
        grown, times = end - begin, end_times - begin_times
        return StatsSnapshot(
            grown,
            grown * 1000 / (end_ms - begin_ms) if end_ms > begin_ms else 0.0,
            grown / times if times > 0 else 0.0,
        )
