"""Full collections of garbage, which a server has seldom, because it stands still meanwhile.

Python's collector visits all objects of a process when a quarter of them is new: 60 ms with 10,000
consumer groups, some 0.6 us for each object. Nearly all objects of a server are freed without it,
by their counts of references; it is needed for cycles that lived long, such as those of an error's
traceback. So the collections of young objects stay as they are, and those of all objects come by
the rules of `Collector`.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

LOOK_INTERVAL_S: Final = 10.0
"""Seconds between two decisions."""

REST_MIN_S: Final = 60.0
"""Least seconds between two full collections, but for GROWTH_MAX."""

REST_RATIO: Final = 1_000
"""A process rests this many times the length of a full collection before the next one, so that it
stands still for a thousandth of its time at most: 0.5 s in eight minutes, 5 ms in a minute."""

GROWTH_MAX: Final = 128 * 1024 * 1024
"""Bytes by which a process may grow without a full collection: garbage that comes so fast must not
wait. 10,000 connections take 120 MB."""

MOVES_MIN: Final = 10
"""Collections of younger objects that must have left some among the old ones. Python's own
threshold; an idle server stays below it."""

AUTOMATIC_NEVER: Final = 1 << 30
"""The same threshold, of the collections that Python begins itself, so high that none does.
Python 3.14 collects in small parts, and does not read it."""


def own_memory() -> int:
    """Bytes of resident memory that are not of files; 0 where the system does not say it."""
    try:
        fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def moves() -> int:
    """Collections of younger objects since the last full one."""
    return gc.get_count()[2]


class Collector:
    """Decides when a full collection comes.

    Args:
      collect: does a full collection.
      moves: see the function.
      memory: see `own_memory`.
      elapsed_s: a monotonic clock, seconds.
    """

    def __init__(
        self,
        *,
        collect: Callable[[], object] = gc.collect,
        moves: Callable[[], int] = moves,
        memory: Callable[[], int] = own_memory,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._collect, self._moves = collect, moves
        self._memory, self._elapsed_s = memory, elapsed_s
        self._ended_s = elapsed_s()
        self._took_s = 0.0
        self._size = memory()

    def look(self) -> None:
        """Collect all garbage, if that is due."""
        if self._moves() < MOVES_MIN:
            return
        begin_s = self._elapsed_s()
        rest_s = max(REST_MIN_S, REST_RATIO * self._took_s)
        if begin_s - self._ended_s < rest_s and self._memory() - self._size < GROWTH_MAX:
            return
        self._collect()
        self._ended_s = self._elapsed_s()
        self._took_s = self._ended_s - begin_s
        self._size = self._memory()

    async def run(self) -> None:
        """Look at intervals until cancelled, in place of Python's own full collections."""
        young, middle, old = gc.get_threshold()
        gc.set_threshold(young, middle, AUTOMATIC_NEVER)
        try:
            while True:
                await trio.sleep(LOOK_INTERVAL_S)
                if gc.isenabled():  # it is not while a server starts
                    self.look()
        finally:
            gc.set_threshold(young, middle, old)
