"""Pops from several places at the same time, of which the first one with messages counts.

For servers of gRPC: each waits for some seconds if it has no message, and cannot be asked whether
it has one, as `pop_watch` asks brokers.

Java counterpart: none; a SimpleConsumer of rocketmq-clients waits at one queue at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio

from ...remoting.pop_requests import Place
from ..errors import ClientError
from ..tasks.first_answer import NEXT_SERVER_S
from ..tasks.task_group import TaskGroup
from .popped_message import PoppedMessage
from .popper import TRANSIENT_ERRORS

PopAt: TypeAlias = Callable[[Place], Awaitable[list[PoppedMessage]]]
"""Pops once from a place; raises ClientError."""


class Raced:
    """What came of a race.

    Attributes:
      found: the messages of the first place that had any.
      late: those of other places that came at the same time.
      failures: of places that could not be reached.
    """

    def __init__(self) -> None:
        self.found: list[PoppedMessage] = []
        self.late: list[PoppedMessage] = []
        self.failures: list[ClientError] = []


async def pop_at_all(places: Sequence[Place], pop: PopAt) -> Raced:
    """Pop from all places until one has messages; the other pops are given up then.

    The next place is asked half a second after the one before, so that one with messages gives them
    alone.

    Raises: ClientError: a place refused, and no other one had messages before.
    """
    raced = Raced()
    refusals: list[ClientError] = []

    async def pop_at(rank: int, place: Place) -> None:
        await anyio.sleep(rank * NEXT_SERVER_S)
        messages: list[PoppedMessage] = []
        try:
            messages = await pop(place)
        except TRANSIENT_ERRORS as error:
            raced.failures.append(error)
        except ClientError as error:
            refusals.append(error)
        if raced.found:
            raced.late += messages
        else:
            raced.found = messages
        if messages or refusals:
            group.cancel_scope.cancel()

    async with TaskGroup() as group:
        for rank, place in enumerate(places):
            group.start_soon(pop_at, rank, place)
    if refusals and not raced.found:
        raise refusals[0]
    return raced
