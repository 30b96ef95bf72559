"""Questions to the name servers: each knows all brokers and topics, so the first answer counts.

Java counterpart: NettyRemotingClient.getAndCreateNameserverChannel, which stays with one name
server until its connection is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import anyio.lowlevel

from ...remoting.codec import RemotingCommand
from ..errors import ConnectError, RequestTimeoutError, ServerError, name_server_error
from ..tasks.first_answer import FirstAnswer
from .waiting import Window

Ask: TypeAlias = Callable[[str, float], Awaitable[RemotingCommand]]
"""Asks the name server at an address, within a number of seconds; raises ClientError."""


class NameServers:
    """The name servers of one client.

    Args:
      addresses: `host:port` of each.
      now_s: returns the time of the event loop's clock, in seconds.
    """

    def __init__(self, addresses: Sequence[str], now_s: Callable[[], float]) -> None:
        self._addresses = addresses
        self._now_s = now_s
        self._first = FirstAnswer[RemotingCommand]()

    @property
    def names(self) -> str:
        """The addresses as one string, for errors."""
        return ";".join(self._addresses)

    async def ask(self, code: int, ask: Ask, timeout_s: float, window: Window) -> RemotingCommand:
        """The first answer; while no name server answers, all are asked again within the window.

        Args:
          code: the request code, for errors.
          ask: see `Ask`.
          timeout_s: seconds for one round, in which each name server is asked.

        Raises: as `ask_once`.
        """
        while True:
            try:
                return await self.ask_once(code, ask, window.try_s(timeout_s))
            except ConnectError as error:
                await anyio.lowlevel.checkpoint_if_cancelled()
                if error.is_final or not await window.pause():
                    raise window.explained(error) from error.__cause__

    async def ask_once(self, code: int, ask: Ask, timeout_s: float) -> RemotingCommand:
        """The first answer within `timeout_s` seconds.

        One that refuses has answered, too; but another one may know a topic that it does not know.

        Raises:
          ServerError: the answer has another response code, and no other name server answered.
          ConnectError: no name server answered; the text has each address and the reason.
        """
        end_s = self._now_s() + timeout_s

        async def ask_one(address: str) -> RemotingCommand:
            return await ask(address, max(end_s - self._now_s(), 0.0))

        asked = {address: partial(ask_one, address) for address in self._addresses}
        answers, failures = await self._first.ask_all(asked)
        if answers:
            return answers[0]
        for failure in failures.values():
            if isinstance(failure, ServerError):
                raise name_server_error(failure, code) from failure.__cause__
        reasons = list(failures.values())
        for failure in reasons:
            if not isinstance(failure, ConnectError | RequestTimeoutError):
                raise failure
        raise ConnectError(
            self.names,
            f"no name server answered: {'; '.join(map(str, reasons))}. Is one running there?",
            is_connection_lost=all(isinstance(each, ConnectError) for each in reasons),
            is_final=all(isinstance(each, ConnectError) and each.is_final for each in reasons),
        ) from reasons[-1]
