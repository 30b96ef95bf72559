"""Requests of several servers under one deadline: one that hangs costs its time once.

A server that gave no answer is not asked again until the next round: what the others answer is
there in time, and the caller learns of each request why it has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio

from ..client.admin.asking import BrokersError
from ..client.connection.connection import request_name
from ..client.errors import ClientError, ConnectError, RequestTimeoutError, copy_of, server_error
from ..common.texts import one_line
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode

if TYPE_CHECKING:
    from ..client import Client
    from ..remoting.codec import RemotingCommand
    from ..remoting.headers.base import Header

TIMEOUTS: Final = 3
"""A round takes as long as this number of the client's timeouts, unless something else is said: a
slow server answers several requests one after another, a silent one costs one timeout."""


class Round:
    """Requests under one deadline.

    Args:
      client: open.
      limit_s: seconds from now on for all requests together; None: TIMEOUTS of the client's
        `timeout_s`, which limits each request, too.

    Attributes:
      client: the client.
      counts: requests that were made, by address.
    """

    def __init__(self, client: Client, limit_s: float | None = None) -> None:
        self.client = client
        self.counts: Counter[str] = Counter()
        self._limit_s = TIMEOUTS * client.timeout_s if limit_s is None else limit_s
        self._end_s = client.now_s() + self._limit_s
        self._silent: dict[str, ClientError] = {}

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0: it has passed."""
        return max(self._end_s - self.client.now_s(), 0.0)

    def silence(self, address: str) -> ClientError | None:
        """Why a server is not asked any more; None: it is."""
        return self._silent.get(address)

    async def call(
        self, address: str, command: RemotingCommand, *, is_forwarded: bool = False
    ) -> RemotingCommand:
        """Make a request, as `Client.call`.

        Args:
          is_forwarded: the server asks a client: if there is no answer, that client may be silent.

        Raises: ConnectError; RequestTimeoutError: also where the server gave no answer before.
        """
        silence = self._silent.get(address)
        if silence is not None:
            raise copy_of(silence)
        timeout_s = min(self.client.timeout_s, self.left_s)
        if timeout_s <= 0:
            raise RequestTimeoutError(request_name(command.code), address, self._limit_s)
        self.counts[address] += 1
        was_connected = self.client.open_connection(address) is not None
        try:
            return await self.client.call(address, command, timeout_s)
        except RequestTimeoutError as error:
            if not is_forwarded:
                self._silent.setdefault(address, error)
            raise
        except ConnectError as error:
            # A server that closes one connection may take the next.
            if not was_connected:
                self._silent.setdefault(address, error)
            raise

    async def request(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        ok: Sequence[int] = (ResponseCode.SUCCESS,),
        is_forwarded: bool = False,
    ) -> RemotingCommand:
        """Make a request that is to succeed, as `Client.request`.

        Args:
          ok: response codes that count as success.
          is_forwarded: as in `call`.

        Raises: ServerError: the answer has another code. As `call`.
        """
        command = self.client.command(code, header)
        answer = await self.call(address, command, is_forwarded=is_forwarded)
        if answer.code not in ok:
            raise server_error(answer.code, answer.remark, address, code.name)
        return answer


async def asked_at_once(*calls: Callable[[], Awaitable[Any]]) -> list[tuple[Any, str]]:
    """Make calls of an administrator at the same time, so that a broker that hangs costs one wait.

    Returns: for each call its result, or what the other brokers answered, and which brokers did not
      answer; "": all did.
    Raises: ClientError: of the first call that has no result at all.
    """
    results: list[tuple[Any, str]] = [(None, "")] * len(calls)
    failures: dict[int, ClientError] = {}

    async def ask(number: int, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            results[number] = await call(), ""
        except BrokersError as error:
            results[number] = error.partial, one_line(error)
        except ClientError as error:
            failures[number] = error

    async with anyio.create_task_group() as tasks:
        for number, call in enumerate(calls):
            tasks.start_soon(ask, number, call)
    if failures:
        raise failures[min(failures)]
    return results
