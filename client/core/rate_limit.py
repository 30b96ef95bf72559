"""A rate limit: at most a number of messages per second, evenly over time.

Java counterpart: none; RocketMQ's client limits what it pulls, not how fast it delivers. Pure.
"""

from __future__ import annotations

from typing import Final

BURST_S: Final = 0.1
"""Time whose messages may be delivered at once after a pause, because timers are not exact."""


class RateLimit:
    """Counts the messages of one consumer.

    Args:
      per_s: messages per second, above 0.
      now_s: the current time.
    """

    def __init__(self, per_s: float, now_s: float) -> None:
        self._interval_s = 1.0 / per_s
        self._next_s = now_s

    def take(self, now_s: float) -> bool:
        """Count a message; False: it has to wait, for `wait_s`."""
        if self._next_s > now_s:
            return False
        self._next_s = max(self._next_s, now_s - BURST_S) + self._interval_s
        return True

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next message may be delivered; 0: now."""
        return max(self._next_s - now_s, 0.0)
