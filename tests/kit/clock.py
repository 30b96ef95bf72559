"""Clocks that follow trio's virtual time."""

from __future__ import annotations

from typing import Final

import trio

from trocket.common.clock import WallTimeMs

START_MS: Final = 1_700_000_000_000
"""The wall time at which trio's virtual clock begins."""


class TrioClock:
    """Wall and monotonic time that follow trio's virtual clock."""

    def wall_ms(self) -> WallTimeMs:
        return WallTimeMs(START_MS + int(trio.current_time() * 1000))

    def monotonic_s(self) -> float:
        return trio.current_time()

    def elapsed_s(self) -> float:
        return trio.current_time()

    def local_time_name(self, wall_ms: int) -> str:
        return str(wall_ms).rjust(17, "0")


class WrongClock(TrioClock):
    """A wall clock that can be wrong."""

    wrong_ms = 0

    def wall_ms(self) -> WallTimeMs:
        return WallTimeMs(super().wall_ms() + self.wrong_ms)
