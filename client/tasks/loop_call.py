"""The parts of asyncio and trio that handlers need and anyio does not have.

Java counterpart: none.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any


class LoopCall:
    """Schedules functions in the event loop that it was created in.

    Any thread may use it, also after the loop has ended.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        trio = sys.modules.get("trio")
        self._over: type[Exception] = RuntimeError  # the loop is closed
        if trio is not None and trio.lowlevel.in_trio_run():
            self._call: Callable[..., object] = trio.lowlevel.current_trio_token().run_sync_soon
            self._over = trio.RunFinishedError
        else:
            self._call = asyncio.get_running_loop().call_soon_threadsafe

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the loop."""
        return threading.get_ident() == self._thread

    def __call__(self, function: Callable[..., object], *args: Any) -> bool:
        """Schedule a function, which must not raise; returns False if the loop has ended."""
        try:
            self._call(function, *args)
        except self._over:
            return False
        return True


def is_cancelled() -> bool:
    """Whether the running task is being cancelled, so that a cancellation is meant for it.

    Under asyncio, awaiting a future that was cancelled raises the same exception.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return True
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
