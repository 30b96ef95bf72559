"""Servers that did not answer in time, on which later requests wait less."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import ConnectError, RequestTimeoutError

T = TypeVar("T")


class SilentServers:
    """Limits the time of requests to servers that were silent, until they answer again.

    A server that hangs costs every request its whole time limit. A program that asks all servers
    again and again, such as a console, would wait for it each time.

    Args:
      limit_s: seconds that a request to such a server waits.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._silent: set[str] = set()

    async def ask(self, address: str, timeout_s: float, call: Callable[[float], Awaitable[T]]) -> T:
        """Ask a server.

        Args:
          address: of the server.
          timeout_s: seconds, if it is not silent.
          call: asks it, within a number of seconds.

        Raises: as `call`.
        """
        if address in self._silent:
            timeout_s = min(timeout_s, self._limit_s)
        try:
            answer = await call(timeout_s)
        except (RequestTimeoutError, ConnectError):
            self._silent.add(address)
            raise
        self._silent.discard(address)
        return answer
