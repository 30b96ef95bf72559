"""Waiting for other threads, and a blocking object without a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import anyio

from trocket.blocking.blocking_object import BlockingObject
from trocket.blocking.forwarded import forwarded
from trocket.blocking.loop_thread import LoopThread

DEADLINE_S = 30.0


class Null:
    """An async object that does nothing; `log` has what was done to it."""

    def __init__(self) -> None:
        self.log: list[Any] = []

    async def __aenter__(self) -> Null:
        self.log.append("enter")
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.log.append(("exit", kind))

    async def one(self) -> int:
        return 1

    async def wait_for_ever(self) -> None:
        self.log.append("waiting")
        try:
            await anyio.sleep_forever()
        finally:
            self.log.append("cancelled")


class BlockingNull(BlockingObject[Null]):
    """The blocking object beside it, made as the package makes its own."""

    one = forwarded(Null.one)
    wait_for_ever = forwarded(Null.wait_for_ever)

    def __init__(self, make: Callable[[], Null] = Null) -> None:
        super().__init__(make)

    @property
    def log(self) -> list[Any]:
        return self._inner.log

    @property
    def thread(self) -> LoopThread:
        return self._opened().thread


def in_background(function: Callable[[], Any]) -> Callable[[], Any]:
    """Run it in a thread; what comes back waits for its end, and gives or raises what it did."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(function)
    pool.shutdown(wait=False)
    return lambda: future.result(DEADLINE_S)


def waiting_threads(file_name: str) -> int:
    """How many threads wait for others now, by way of a function of a file of this name."""

    def waits(frame: FrameType | None) -> bool:
        if frame is None or frame.f_code.co_name not in ("wait", "acquire"):
            return False
        while frame is not None:
            if frame.f_code.co_filename.endswith(f"/blocking/{file_name}"):
                return True
            frame = frame.f_back
        return False

    return sum(map(waits, sys._current_frames().values()))
