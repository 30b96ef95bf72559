"""The wall clock of an embedded broker: it follows real time, or a loop's, and can be set on.

What `advance` does is what a machine goes through that sleeps for a while: the wall clock and
the time since the boot are later, and the monotonic clock has stood still. Delays, retries,
timers, checks of transactions and the age of messages go by the first; whether a client is still
there, how long a pull is held and when a request is given up go by the last. So two hours may pass
for messages while nobody is thought to be gone.
"""

from __future__ import annotations

from collections.abc import Callable

from ..store.clock import Clock, SystemClock

_system = SystemClock()


class TravelClock:
    """A clock whose wall time can be set on; see `store.clock.Clock` for the contract.

    Args:
      base: whose time it is before anything is added.
    """

    def __init__(self, base: Clock | None = None) -> None:
        self._base: Clock = base if base is not None else _system
        self._added_ms = 0

    @property
    def added_ms(self) -> int:
        """By how much it is ahead of its base, ms."""
        return self._added_ms

    def add(self, milliseconds: int) -> None:
        """Set the wall clock on, by a number >= 0."""
        self._added_ms += milliseconds

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC, the added ones included."""
        return self._base.wall_ms() + self._added_ms

    def monotonic_s(self) -> float:
        """The base's seconds: nothing is added."""
        return self._base.monotonic_s()

    def elapsed_s(self) -> float:
        """The base's seconds and what was added, as after a sleep of the machine."""
        return self._base.elapsed_s() + self._added_ms / 1000

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as yyyyMMddHHmmssSSS in the base's time zone."""
        return self._base.local_time_name(wall_ms)


class LoopClock:
    """All time is an event loop's: a virtual one when the loop's is.

    Args:
      now_s: the loop's seconds.
      start_ms: wall time at the moment of the making, ms since 1970; None: the machine's.
    """

    def __init__(self, now_s: Callable[[], float], start_ms: int | None = None) -> None:
        self._now_s = now_s
        self._start_s = now_s()
        self._start_ms = _system.wall_ms() if start_ms is None else start_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return self._start_ms + int((self._now_s() - self._start_s) * 1000)

    def monotonic_s(self) -> float:
        """The loop's seconds."""
        return self._now_s()

    def elapsed_s(self) -> float:
        """The loop's seconds."""
        return self._now_s()

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as yyyyMMddHHmmssSSS in the machine's time zone."""
        return _system.local_time_name(wall_ms)
