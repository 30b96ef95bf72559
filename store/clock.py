"""Time as a seam: the store never asks the operating system itself.

`SystemClock` is the real one; `ManualClock` stands still until it is told otherwise, for tests and
for brokers embedded in tests.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump either way."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as the local time's 17 digits yyyyMMddHHmmssSSS (index files are named so)."""


class SystemClock:
    """The machine's clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as yyyyMMddHHmmssSSS in the machine's time zone."""
        return _digits(time.localtime(wall_ms // 1000), wall_ms)


class ManualClock:
    """A clock that moves only when told; one number drives wall and monotonic time.

    Args:
      start_ms: milliseconds since 1970 UTC at which it stands first.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = start_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return self.now_ms

    def monotonic_s(self) -> float:
        """Seconds since 1970 UTC."""
        return self.now_ms / 1000

    def local_time_name(self, wall_ms: int) -> str:
        """A moment as yyyyMMddHHmmssSSS in UTC."""
        return _digits(time.gmtime(wall_ms // 1000), wall_ms)

    def advance(self, milliseconds: int) -> None:
        """Let time pass (or, negative, jump back)."""
        self.now_ms += milliseconds


def _digits(moment: time.struct_time, wall_ms: int) -> str:
    return f"{time.strftime('%Y%m%d%H%M%S', moment)}{wall_ms % 1000:03d}"
