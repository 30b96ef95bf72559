"""The system's clocks: the one place of the client that reads them.

Whoever needs the wall clock asks `Client.wall_ms`, which a program or a test may replace
(`ClientOptions.wall_ms`); waiting goes by anyio's own clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable


def wall_ms() -> int:
    """Milliseconds since 1970, as messages and offsets by time count them."""
    return time.time_ns() // 1_000_000


def wall_ns() -> int:
    """Nanoseconds since 1970: no two clients of a process see the same, so names are made of it."""
    return time.time_ns()


def monotonic_ms() -> float:
    """Milliseconds since some moment, never backwards: how long something took, or ago it was."""
    return time.monotonic() * 1000


def loop_clock() -> Callable[[], float]:
    """The running loop's clock, seconds: what `anyio.current_time` says at a fifth of its cost.

    Looked up once for a client, because a pipelined send looks at the clock four times.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        current_time: Callable[[], float] = trio.current_time
        return current_time
    return asyncio.get_running_loop().time
