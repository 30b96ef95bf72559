"""The system's clocks. No other module of the client reads them.

Code that needs the wall clock calls `Client.wall_ms`, which programs and tests can replace
(`ClientOptions.wall_ms`). Waiting uses the clock of the event loop.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable


def wall_ms() -> int:
    """Milliseconds since 1970: the unit of message timestamps."""
    return time.time_ns() // 1_000_000


def wall_ns() -> int:
    """Nanoseconds since 1970: fine enough to tell the clients of one process apart."""
    return time.time_ns()


def monotonic_ms() -> float:
    """Milliseconds of the monotonic clock, for durations."""
    return time.monotonic() * 1000


def loop_clock() -> Callable[[], float]:
    """The clock function of the running loop, in seconds: a fifth of `anyio.current_time`'s cost.

    A client looks it up once, because a pipelined send reads the clock four times.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        current_time: Callable[[], float] = trio.current_time
        return current_time
    return asyncio.get_running_loop().time
