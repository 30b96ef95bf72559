"""Event loop monitor: slow requests and the loop's lag, for the log and for metrics.

A server does all its work in one loop, so a slow request delays all clients. Each connection's
burst is timed (two readings of the clock for a burst, none for a request). Other work, such as an
answer computed in a separate task, shows as lag: the delay with which a sleeping task wakes.

Java counterpart: none; the nearest are NettyRemotingAbstract's invoke times and the thread pools'
queue times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ..common.histogram import Histogram

if TYPE_CHECKING:
    from .codec import RemotingCommand

logger = logging.getLogger(__name__)

SLOW_BURST_S: Final = 0.02
"""Seconds that one connection's burst may take before it is logged: 50 of them a second would leave
no time for other clients."""
SLOW_REQUEST_S: Final = 0.0005
"""Seconds that each further request adds to that limit: a burst of hundreds of sends is long, but
not slow."""
WARNING_S: Final = 0.1
"""Seconds from which on the line is a warning: clients' heartbeats and HA acknowledgements are
delayed by as much."""
LAG_INTERVAL_S: Final = 1.0
"""Seconds between two measurements of the lag."""
LOG_INTERVAL_S: Final = 10.0
"""Seconds between two lines of one kind; those in between are counted."""

NO_RUNS: Final[Mapping[int, int]] = {}
"""The code that stands for the requests of a run."""


class Peer(Protocol):
    """The part of a connection that is logged."""

    remote_address: str


class _Line:
    """A log line that is written at most once in LOG_INTERVAL_S."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._next_s = float("-inf")
        self._left_out = 0

    def write(self, seconds: float, text: str) -> None:
        now_s = self._now_s()
        if now_s < self._next_s:
            # Slow bursts come in rows: one line for each interval.
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        level = logging.WARNING if seconds >= WARNING_S else logging.INFO
        logger.log(level, "%(text)s%(more)s", {"text": text, "more": more})
        self._next_s = now_s + LOG_INTERVAL_S
        self._left_out = 0


class LoopMonitor:
    """Slow requests and lag of one event loop. Owned by a `Turn`; used from its trio run only.

    Args:
      elapsed_s: a clock that limits the rate of log lines.

    Attributes:
      bursts: times of the slow bursts.
      lags: the loop's lag, sampled every LAG_INTERVAL_S.
    """

    def __init__(self, elapsed_s: Callable[[], float] = time.perf_counter) -> None:
        self.bursts = Histogram()
        self.lags = Histogram()
        self._last: tuple[int, Peer] | None = None
        self._burst_line = _Line(elapsed_s)
        self._lag_line = _Line(elapsed_s)
        self._is_running = False

    def served(
        self,
        requests: Sequence[RemotingCommand],
        peer: Peer,
        seconds: float,
        run_counts: Mapping[int, int] = NO_RUNS,
    ) -> None:
        """Record a burst that may have been slow, or a request served in a separate task.

        Args:
          requests: of the burst; empty if no frame was complete.
          seconds: the burst's time.
          run_counts: further requests of the burst, which were served as runs, by code.
        """
        if requests:
            self._last = requests[-1].code, peer
        count = len(requests) + sum(run_counts.values())
        # A large burst may take longer: only time beyond what its requests usually take is slow.
        if seconds < SLOW_BURST_S + count * SLOW_REQUEST_S:
            return
        self.bursts.add(seconds)
        codes = sorted({request.code for request in requests} | run_counts.keys())
        self._burst_line.write(
            seconds,
            f"{peer.remote_address}: {count} request(s) of code "
            f"{', '.join(map(str, codes[:5])) or '-'} took {seconds * 1000:.0f} ms, in which no "
            "other client was served",
        )

    async def run(self) -> None:
        """Measure the lag until cancelled; do nothing if it is running already."""
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
        """Record the loop's lag.

        Args:
          seconds: the delay with which a task ran.
        """
        self.lags.add(seconds)
        if seconds < SLOW_BURST_S:
            return
        # A hint only: what held the loop may be no request at all.
        last = "no request yet"
        if self._last is not None:
            last = f"the last slow or deferred request: code {self._last[0]} of "
            last += self._last[1].remote_address
        self._lag_line.write(seconds, f"the event loop was {seconds * 1000:.0f} ms late; {last}")
