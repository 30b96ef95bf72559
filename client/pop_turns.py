"""The turns of a simple consumer's brokers: one that is silent delays the others a little, once.

Java counterpart: none; the 5.x clients ask a proxy for one queue of one broker in each call.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import anyio
import anyio.lowlevel

from .background_call import BackgroundCall
from .client import Client
from .core.pop import Place
from .errors import ClientError
from .first_answer import NEXT_SERVER_S
from .popped_message import PoppedMessage
from .popping import POLL_S_MAX, POP_TIMEOUT_S, TRANSIENT_ERRORS

logger = logging.getLogger(__name__)


class Sweep:
    """What one `receive` asks for.

    Attributes:
      count, invisible_s: see `SimpleConsumer.receive`.
      end_s: until when to wait for the first message, by the client's clock.
      failure: the last error, if no broker could be reached.
      is_announced: a heartbeat was sent because a broker did not know the group.
      is_watched: it has waited at several brokers or topics before.
    """

    __slots__ = ("count", "end_s", "failure", "invisible_s", "is_announced", "is_watched")

    def __init__(self, count: int, invisible_s: float, end_s: float) -> None:
        self.count = count
        self.invisible_s = invisible_s
        self.end_s = end_s
        self.failure: ClientError | None = None
        self.is_announced = False
        self.is_watched = False


Pop: TypeAlias = Callable[[Place, Sweep, float], Awaitable[list[PoppedMessage]]]
"""Pops from a place; the last argument is how long the broker may wait, in seconds."""

PopCall: TypeAlias = BackgroundCall[list[PoppedMessage]]


class PopTurns:
    """Pops from one place after the other, until one has messages.

    A broker that does not answer within NEXT_SERVER_S is passed over. Its pop goes on, and its
    messages are received by the next call, so that they do not wait for the end of their invisible
    time. Until it has answered, such a broker is asked in the background only.

    Args:
      client: an open client.
      pop: pops once.
      on_late: called when there are late messages.
    """

    def __init__(self, client: Client, pop: Pop, on_late: Callable[[], None]) -> None:
        self._client = client
        self._pop = pop
        self._on_late = on_late
        self._turn = 0
        self._under_way: dict[Place, PopCall] = {}
        # Places that did not answer in time, each with its last failure.
        self._silent: dict[Place, ClientError | None] = {}
        self._late: deque[PoppedMessage] = deque()
        self._ended: anyio.Event | None = None

    @property
    def has_late(self) -> bool:
        """Whether there are messages of late answers."""
        return bool(self._late)

    def close(self) -> None:
        """Give up the pops that are under way."""
        for call in self._under_way.values():
            call.cancel()

    def next_turn(self) -> None:
        """The next sweep begins with another place."""
        self._turn += 1

    async def sweep(self, places: Sequence[Place], sweep: Sweep) -> list[PoppedMessage]:
        """Pop once; sets `sweep.failure` if no broker could be reached.

        With a single place, its broker waits for messages.

        Raises: ClientError: a broker refused the pop.
        """
        late = self._take_late(sweep.count)
        if late:
            return late
        if len(places) == 1:
            return await self._pop_at_only(places[0], sweep)
        first = self._turn % len(places)
        failures: list[ClientError | None] = []
        for place in (*places[first:], *places[:first]):
            try:
                found = await self._pop_at(place, sweep)
            except TRANSIENT_ERRORS as error:
                await anyio.lowlevel.checkpoint_if_cancelled()
                logger.debug("a pop from %s failed: %s", place, error)
                failures.append(error)
                continue
            if found:
                return found
            if found is None:
                failures.append(self._silent.get(place))
        if len(failures) == len(places) and not any(failures):
            # No broker has answered or failed so far.
            await self._wait_for_end()
            late = self._take_late(sweep.count)
            failures = [self._silent.get(place) for place in places]
        is_lost = not late and len(failures) == len(places)
        sweep.failure = next(filter(None, reversed(failures)), None) if is_lost else None
        return late

    async def _pop_at_only(self, place: Place, sweep: Sweep) -> list[PoppedMessage]:
        left_s = max(sweep.end_s - self._client.now_s(), 0.0)
        try:
            found = await self._pop(place, sweep, min(left_s, POLL_S_MAX))
        except TRANSIENT_ERRORS as error:
            await anyio.lowlevel.checkpoint_if_cancelled()
            logger.debug("a pop from %s failed: %s", place, error)
            sweep.failure = error
            return []
        sweep.failure = None
        return found

    async def _pop_at(self, place: Place, sweep: Sweep) -> list[PoppedMessage] | None:
        """Pop from one of several places; None: it has not answered so far."""
        if place in self._under_way:
            return None
        call: PopCall = BackgroundCall(
            self._client, partial(self._pop, place, sweep, 0.0), partial(self._on_ended, place)
        )
        if await call.wait(0.0 if place in self._silent else NEXT_SERVER_S):
            found = call.result()
            self._silent.pop(place, None)
            return found
        self._silent.setdefault(place, None)
        self._under_way[place] = call
        return None

    def _on_ended(self, place: Place, call: PopCall) -> None:
        """A pop ended for which no `receive` waits."""
        self._under_way.pop(place, None)
        if isinstance(call.error, TRANSIENT_ERRORS):
            logger.debug("a pop from %s failed: %s", place, call.error)
            self._silent[place] = call.error
        else:
            # A refusal is raised by the next pop.
            self._silent.pop(place, None)
            if call.error is None:
                self._late += call.result()
        if self._ended is not None:
            self._ended.set()
        if self._late:
            self._on_late()

    async def _wait_for_end(self) -> None:
        if self._ended is None or self._ended.is_set():
            self._ended = anyio.Event()
        with anyio.move_on_after(POP_TIMEOUT_S):
            if self._under_way:
                await self._ended.wait()

    def _take_late(self, count: int) -> list[PoppedMessage]:
        """Messages of late answers that are still invisible to others."""
        taken: list[PoppedMessage] = []
        while self._late and len(taken) < count:
            message = self._late.popleft()
            if self._client.now_s() < message.deadline_s:
                taken.append(message)
        return taken
