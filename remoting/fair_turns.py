"""FairTurns: one turn at a time, in which addresses take turns, not connections.

In one line, an honest client waits behind all that a stranger sent before it. Here each address has
its own line, and the lines are served in rotation. When too many wait, the newest of the longest
line leaves.

Pure, but for the waiting.

Java counterpart: none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class TooManyWaitError(Exception):
    """The turn will not come: too many of this address wait."""


class _Waiter:
    __slots__ = ("event", "was_dropped")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.was_dropped = False


class FairTurns:
    """Gives turns. Not thread-safe: used from one trio run.

    Args:
      waiting_max: how many wait at most.
    """

    def __init__(self, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._is_taken = False
        self._lines: dict[str, deque[_Waiter]] = {}  # the next address first
        self._count = 0

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._count

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it.

        Raises: TooManyWaitError: it was the newest of the longest line.
        """
        if self._is_taken:
            await self._wait(address)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, address: str) -> None:
        waiter = _Waiter()
        self._lines.setdefault(address, deque()).append(waiter)
        self._count += 1
        if self._count > self._waiting_max:
            self._drop()
        try:
            await waiter.event.wait()
        except trio.Cancelled:
            if not waiter.event.is_set():
                self._leave(address, waiter)
            elif not waiter.was_dropped:
                self._pass_on()  # its turn came as it was cancelled
            raise
        if waiter.was_dropped:
            raise TooManyWaitError

    def _drop(self) -> None:
        address = max(self._lines, key=lambda each: len(self._lines[each]))
        waiter = self._lines[address][-1]
        waiter.was_dropped = True
        self._leave(address, waiter)
        waiter.event.set()

    def _leave(self, address: str, waiter: _Waiter) -> None:
        line = self._lines[address]
        line.remove(waiter)
        self._count -= 1
        if not line:
            del self._lines[address]

    def _pass_on(self) -> None:
        """Give the turn to the first of the next address, whose line then is the last one."""
        self._is_taken = bool(self._lines)
        if self._lines:
            address = next(iter(self._lines))
            line = self._lines.pop(address)
            waiter = line.popleft()
            self._count -= 1
            # At the end of the row: an address with a long line has one turn in each round.
            if line:
                self._lines[address] = line
            waiter.event.set()
