"""Request times: how many requests of each code were served, with which result, and how long the
event loop took. For metrics; a turn without them counts nothing.

All requests that arrive together on a connection are served and answered together, so each has the
time of its burst. The wait of a request that is answered later, for the disk or for messages, is
not part of it. Pulls that the C extension takes undecoded are not counted.

Java counterpart: remoting/metrics/RemotingMetricsManager.java of 5.5.0, which adds each request's
wait in a thread pool's queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..common.histogram import Histogram
from .codec import RemotingCommand
from .request_codes import RequestCode
from .response_codes import ResponseCode

LATENCY_BOUNDS_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0)
"""Upper ends of the buckets, milliseconds. Source: RemotingMetricsManager.getMetricsView."""

RUN_CODE: Final = int(RequestCode.SEND_MESSAGE_V2)
"""The code that the sends of a run count as: it is not known which of them had SEND_MESSAGE."""

PAIRS_MAX: Final = 1_000
"""Pairs of a request code and a response code with a histogram each. A peer chooses the request
code, and RocketMQ has some 160 of them; further ones count as code OTHER_CODE."""

OTHER_CODE: Final = -1

_SUCCESS: Final = int(ResponseCode.SUCCESS)


class RequestTimes:
    """Counts requests. Used from the event loop only."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[int, int], Histogram] = {}
        self._refused: list[tuple[int, int]] = []

    @property
    def histograms(self) -> Mapping[tuple[int, int], Histogram]:
        """Times in milliseconds by request code and response code."""
        return self._histograms

    def refuse(self, code: int, response_code: int) -> None:
        """Record that a request of the present burst was refused."""
        self._refused.append((code, response_code))

    def note(self, events: Sequence[object], run_counts: Mapping[int, int], seconds: float) -> None:
        """Count a burst.

        Args:
          events: requests, and other events, which are skipped.
          run_counts: further requests, which were served as runs, by code.
          seconds: the time that the whole burst took.
        """
        elapsed_ms = seconds * 1000
        if run_counts and not events:  # most bursts of a producer
            for code, count in run_counts.items():
                self._histogram((code, _SUCCESS)).add(elapsed_ms, count)
            return
        counts = dict(run_counts)
        for event in events:
            if type(event) is RemotingCommand:
                counts[event.code] = counts.get(event.code, 0) + 1
        if self._refused:
            refused, self._refused = self._refused, []
            for code, response_code in refused:
                counts[code] = counts.get(code, 0) - 1
                self._histogram((code, response_code)).add(elapsed_ms)
        for code, count in counts.items():
            if count > 0:
                self._histogram((code, _SUCCESS)).add(elapsed_ms, count)

    def _histogram(self, pair: tuple[int, int]) -> Histogram:
        histogram = self._histograms.get(pair)
        if histogram is None:
            if len(self._histograms) >= PAIRS_MAX:
                pair = OTHER_CODE, pair[1]
            histogram = self._histograms.setdefault(pair, Histogram(LATENCY_BOUNDS_MS))
        return histogram
