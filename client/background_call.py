"""A call that goes on in the background when its caller waits for it no longer.

A request that a broker may still carry out, such as a pop, is not given up when it is slow: its
answer is worth something later.

Java counterpart: none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from .client import Client
from .errors import ClientError, ClosedError

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """One call of an async function, in a task of the client.

    Args:
      client: an open client.
      function: may raise a ClientError.
      on_late: called when it ends after `wait` was over.

    Attributes:
      error: what the function raised, or ClosedError if it was given up; None: it returned.
    """

    def __init__(
        self,
        client: Client,
        function: Callable[[], Awaitable[T]],
        on_late: Callable[[BackgroundCall[T]], None],
    ) -> None:
        self._function = function
        self._on_late = on_late
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._is_late = False
        self._results: list[T] = []
        self.error: ClientError | None = None
        client.start_soon(self._run)

    async def _run(self) -> None:
        try:
            with self._scope:
                try:
                    self._results.append(await self._function())
                except ClientError as error:
                    self.error = error
        finally:
            if self.error is None and not self._results:
                self.error = ClosedError("it was closed before the broker answered")
            self._ended.set()
            if self._is_late:
                self._on_late(self)

    async def wait(self, seconds: float) -> bool:
        """Wait for its end, for at most `seconds`; False: it goes on.

        If the caller is cancelled, so is the call.
        """
        try:
            with anyio.move_on_after(seconds):
                await self._ended.wait()
        except BaseException:
            self.cancel()
            raise
        self._is_late = not self._ended.is_set()
        return not self._is_late

    async def finish(self) -> None:
        """Wait for its end, however long that takes."""
        await self._ended.wait()

    def cancel(self) -> None:
        """Give it up."""
        self._scope.cancel()

    def result(self) -> T:
        """What the function returned. Raises: ClientError: what it raised."""
        if self.error is not None:
            raise self.error
        return self._results[0]
