"""Deadlines of calls that are made of several requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from ...client.errors import RequestTimeoutError

T = TypeVar("T")


async def within(seconds: float, what: str, address: str, call: Callable[[], Awaitable[T]]) -> T:
    """The result of a call, in time.

    Args:
      seconds: for all of its requests.
      what: is asked, for the error.
      address: of the server that is asked, or its name.

    Raises: RequestTimeoutError: it took longer; and as the call.
    """
    try:
        with anyio.fail_after(seconds):
            return await call()
    except TimeoutError as error:
        raise RequestTimeoutError(what, address, seconds) from error
