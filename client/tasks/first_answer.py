"""Asking several servers for what each of them knows: the first answer counts.

Java counterpart: none; MQClientInstance.findBrokerAddrByTopic asks one broker, chosen at random.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final, Generic, TypeVar

import anyio

from ..errors import ClientError, ServerError
from .task_group import TaskGroup

NEXT_SERVER_S: Final = 0.5
"""Seconds until the next server is asked, too. A server that works answers within milliseconds, and
a consumer that has to ask four that hang still gets its queues within 2 s."""

T = TypeVar("T")


class FirstAnswer(Generic[T]):
    """Asks servers in turn, and takes the first answer; a server that hangs delays it a little.

    The first server is asked at once, each further one when all before it have failed, or after
    `NEXT_SERVER_S`. A server that did not answer is asked last from then on, until it answers. A
    refusal is an answer, too, but another server may know more: when all have been asked, the
    silent ones get `NEXT_SERVER_S` more.
    """

    def __init__(self) -> None:
        self._silent: set[str] = set()

    async def ask(self, servers: Mapping[str, Callable[[], Awaitable[T]]]) -> T:
        """The first answer.

        Args:
          servers: by name, a function that asks this server; at least one.

        Raises: ClientError: none answered; a refusal, or the error of the first one that was asked.
        """
        answers, failures = await self.ask_all(servers)
        if answers:
            return answers[0]
        refusals = [error for error in failures.values() if isinstance(error, ServerError)]
        raise [*refusals, *failures.values()][0]

    async def ask_all(
        self, servers: Mapping[str, Callable[[], Awaitable[T]]]
    ) -> tuple[list[T], dict[str, ClientError]]:
        """The first answer, or an empty list and each server's error, in the order of asking."""
        names = sorted(servers, key=lambda name: name in self._silent)
        round_ = _Round[T]()

        async def ask(name: str) -> None:
            try:
                round_.answers.append(await servers[name]())
                self._silent.discard(name)
            except ClientError as error:
                round_.failures[name] = error
                if isinstance(error, ServerError):
                    self._silent.discard(name)
                else:
                    self._silent.add(name)
            round_.changed.set()

        async with TaskGroup() as group:
            for count, name in enumerate(names, 1):
                group.start_soon(ask, name)
                if not await round_.is_over(count, NEXT_SERVER_S if count < len(names) else inf):
                    # Silent so far: if it answers after all, `ask` takes it back.
                    self._silent.add(name)
                if round_.answers:
                    break
            group.cancel_scope.cancel()
        failures = round_.failures
        return round_.answers, {name: failures[name] for name in names if name in failures}


class _Round(Generic[T]):
    """What the servers that were asked have said so far."""

    def __init__(self) -> None:
        self.answers: list[T] = []
        self.failures: dict[str, ClientError] = {}
        self.changed = anyio.Event()

    async def is_over(self, count: int, limit_s: float) -> bool:
        """Wait until one has answered, or `count` have failed; False: not within `limit_s`."""
        with anyio.move_on_after(limit_s) as scope:
            while not self.answers and len(self.failures) < count:
                if limit_s == inf and self._is_refused:
                    scope.deadline = min(scope.deadline, anyio.current_time() + NEXT_SERVER_S)
                self.changed = anyio.Event()
                await self.changed.wait()
            return True
        return False

    @property
    def _is_refused(self) -> bool:
        return any(isinstance(error, ServerError) for error in self.failures.values())
