"""Clocks of embedded brokers: real time or the time of a loop, which can be advanced and frozen.

`advance` has the effect of suspending a machine for a while: the wall clock and the time since boot
are later, and the monotonic clock has not moved. Delays, retries, timers, checks of transactions
and the age of messages use the wall clock; the expiry of clients, held pulls and time-outs use the
monotonic clock. So two hours can pass for messages without any client expiring.
"""

from __future__ import annotations

from collections.abc import Callable

from ..common.clock import Clock, SystemClock, WallTimeMs

_system = SystemClock()


class TravelClock:
    """A clock whose wall time can be advanced and frozen; see `common.clock.Clock`.

    Args:
      base: clock to which the advanced time is added; None: the system's.
    """

    def __init__(self, base: Clock | None = None) -> None:
        self._base: Clock = base if base is not None else _system
        self._added_ms = 0
        self._added_s = 0.0
        # The times at which it stands still; None: it runs.
        self._frozen: tuple[WallTimeMs, float] | None = None

    @property
    def added_ms(self) -> int:
        """The time by which it is ahead of its base, in milliseconds; less than 0 if it was frozen
        for longer than it was advanced."""
        return self.wall_ms() - self._base.wall_ms()

    @property
    def is_frozen(self) -> bool:
        """Whether the wall clock stands still."""
        return self._frozen is not None

    def add(self, milliseconds: int) -> None:
        """Advance the wall clock by a number >= 0, also while it is frozen."""
        if self._frozen is not None:
            wall_ms, elapsed_s = self._frozen
            self._frozen = WallTimeMs(wall_ms + milliseconds), elapsed_s + milliseconds / 1000
        self._added_ms += milliseconds
        self._added_s += milliseconds / 1000

    def freeze(self) -> None:
        """Have wall time and elapsed time stand still; the monotonic clock, by which connections
        are served, goes on."""
        if self._frozen is None:
            self._frozen = self.wall_ms(), self.elapsed_s()

    def unfreeze(self) -> None:
        """Have them go on from where they stand."""
        if self._frozen is None:
            return
        wall_ms, elapsed_s = self._frozen
        self._added_ms = wall_ms - self._base.wall_ms()
        self._added_s = elapsed_s - self._base.elapsed_s()
        self._frozen = None

    def wall_ms(self) -> WallTimeMs:
        """Milliseconds since 1970 UTC, including the advanced time."""
        if self._frozen is not None:
            return self._frozen[0]
        return WallTimeMs(self._base.wall_ms() + self._added_ms)

    def clients_ms(self) -> WallTimeMs:
        """The time of day of clients, to which no time was added: ms since 1970 UTC."""
        base = self._base
        return base.clients_ms() if isinstance(base, LoopClock) else base.wall_ms()

    def monotonic_s(self) -> float:
        """Seconds of the base's monotonic clock, without the advanced time."""
        return self._base.monotonic_s()

    def elapsed_s(self) -> float:
        """Seconds since boot, including the advanced time, as after suspending the machine."""
        if self._frozen is not None:
            return self._frozen[1]
        return self._base.elapsed_s() + self._added_s

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as yyyyMMddHHmmssSSS in the base's time zone."""
        return self._base.local_time_name(wall_ms)


class LoopClock:
    """A clock that follows the clock of an event loop, which may be virtual.

    Args:
      now_s: returns the time of the loop's clock, in seconds.
      start_ms: wall time at the creation, in milliseconds since 1970; None: the system's.
    """

    def __init__(self, now_s: Callable[[], float], start_ms: int | None = None) -> None:
        self._now_s = now_s
        self._start_s = now_s()
        self._start_ms = _system.wall_ms() if start_ms is None else start_ms

    def wall_ms(self) -> WallTimeMs:
        """Milliseconds since 1970 UTC."""
        return WallTimeMs(self._start_ms + int((self._now_s() - self._start_s) * 1000))

    def clients_ms(self) -> WallTimeMs:
        """The time of day of clients, ms since 1970 UTC.

        They use the system's clock or this one. It is the earlier of both, so that no request seems
        older than it is.
        """
        return min(self.wall_ms(), _system.wall_ms())

    def monotonic_s(self) -> float:
        """The loop's seconds."""
        return self._now_s()

    def elapsed_s(self) -> float:
        """The loop's seconds."""
        return self._now_s()

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as yyyyMMddHHmmssSSS in the machine's time zone."""
        return _system.local_time_name(wall_ms)
