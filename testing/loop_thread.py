"""A trio loop in a thread of its own, and calls into it from anywhere.

From anywhere: plain programs, other threads, asyncio and other trio loops. `trio.from_thread` will
not be called from a trio thread, so the way in is the loop's token and a future.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import trio

from .errors import EmbeddedBrokerError, only

T = TypeVar("T")


class LoopThread:
    """Runs one loop until `close`.

    Lifecycle: `start` once, `close` once or more. Any thread but its own may call.

    Args:
      name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._stop = trio.CancelScope()
        self._is_wanted = True
        self._pending: set[Future[Any]] = set()
        self._failure: BaseException | None = None

    def start(self, main: Callable[..., Awaitable[None]]) -> None:
        """Run the loop.

        Args:
          main: run in it until `close` cancels it; its `task_status` says when it is ready.
        Raises: what `main` failed with before it was ready.
        """
        ready: Future[None] = Future()
        # A daemon: a program that forgets to close it can still end.
        self._thread = threading.Thread(
            target=self._run, args=(main, ready), name=self._name, daemon=True
        )
        self._thread.start()
        try:
            ready.result()
        except BaseException:  # it has failed, or we are interrupted while it starts
            self.close()
            raise

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Run an async function in the loop and wait for what it returns.

        Raises: what it raised; EmbeddedBrokerError: the loop has ended.
        """
        if threading.current_thread() is self._thread:
            raise EmbeddedBrokerError("this would wait for itself: called in the broker's thread")
        future: Future[T] = Future()
        token = self._token
        if token is None:
            raise EmbeddedBrokerError("the broker's loop is not running")

        def begin() -> None:
            if self._nursery is None:
                future.set_exception(self._ended())
                return
            self._pending.add(future)
            self._nursery.start_soon(self._answer, future, function, args, options)

        try:
            token.run_sync_soon(begin)
        except trio.RunFinishedError:
            raise self._ended() from self._failure
        return future.result()

    def close(self) -> None:
        """End the loop and wait for the thread.

        Raises: what the loop failed with.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._is_wanted = False  # for a loop that has not begun
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # it failed, and that is told below
                self._token.run_sync_soon(self._stop.cancel)
        thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _ended(self) -> EmbeddedBrokerError:
        why = f": {self._failure!r}" if self._failure is not None else ""
        return EmbeddedBrokerError(f"the broker's loop has ended{why}")

    def _run(self, main: Callable[..., Awaitable[None]], ready: Future[None]) -> None:
        try:
            trio.run(self._main, main, ready)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for this thread
            failure = only(error)
            if ready.done():
                self._failure = failure
            else:
                ready.set_exception(failure)
        else:
            if not ready.done():
                ready.cancel()
        finally:
            for future in list(self._pending):
                future.set_exception(self._ended())
            self._pending.clear()

    async def _main(self, main: Callable[..., Awaitable[None]], ready: Future[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        try:
            with self._stop:
                if not self._is_wanted:
                    self._stop.cancel()
                async with trio.open_nursery() as nursery:
                    await nursery.start(main)
                    self._nursery = nursery
                    ready.set_result(None)
                    await trio.sleep_forever()
        finally:
            self._nursery = None

    async def _answer(
        self,
        future: Future[T],
        function: Callable[..., Awaitable[T]],
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        try:
            result = await function(*args, **options)
        except Exception as error:  # noqa: BLE001 - the caller's, in another thread
            self._pending.discard(future)
            future.set_exception(only(error))
        else:
            self._pending.discard(future)
            future.set_result(result)
