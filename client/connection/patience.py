"""Waiting for a request a little: one that its server does not answer goes on in the background.

Java counterpart: none; its consume threads wait for each request.
"""

from __future__ import annotations

import contextlib
from typing import Any

import anyio

from ..errors import ClosedError
from ..tasks.first_answer import NEXT_SERVER_S
from ..tasks.task_group import AsyncFunction
from .client import Client


async def wait_a_little(client: Client, function: AsyncFunction, *args: Any) -> None:
    """Run a function in the background, and wait for its end for NEXT_SERVER_S at most.

    It does nothing if the client is closed.

    Args:
      client: runs the function, which raises no ClientError.
    """
    ended = anyio.Event()

    async def run() -> None:
        try:
            await function(*args)
        finally:
            ended.set()

    with contextlib.suppress(ClosedError):
        client.start_soon(run)
        with anyio.move_on_after(NEXT_SERVER_S):
            await ended.wait()
