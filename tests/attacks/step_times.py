"""The CPU time of the steps of an event loop.

It imports nothing of trocket, so that tests which use it can be run on older versions, too.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import trio
import trio.abc

T = TypeVar("T")


class StepTimes(trio.abc.Instrument):
    """The CPU time of the longest step between two checkpoints, of any task but `ignored`."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self.longest_s = 0.0
        self.ignored: set[trio.lowlevel.Task] = set()
        self._cpu_s = cpu_s
        self._began_s = float("inf")

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_s = self._cpu_s()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task not in self.ignored:
            self.longest_s = max(self.longest_s, self._cpu_s() - self._began_s)


@contextmanager
def settled_collector() -> Iterator[None]:
    """As in a server's process, the collector does not look at what was there at the start."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def longest_step_s(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds of the longest step, of any other task, while `work` is done."""
    times = StepTimes()
    times.ignored.add(trio.lowlevel.current_task())
    with settled_collector():
        trio.lowlevel.add_instrument(times)
        try:
            await work()
        finally:
            trio.lowlevel.remove_instrument(times)
    return times.longest_s
