"""Pops at several brokers in turn: one that hangs delays the others by half a second, once.

The pop of a broker that has not answered by then goes on. Its messages, which no other consumer
gets meanwhile, are kept for the next call.

Java counterpart: none; the proxy pops from one broker at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import anyio.lowlevel

from .client import Client
from .core.pop import Place
from .errors import ClientError
from .first_answer import NEXT_SERVER_S
from .popped_message import PoppedMessage

logger = logging.getLogger(__name__)

Pop: TypeAlias = Callable[[], Awaitable[list[PoppedMessage]]]
"""Pops once from one place; raises ClientError."""


class LatePops:
    """The pops of one consumer, at most one for each place, and the messages that they brought.

    Args:
      client: an open client, whose background tasks pop.
      on_arrival: called when messages have arrived for which no call waits.
    """

    def __init__(self, client: Client, on_arrival: Callable[[], None]) -> None:
        self._client = client
        self._on_arrival = on_arrival
        self._under_way: set[Place] = set()
        self._messages: list[PoppedMessage] = []

    @property
    def has_messages(self) -> bool:
        """Whether messages have come since the last `take`, or are left of it."""
        return bool(self._messages)

    def take(self, count: int) -> list[PoppedMessage]:
        """At most `count` of the messages; those whose invisible time is over are left out."""
        now_s = self._client.now_s()
        valid = [each for each in self._messages if now_s < each.deadline_s]
        self._messages = valid[count:]
        return valid[:count]

    async def pop(self, place: Place, pop: Pop) -> bool:
        """Pop from a place; False: its broker has not answered within half a second, or earlier.

        Raises: ClientError: the pop failed.
        """
        if place in self._under_way:
            await anyio.lowlevel.checkpoint()
            return False
        answer = _Answer()
        self._under_way.add(place)
        self._client.start_soon(self._run, place, pop, answer)
        try:
            with anyio.move_on_after(NEXT_SERVER_S):
                await answer.event.wait()
        finally:
            answer.is_awaited = False
        if answer.error is not None:
            raise answer.error
        return answer.event.is_set()

    async def _run(self, place: Place, pop: Pop, answer: _Answer) -> None:
        try:
            found = await pop()
            self._messages += found
            if found and not answer.is_awaited:
                self._on_arrival()
        except ClientError as error:
            await anyio.lowlevel.checkpoint_if_cancelled()
            answer.error = error
            if not answer.is_awaited:
                logger.debug("a late pop from %s failed: %s", place, error)
        finally:
            self._under_way.discard(place)
            answer.event.set()


class _Answer:
    """What became of a pop, and whether its call still waits for that."""

    __slots__ = ("error", "event", "is_awaited")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.is_awaited = True
        self.error: ClientError | None = None
