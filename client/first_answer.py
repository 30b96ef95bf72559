"""Asking several servers for what each of them knows: the first answer counts.

Java counterpart: none; MQClientInstance.findBrokerAddrByTopic asks one broker, chosen at random.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, TypeVar

import anyio

from .errors import ClientError
from .task_group import TaskGroup

NEXT_SERVER_S: Final = 0.5
"""Seconds until the next server is asked, too. A server that works answers within milliseconds, and
a consumer that has to ask four that hang still gets its queues within 2 s."""

T = TypeVar("T")


class FirstAnswer(Generic[T]):
    """Asks servers in turn, and takes the first answer; a server that hangs delays it a little.

    The first server is asked at once, each further one when all before it have failed, or after
    `NEXT_SERVER_S`. A server that did not answer is asked last from then on, until it answers.
    """

    def __init__(self) -> None:
        self._silent: set[str] = set()

    async def ask(self, servers: Mapping[str, Callable[[], Awaitable[T]]]) -> T:
        """The first answer.

        Args:
          servers: by name, a function that asks this server; at least one.

        Raises: ClientError: none answered; the error of the first one that was asked.
        """
        names = sorted(servers, key=lambda name: name in self._silent)
        answers: list[T] = []
        failures: dict[str, ClientError] = {}

        async def ask(name: str, is_over: anyio.Event) -> None:
            try:
                answer = await servers[name]()
            except ClientError as error:
                failures[name] = error
                self._silent.add(name)
                is_over.set()
                return
            self._silent.discard(name)
            answers.append(answer)
            group.cancel_scope.cancel()

        async with TaskGroup() as group:
            for name in names:
                is_over = anyio.Event()
                group.start_soon(ask, name, is_over)
                if name != names[-1]:
                    with anyio.move_on_after(NEXT_SERVER_S):
                        await is_over.wait()
                        continue
                    # Silent so far: if it answers after all, `ask` takes it back.
                    self._silent.add(name)
        if answers:
            return answers[0]
        raise failures[names[0]]
