"""Totals: sums over a whole broker since its start, and their rates.

Java counterpart: store/StoreStatsService.java, broker/BrokerStats.java of 5.5.0. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final, NamedTuple

SAMPLES_BACK: Final = (1, 6, 60)
"""Samples of ten seconds between which the three rates of `TotalsHistory` are."""

PUT_TIMES_MS: Final = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
"""Upper ends of the ranges of times in milliseconds; there is one more, without an end.
Source: StoreStatsService.PUT_MESSAGE_ENTIRE_TIME_MAX_DESC."""

PUT_TIME_NAMES: Final = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
    "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip

SAMPLES_PER_MINUTE: Final = 6


class Totals:
    """Sums since the broker started.

    Attributes:
      put_messages, put_size: stored messages, and the bytes of their records.
      gets_found, gets_missed: pulls with and without messages in their answers; a pull that is held
        counts as one without when it arrives.
      got_messages: messages in the answers to pulls.
    """

    __slots__ = ("gets_found", "gets_missed", "got_messages", "put_messages", "put_size")

    def __init__(self) -> None:
        self.put_messages = self.put_size = 0
        self.gets_found = self.gets_missed = self.got_messages = 0


class TotalsSample(NamedTuple):
    """Some of the totals at a moment.

    Attributes:
      passed_ms: since some fixed moment, by a clock that is never set.
      gets: with and without messages.
    """

    passed_ms: int
    put_messages: int
    gets_found: int
    gets_missed: int
    gets: int
    got_messages: int


class TotalsHistory:
    """The totals of the last ten minutes, and those at the last two midnights.

    Attributes:
      yesterday, today: the totals at the last midnight but one, and at the last one.
    """

    def __init__(self) -> None:
        self._samples: deque[TotalsSample] = deque(maxlen=SAMPLES_BACK[-1] + 1)
        self._day = ""
        self.yesterday = self.today = TotalsSample(0, 0, 0, 0, 0, 0)

    def sample(self, totals: Totals, passed_ms: int, day: str) -> None:
        """Keep the totals of this moment.

        Args:
          passed_ms: since some fixed moment, by a clock that is never set.
          day: a name of the local day.
        """
        sample = TotalsSample(
            passed_ms,
            totals.put_messages,
            totals.gets_found,
            totals.gets_missed,
            totals.gets_found + totals.gets_missed,
            totals.got_messages,
        )
        if self._day and day != self._day:
            self.yesterday, self.today = self.today, sample
        self._day = day
        self._samples.append(sample)

    def rates(self, field: str) -> tuple[float, ...]:
        """Growth per second of a field of `TotalsSample` in the last 10, 60 and 600 seconds.

        A broker that has not run that long has the rate since its start.
        """
        if len(self._samples) < 2:
            return (0.0,) * len(SAMPLES_BACK)
        rates = []
        last = self._samples[-1]
        for back in SAMPLES_BACK:
            first = self._samples[max(-1 - back, -len(self._samples))]
            passed_s = (last.passed_ms - first.passed_ms) / 1000
            grown = getattr(last, field) - getattr(first, field)
            rates.append(grown / passed_s if passed_s > 0 else 0.0)
        return tuple(rates)


class PutTimes:
    """The times that writes to the log took. One write stores the messages of a whole turn.

    Attributes:
      longest_ms: since the start.
    """

    def __init__(self) -> None:
        self.longest_ms = 0
        self._counts = [0] * (len(PUT_TIMES_MS) + 1)
        self._last = self._counts
        self._samples = 0

    def note(self, elapsed_s: float) -> None:
        """Count one write."""
        elapsed_ms = int(elapsed_s * 1000)
        if not elapsed_ms:  # nearly always
            self._counts[0] += 1
            return
        self._counts[bisect_left(PUT_TIMES_MS, elapsed_ms)] += 1
        self.longest_ms = max(self.longest_ms, elapsed_ms)

    def sample(self) -> None:
        """Begin a new minute with every sixth sample."""
        self._samples += 1
        if self._samples % SAMPLES_PER_MINUTE == 0:
            self._last, self._counts = self._counts, [0] * len(self._counts)

    def text(self) -> str:
        """The counts of the last whole minute, in RocketMQ's form; the present one's at first."""
        pairs = zip(PUT_TIME_NAMES, self._last, strict=True)
        return "".join(f"{name}:{count} " for name, count in pairs)

    def percentile_ms(self, share: float) -> float:
        """The time in milliseconds that a share of the last minute's writes kept to.

        It is interpolated within a range, so it is a rough number, as RocketMQ's is.
        """
        wanted = sum(self._last) * share
        passed, low = 0, 0
        for end, count in zip((*PUT_TIMES_MS, self.longest_ms), self._last, strict=True):
            if count and wanted <= passed + count:
                return low + (max(end, low) - low) * (wanted - passed) / count
            passed += count
            low = end
        return 0.0
