"""The clock of a broker under test, which the console shows and moves."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import anyio


class Clock(Protocol):
    """A broker's clock that can be moved on."""

    async def now_ms(self) -> int:
        """The time of day, ms since 1970. Raises: ClientError: it is not known."""
        ...

    async def advance(self, seconds: float) -> None:
        """Move it on; what is due then has been delivered. Raises: ClientError: it did not move."""
        ...


class EmbeddedBroker(Protocol):
    """What the console uses of `trocket.testing.Broker`."""

    @property
    def url(self) -> str: ...

    @property
    def now_ms(self) -> int: ...

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move its clock on, and deliver what is due."""


class EmbeddedClock:
    """The clock of a broker in this process."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    async def now_ms(self) -> int:
        return self._broker.now_ms

    async def advance(self, seconds: float) -> None:
        """Move it on in a thread, as it waits until what is due has been delivered."""
        await anyio.to_thread.run_sync(partial(self._broker.advance, seconds=seconds))
