"""Event loop monitor: slow requests and the loop's lag, for the log and for metrics.

A server does all its work in one loop, so what takes long keeps everybody waiting. The time of each
connection's burst is taken as it is served (two looks at the clock for a burst, none for a
request). Work that a burst does not show, such as an answer made in a task of its own, shows as
lag: how late a sleeping task wakes.

Java counterpart: none; NettyRemotingAbstract's invoke times and the thread pools' queue times come
nearest.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from .codec import RemotingCommand

logger = logging.getLogger(__name__)

SLOW_BURST_S: Final = 0.02
"""Seconds that one connection's burst may take before the log names it: at 50 such requests a
second nobody else is served."""
SLOW_REQUEST_S: Final = 0.0005
"""Seconds by which each further request of a burst may prolong it: a burst of hundreds of sends is
long, but not slow."""
WARNING_S: Final = 0.1
"""Seconds from which on the line is a warning: clients' heartbeats and HA acknowledgements are
late by as much."""
LAG_INTERVAL_S: Final = 1.0
"""Seconds between two looks at the lag."""
LOG_INTERVAL_S: Final = 10.0
"""Seconds between two lines of one kind; those in between are counted."""

BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends of a histogram's buckets, seconds; what is above the last one has its own."""


class Peer(Protocol):
    """A connection's other end."""

    remote_address: str


class Histogram:
    """Counts of times in buckets.

    Attributes:
      counts: by bucket, one more than BUCKETS_S has.
      count: of all times.
      max_s: the longest one, seconds.
    """

    __slots__ = ("count", "counts", "max_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.count = 0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        """Count a time."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.count += 1
        self.max_s = max(self.max_s, seconds)

    def percentile(self, percent: float) -> float:
        """The upper end, in seconds, of the bucket in which a percentile lies; at most max_s.

        Args:
          percent: 0 to 100.
        """
        wanted = self.count * percent / 100
        below = 0
        for count, end_s in zip(self.counts, BUCKETS_S, strict=False):
            below += count
            if below >= wanted:
                return min(end_s, self.max_s)
        return self.max_s


class _Line:
    """A line of the log that is written at most each LOG_INTERVAL_S."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._next_s = float("-inf")
        self._left_out = 0

    def write(self, seconds: float, text: str) -> None:
        now_s = self._now_s()
        if now_s < self._next_s:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        level = logging.WARNING if seconds >= WARNING_S else logging.INFO
        logger.log(level, "%s%s", text, more)
        self._next_s = now_s + LOG_INTERVAL_S
        self._left_out = 0


class LoopMonitor:
    """What takes long in one event loop. Owned by a `Turn`; used from its trio run only.

    Args:
      elapsed_s: seconds, by which the log's lines are spaced.

    Attributes:
      bursts: times of the slow bursts.
      lags: how late the loop was, sampled each LAG_INTERVAL_S.
    """

    def __init__(self, elapsed_s: Callable[[], float] = time.perf_counter) -> None:
        self.bursts = Histogram()
        self.lags = Histogram()
        self._last: tuple[int, Peer] | None = None
        self._burst_line = _Line(elapsed_s)
        self._lag_line = _Line(elapsed_s)
        self._is_running = False

    def served(self, requests: Sequence[RemotingCommand], peer: Peer, seconds: float) -> None:
        """Note a burst that took long enough to be looked at, or a request served elsewhere.

        Args:
          requests: of the burst; none where a frame is not complete yet.
          peer: whose they are.
          seconds: that it took.
        """
        if requests:
            self._last = requests[-1].code, peer
        if seconds < SLOW_BURST_S + len(requests) * SLOW_REQUEST_S:
            return
        self.bursts.add(seconds)
        codes = sorted({request.code for request in requests})
        self._burst_line.write(
            seconds,
            f"{peer.remote_address}: {len(requests)} request(s) of code "
            f"{', '.join(map(str, codes[:5])) or '-'} took {seconds * 1000:.0f} ms, in which "
            "nobody else was served",
        )

    async def run(self) -> None:
        """Measure the lag until cancelled; where it runs already, do nothing."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while True:
                due_s = trio.current_time() + LAG_INTERVAL_S
                await trio.sleep_until(due_s)
                self.lagged(trio.current_time() - due_s)
        finally:
            self._is_running = False

    def lagged(self, seconds: float) -> None:
        """Note how late the loop was.

        Args:
          seconds: between when a task should have run and when it did.
        """
        self.lags.add(seconds)
        if seconds < SLOW_BURST_S:
            return
        last = "no request yet"
        if self._last is not None:
            last = f"the last request that took its time: code {self._last[0]} of "
            last += self._last[1].remote_address
        self._lag_line.write(seconds, f"the event loop was {seconds * 1000:.0f} ms late; {last}")
