"""A trio loop in a separate thread, with calls into it from any thread.

The caller can be a plain program, another thread, asyncio or another trio loop. `trio.from_thread`
refuses calls from a trio thread, so calls use the loop's token and a future.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import trio

from .errors import EmbeddedBrokerError, unwrap

T = TypeVar("T")


class LoopThread:
    """Runs a trio loop until `close`.

    Lifecycle: `start` once, then `close`. All threads other than the loop's can call the methods.

    Args:
      name: name of the thread.
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
          main: async function that runs until `close` cancels it. This returns once it has called
            `task_status.started`.

        Raises: the exception of `main` before that.
        """
        ready: Future[None] = Future()
        # A daemon thread, so that a program can end without closing it.
        self._thread = threading.Thread(
            target=self._run, args=(main, ready), name=self._name, daemon=True
        )
        self._thread.start()
        try:
            ready.result()
        except BaseException:  # `main` failed, or Ctrl-C interrupted the wait
            self.close()
            raise

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Run an async function in the loop and wait for its result.

        Raises: the function's exception; EmbeddedBrokerError: the loop is not running, or the
          caller is the loop's own thread.
        """
        if threading.current_thread() is self._thread:
            raise EmbeddedBrokerError("a call in the broker's own thread would wait for itself")
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
        """End the loop and wait for the thread; it has no effect if the loop is not running.

        Raises: the exception with which the loop failed.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._is_wanted = False  # if the loop has not started yet
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # it failed: raised below
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
        except BaseException as error:  # noqa: BLE001 - raised in `start` or `close`
            failure = unwrap(error)
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
        except Exception as error:  # noqa: BLE001 - raised in the calling thread
            self._pending.discard(future)
            future.set_exception(unwrap(error))
        else:
            self._pending.discard(future)
            future.set_result(result)
