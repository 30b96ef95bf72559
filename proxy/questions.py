"""Questions of the proxy itself: to all name servers, or to several brokers, at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import trio

from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemotingError
from ..remoting.headers import encode_header
from ..remoting.headers.base import Header
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .lookups import UnansweredError

TIMEOUT_S: Final = 3.0
"""For an answer, of whichever server. RocketMQ: mqClientAPITimeout of its proxy, 3,000 ms."""

GRACE_S: Final = 0.5
"""How long the others may take after one has answered that it does not know."""

SERVERS_MAX: Final = 64
"""Servers that are asked one question; of a larger cluster, the first of them."""


async def ask_any(
    client: RemotingClient, addresses: Collection[str], code: RequestCode, header: Header | None
) -> RemotingCommand:
    """The first success of several servers, which are asked at once; else the first refusal.

    Raises: UnansweredError: none answered.
    """
    question = _Question(client, code, header)
    with trio.move_on_after(TIMEOUT_S) as question.scope:
        async with trio.open_nursery() as nursery:
            for address in list(addresses)[:SERVERS_MAX]:
                nursery.start_soon(question.ask, address)
    if question.best is None:
        reasons = "; ".join(question.reasons) or f"no answer within {TIMEOUT_S:g} s"
        raise UnansweredError(f"{code.name}: {reasons}" if addresses else "no server is known")
    return question.best


class _Question:
    """One question, and the best answer so far."""

    def __init__(self, client: RemotingClient, code: RequestCode, header: Header | None) -> None:
        self._client = client
        self._code = code
        self._fields = {} if header is None else encode_header(header)
        self.scope = trio.CancelScope()
        self.best: RemotingCommand | None = None
        self.reasons: list[str] = []

    async def ask(self, address: str) -> None:
        command = RemotingCommand(int(self._code), self._fields)
        try:
            answer = await self._client.call(address, command, TIMEOUT_S)
        except (RemotingError, ValueError) as error:
            self.reasons.append(str(error))
            return
        if answer.code == ResponseCode.SUCCESS:
            self.best = answer
            self.scope.cancel()
        elif self.best is None:
            self.best = answer
            self.scope.deadline = min(self.scope.deadline, trio.current_time() + GRACE_S)
