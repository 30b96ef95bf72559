"""The clock of every simulated machine: trio's virtual time, and an error of the wall clock."""

from __future__ import annotations

from typing import Final

import trio.abc
from trio.testing import MockClock

from trocket.common.clock import ManualClock, WallTimeMs

START_MS: Final = 1_700_000_000_000


class WorldClock:
    """One machine's clock.

    Args:
      time: of its world, for trio; machines of one world share it. None: it is alone in its world.
      start_ms: when that began, ms since 1970.

    Attributes:
      forward_ms: by how much the wall clock was set forward, all jumps together.
    """

    def __init__(self, time: trio.abc.Clock | None = None, start_ms: int = START_MS) -> None:
        self.time = time or MockClock()
        self.forward_ms = 0
        self._wrong_ms = 0
        self._start_ms = start_ms

    @property
    def wrong_ms(self) -> int:
        """By how much the wall clock is ahead."""
        return self._wrong_ms

    @wrong_ms.setter
    def wrong_ms(self, wrong_ms: int) -> None:
        self.forward_ms += max(wrong_ms - self._wrong_ms, 0)
        self._wrong_ms = wrong_ms

    @property
    def now_ms(self) -> int:
        """What time it really is, ms since 1970."""
        return self._start_ms + int(self.time.current_time() * 1000)

    def advance(self, milliseconds: int) -> None:
        """Let time pass at once, in all of the world."""
        assert isinstance(self.time, MockClock)
        # A nanosecond more, so that rounding leaves no timer just short of its time.
        self.time.jump(milliseconds / 1000 + 1e-9)

    # ---- trocket.common.clock.Clock -------------------------------------------------------

    def wall_ms(self) -> WallTimeMs:
        return WallTimeMs(self.now_ms + self.wrong_ms)

    def monotonic_s(self) -> float:
        return self.time.current_time()

    def elapsed_s(self) -> float:
        return self.time.current_time()

    def local_time_name(self, wall_ms: int) -> str:
        return ManualClock().local_time_name(wall_ms)
