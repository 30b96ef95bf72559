"""Waiting for servers and routes that are not there yet: how long, and with which pauses.

A service may start before its name server or its broker. Its first calls try again, with growing
pauses, until their time is over: the option `wait_for_broker_s`, or the time limit of the call.

Java counterpart: none; its clients fail at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import anyio

from ..errors import ClientError, copy_of

ErrorT = TypeVar("ErrorT", bound=ClientError)

FIRST_PAUSE_S: Final = 0.1
"""Pause before what was not there is looked for again."""

PAUSE_GROWTH: Final = 1.5
"""Each pause is longer by this than the one before. A set of brokers has another master within a
second: with pauses that double, clients saw it 0.8 s later than need be."""

PAUSE_MAX_S: Final = 1.0
"""Longest such pause: a server that has started is used within a second."""


class Window:
    """The time in which one call waits for what is not there.

    Args:
      now_s: returns the time of the event loop's clock, in seconds.
      wait_s: seconds, from now on or from `start_s` on; 0: the call does not wait.
      start_s: when the time begins; None: now.
      first_s: seconds that the first try has even if the call waits for a shorter time: a server
        that is there may be slow. It counts from when the time begins, too.

    Attributes:
      start_s: when the time began.
      end_s: when it is over.
      try_count: how often the call has tried; it is counted by `pause`.
    """

    __slots__ = ("_first_s", "_now_s", "_pause_s", "end_s", "start_s", "try_count")

    def __init__(
        self,
        now_s: Callable[[], float],
        wait_s: float,
        start_s: float | None = None,
        *,
        first_s: float = 0.0,
    ) -> None:
        self._now_s = now_s
        self._first_s = first_s
        self._pause_s = FIRST_PAUSE_S
        self.start_s: float = now_s() if start_s is None else start_s
        self.end_s: float = self.start_s + wait_s
        self.try_count: int = 0

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return self._now_s() - self.start_s

    @property
    def left_s(self) -> float:
        """Seconds until it is over; 0: it is."""
        return max(self.end_s - self._now_s(), 0.0)

    def try_s(self, limit_s: float) -> float:
        """The time limit of the next try, in seconds: what is left, but at most `limit_s`.

        A call has all of `limit_s` for a first try that begins late, or if it does not wait.
        """
        if self.end_s <= self.start_s or (not self.try_count and not self.left_s):
            return limit_s
        first_s = 0.0 if self.try_count else self._first_s - self.elapsed_s
        return min(limit_s, max(self.left_s, first_s))

    async def pause(self) -> bool:
        """Wait before the next try; False: the time is over, and the call fails."""
        self.try_count += 1
        left_s = self.left_s
        if not left_s:
            return False
        await anyio.sleep(min(self._pause_s, left_s))
        self._pause_s = min(self._pause_s * PAUSE_GROWTH, PAUSE_MAX_S)
        return self._now_s() < self.end_s

    def explained(self, error: ErrorT) -> ErrorT:
        """A copy of the error that ends the call, which says how often and how long it tried."""
        own = copy_of(error)
        if self.try_count > 1:
            tried = f" Tried {self.try_count} times in {self.elapsed_s:.3g} s."
            own.args = (f"{error}{'' if str(error).endswith(('.', '?')) else '.'}{tried}",)
        return own
