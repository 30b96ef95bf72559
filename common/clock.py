"""Clocks: the store's only source of time, so that tests can replace it.

Two times have the same unit and must not be mixed: `WallTimeMs`, the time of day, by which users
reckon delays, and `StoreTimeMs`, the store timestamps of the log, which never fall. They differ
after the wall clock was set back.

`SystemClock` is the machine's; `ManualClock` moves only when `advance` or `jump` is called, for
tests and for brokers embedded in tests.
"""

from __future__ import annotations

import time
from typing import Final, NewType, Protocol

WallTimeMs = NewType("WallTimeMs", int)
"""The time of day, ms since 1970 UTC; it may jump either way. What is due at a time of day, or
after a delay from now, is reckoned from it."""

StoreTimeMs = NewType("StoreTimeMs", int)
"""The store timestamp of records, ms since 1970 UTC. It never falls, so that messages can be
searched by time: after the wall clock was set back, it stands still until that has caught up. It is
no time of day: what is reckoned from it is wrong by as much as the clock was set back."""

_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's CLOCK_MONOTONIC, which `time.monotonic` reads, stands still while the machine sleeps.
macOS's does not (Python reads another one there)."""


LATEST_MS: Final = 253_370_764_799_999
"""The end of the year 9998, ms since 1970. No clock is right beyond it, `datetime` can show it in
every time zone, and with a delay added it still fits the 8 bytes that records have for it."""


class Clock(Protocol):
    """A source of time."""

    def wall_ms(self) -> WallTimeMs:
        """Milliseconds since 1970 UTC; may jump either way."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def elapsed_s(self) -> float:
        """As `monotonic_s`, but the machine's sleep counts where the system measures it."""

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as the local time's 17 digits yyyyMMddHHmmssSSS (index files are named so).

        Moments before 1970 count as its beginning, those after `LATEST_MS` as that.
        """


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> WallTimeMs:
        """Milliseconds since 1970 UTC."""
        return WallTimeMs(time.time_ns() // 1_000_000)

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    def elapsed_s(self) -> float:
        """Seconds since some fixed moment, the machine's sleep included."""
        return time.clock_gettime(_ELAPSED)

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as yyyyMMddHHmmssSSS in the machine's time zone."""
        wall_ms = _sane(wall_ms)
        return _digits(time.localtime(wall_ms // 1000), wall_ms)


class ManualClock:
    """A clock that is set by hand; one number drives wall and monotonic time.

    Args:
      start_ms: its first time, milliseconds since 1970 UTC.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = start_ms
        self.jumped_ms = 0

    def wall_ms(self) -> WallTimeMs:
        """Milliseconds since 1970 UTC."""
        return WallTimeMs(self.now_ms)

    def monotonic_s(self) -> float:
        """Seconds since 1970 UTC; `jump` leaves it where it is."""
        return (self.now_ms - self.jumped_ms) / 1000

    def elapsed_s(self) -> float:
        """As `monotonic_s`."""
        return self.monotonic_s()

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as yyyyMMddHHmmssSSS in UTC."""
        wall_ms = _sane(wall_ms)
        return _digits(time.gmtime(wall_ms // 1000), wall_ms)

    def advance(self, milliseconds: int) -> None:
        """Let time pass (or, negative, jump back)."""
        self.now_ms += milliseconds

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward (or, negative, back) without time passing."""
        self.now_ms += milliseconds
        self.jumped_ms += milliseconds


def _sane(wall_ms: int) -> int:
    return min(max(wall_ms, 0), LATEST_MS)


def _digits(moment: time.struct_time, wall_ms: int) -> str:
    return f"{time.strftime('%Y%m%d%H%M%S', moment)}{wall_ms % 1000:03d}"
