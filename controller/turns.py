"""Turns: changes of one name come one after the other, those of others beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio


@dataclass
class _Turn:
    """The turn of those who change one thing."""

    lock: trio.Lock = field(default_factory=trio.Lock)
    users: int = 0


class Turns:
    """The turns of things with names; a name is in it only while it has users.

    Args:
      wait_s: how long a user waits for the others, seconds.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._turns: dict[str, _Turn] = {}

    @property
    def names(self) -> frozenset[str]:
        """Those that have users now."""
        return frozenset(self._turns)

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Have the turn of a name. Raises: trio.TooSlowError: the others took too long."""
        turn = self._turns.setdefault(name, _Turn())
        turn.users += 1
        try:
            with trio.fail_after(self._wait_s):
                await turn.lock.acquire()
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[name]
