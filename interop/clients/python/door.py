"""The client's APIs (asyncio, trio, blocking) behind one awaitable interface."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

import trocket

ASYNC_DOORS = ("asyncio", "trio")
THREADS_MAX = 200

Handler = Callable[[Any], Awaitable[None]]


def account_of(words: str) -> dict[str, Any]:
    """The option of a client that signs with an account, "NAME SECRET"; none of ""."""
    name, _, secret = words.partition(" ")
    return {"credentials": trocket.Credentials(name, secret)} if name else {}


OWN_ACCOUNT = account_of(os.environ.get("INTEROP_ACCOUNT", ""))
"""The account of the program, for every client that names no other."""


class AsyncDoor:
    """The classes as they are, but that all sign with the program's account, if it has one."""

    def producer(self, url: str, **options: Any) -> Any:
        return trocket.Producer(url, **OWN_ACCOUNT | options)

    def transaction_producer(self, url: str, **options: Any) -> Any:
        return trocket.TransactionProducer(url, **OWN_ACCOUNT | options)

    def push_consumer(self, url: str, **options: Any) -> Any:
        return trocket.PushConsumer(url, **OWN_ACCOUNT | options)

    def pull_consumer(self, url: str, **options: Any) -> Any:
        return trocket.PullConsumer(url, **OWN_ACCOUNT | options)

    def simple_consumer(self, url: str, **options: Any) -> Any:
        return trocket.SimpleConsumer(url, **OWN_ACCOUNT | options)

    def admin(self, url: str, **options: Any) -> Any:
        return trocket.Admin(url, **OWN_ACCOUNT | options)

    def handler(self, function: Handler) -> Any:
        return function


class BlockingDoor(AsyncDoor):
    """The blocking classes: each call in a thread, and each handler's work back in the loop."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal) -> None:
        import trocket.blocking

        self._portal = portal
        self._classes = trocket.blocking
        self._limiter = anyio.CapacityLimiter(THREADS_MAX)

    def producer(self, url: str, **options: Any) -> Any:
        return Threaded(self._classes.Producer(url, **OWN_ACCOUNT | options), self._limiter)

    def transaction_producer(self, url: str, **options: Any) -> Any:
        return Threaded(
            self._classes.TransactionProducer(url, **OWN_ACCOUNT | options), self._limiter
        )

    def push_consumer(self, url: str, **options: Any) -> Any:
        return Threaded(self._classes.PushConsumer(url, **OWN_ACCOUNT | options), self._limiter)

    def pull_consumer(self, url: str, **options: Any) -> Any:
        return Threaded(self._classes.PullConsumer(url, **OWN_ACCOUNT | options), self._limiter)

    def simple_consumer(self, url: str, **options: Any) -> Any:
        return Threaded(self._classes.SimpleConsumer(url, **OWN_ACCOUNT | options), self._limiter)

    def admin(self, url: str, **options: Any) -> Any:
        return Threaded(self._classes.Admin(url, **OWN_ACCOUNT | options), self._limiter)

    def handler(self, function: Handler) -> Any:
        return lambda message: self._portal.call(function, message)


class Threaded:
    """A blocking object whose methods can be awaited."""

    def __init__(self, blocking: Any, limiter: anyio.CapacityLimiter) -> None:
        self._blocking = blocking
        self._limiter = limiter

    async def __aenter__(self) -> Any:
        await self._call(self._blocking.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._call(self._blocking.__exit__, *error)

    async def _call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        call = partial(function, *args, **options)
        return await anyio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._blocking, name)
        return partial(self._call, found) if callable(found) else found


@asynccontextmanager
async def open_door(
    name: str, portal: anyio.from_thread.BlockingPortal
) -> AsyncIterator[AsyncDoor]:
    yield AsyncDoor() if name in ASYNC_DOORS else BlockingDoor(portal)


async def settled(value: Any) -> Any:
    """The result of a method that only some of the APIs must await."""
    return await value if inspect.isawaitable(value) else value
