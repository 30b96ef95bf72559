"""An async object that runs in the loop's thread and is called from other threads.

One task enters the object, waits, and leaves it, because anyio requires that the same task does
both. Its states:

| state | event | next state |
|---|---|---|
| NEW | the task starts | ENTERING |
| | a request to close, or the opening thread gives up (Ctrl-C) | OVER |
| ENTERING | `__aenter__` returns | OPEN |
| | `__aenter__` raises, or the opening thread gives up | OVER |
| OPEN | a request to close, from a thread or at the interpreter's exit | LEAVING |
| LEAVING | `__aexit__` has returned, and all tasks of the object have ended | OVER |

A request to close in the state ENTERING takes effect once the state is OPEN.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from enum import Enum, auto
from types import TracebackType
from typing import Any, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

from ..client.checks import process
from ..client.errors import ClientError, ClosedError
from . import loop_thread
from .loop_thread import LoopThread, Waiter

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ExitInfo: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
NO_ERROR: ExitInfo = (None, None, None)


class State(Enum):
    """The states of a LoopObject; see the table of the module."""

    NEW = auto()
    ENTERING = auto()
    OPEN = auto()
    LEAVING = auto()
    OVER = auto()


class _CloseRequest(NamedTuple):
    """The arguments of `__aexit__`, and whether a thread waits for its result."""

    exit_info: ExitInfo = NO_ERROR
    is_awaited: bool = False


_NOT_AWAITED: Final = _CloseRequest()


class LoopObject:
    """An async object in the loop's thread, with its lifecycle.

    Lifecycle: `open`, then `call` and the like from any thread, then `close` once.

    Args:
      inner: the async object, not yet entered.
      name: its name in error and log messages.
      before_close: awaited in the loop before the object is left.

    Attributes:
      state: changed by the loop's thread only.
      waiters: waiters without a task; they fail when the object is left.
      on_over: called in the loop when the state becomes OVER, whatever the reason.
      thread: the loop's thread; set by `open`.
    """

    def __init__(
        self,
        inner: AbstractAsyncContextManager[Any],
        name: str,
        before_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name: str = name
        self.state: State = State.NEW
        self.waiters: set[Waiter[Any]] = set()
        self.on_over: Callable[[], None] | None = None
        self.thread: LoopThread
        self._inner = inner
        self._before_close = before_close
        self._pid = os.getpid()
        self._generation = process.generation()
        self._opened: Waiter[None] = Waiter()
        self._closed: Waiter[None] = Waiter()
        # Used in the loop's thread only:
        self._close_request: _CloseRequest | None = None
        self._closing = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __str__(self) -> str:
        return self.name

    @property
    def is_over(self) -> bool:
        """Whether the object has been left."""
        return self.state is State.OVER

    # For calling threads

    def open(self) -> None:
        """Enter the object.

        Raises: the exception of its `__aenter__`.
        """
        self.thread = loop_thread.enter(self, self._close_soon)
        try:
            self.thread.post(self._begin, waiter=self._opened)
            self._opened.wait()
        except BaseException:
            # KeyboardInterrupt, which can arrive even before the wait begins.
            self.thread.post(self._give_up)
            raise
        try:
            self._opened.take()
        except BaseException:
            self._join()
            raise

    def close(self, exit_info: ExitInfo = NO_ERROR) -> None:
        """Leave the object; calls that still wait raise ClosedError.

        Raises: the exception of its `__aexit__`.
        """
        self.thread.post(self._close_soon, _CloseRequest(exit_info, True), waiter=self._closed)
        self._closed.wait()
        self._join()
        self._closed.take()

    def close_soon(self) -> None:
        """Leave the object, without waiting until that is done."""
        self.thread.post(self._close_soon, waiter=self._closed)

    def call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an async function in the loop and wait for its result.

        Raises: the function's exception; ClosedError: the object was closed before it returned.
        """
        waiter: Waiter[T] = Waiter()
        self.begin(waiter, function, *args, **kwargs)
        return self.wait_for(waiter, waiter)

    def begin(
        self,
        waiter: Waiter[T],
        function: Callable[P, Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Start an async function in the loop, without waiting: the first half of `call`.

        Args:
          waiter: gets the result or the exception.
        """
        self.check_thread()
        thread = self.thread
        context = thread.context_for()
        thread.post(self.run, waiter, context, function, args, kwargs, waiter=waiter)

    def wait_for(self, waiter: Waiter[T], work: Waiter[Any]) -> T:
        """Wait for a result: the second half of `call`.

        Args:
          work: the waiter given to `begin`; its task is cancelled if Ctrl-C ends the wait.
        """
        try:
            waiter.wait()
        except BaseException:
            # KeyboardInterrupt, or an exception of another signal handler.
            self.thread.post(work.cancel)
            raise
        return waiter.take()

    def call_plain(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a synchronous function in the loop's thread and wait for its result."""
        self.check_thread()
        waiter: Waiter[T] = Waiter()
        self.thread.post(_run_plain, waiter, function, args, kwargs, waiter=waiter)
        waiter.wait()
        return waiter.take()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule a function in the loop's thread; a closed object skips it."""
        self.thread.post(self._run_posted, function, args)

    def check_process(self) -> None:
        """Raises: ForkedError: the object was opened in the parent of this process."""
        process.check_generation(self._generation, self.name, self._pid)

    def check_thread(self) -> None:
        """Raises: ClientError: the caller is the loop's thread, which would wait for itself."""
        if self.thread.is_current:
            raise ClientError(
                f"{self.name}: a blocking call in the thread of trocket.blocking's loop would wait"
                " for itself; interceptors, selectors, serializers and rebalance listeners run"
                " there: make the call in another thread"
            )

    def _join(self) -> None:
        if self.thread.is_over:
            self.thread.join()

    # In the loop's thread

    def spawn(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run an async function in the background; it is cancelled when the object is closed."""
        task = self.thread.spawn(self._guard(function, args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(
        self, function: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]
    ) -> None:
        try:
            await function(*args)
        except Exception:
            # A bug in this package; it must not stop the loop, which other objects share.
            logger.exception("%s: a background task failed", self.name)

    def _begin(self) -> None:
        self._main = self.thread.spawn(self._live())

    def _give_up(self) -> None:
        """Cancel an `open` whose thread no longer waits."""
        if self._main is None:
            self._end()
        elif self.state is State.ENTERING:
            self._main.cancel()
        else:
            # In NEW, a task that is cancelled before its first step would never call `_end`.
            self._close_soon()

    def _close_soon(self, request: _CloseRequest = _NOT_AWAITED) -> None:
        if self._close_request is None:
            self._close_request = request
            self._closing.set()
        elif request.is_awaited:
            self._close_request = self._close_request._replace(is_awaited=True)

    async def _live(self) -> None:
        try:
            if self._close_request is not None:
                raise ClosedError(f"{self.name} was closed before it was opened")
            self.state = State.ENTERING
            await self._inner.__aenter__()
        except BaseException as error:  # noqa: BLE001 - raised in the opening thread
            self._end()
            self._opened.fail(_for_thread(error, self.name))
            return
        self.state = State.OPEN
        self._opened.set(None)
        failure: BaseException | None = None
        try:
            await self._leave_when_asked()
        except BaseException as error:  # noqa: BLE001 - raised in the closing thread
            failure = _for_thread(error, self.name)
        # The calls of threads that still wait: cancelled, they raise ClosedError there.
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._end()
        if failure is None:
            self._closed.set(None)
            return
        self._closed.fail(failure)
        if self._close_request is None or not self._close_request.is_awaited:
            # No thread waits for the result, so the log is the only place for it.
            logger.error("%s could not be closed cleanly", self.name, exc_info=failure)

    async def _leave_when_asked(self) -> None:
        exit_info = NO_ERROR
        try:
            await self._closing.wait()
            self.state = State.LEAVING
            if self._close_request is not None:
                exit_info = self._close_request.exit_info
                # Its traceback would keep frames of the program alive.
                self._close_request = self._close_request._replace(exit_info=NO_ERROR)
            kind = exit_info[0]
            if self._before_close is not None and (kind is None or issubclass(kind, Exception)):
                await self._before_close()
        finally:
            await self._inner.__aexit__(*exit_info)

    def _end(self) -> None:
        self.state = State.OVER
        for waiter in self.waiters:
            waiter.fail(ClosedError(f"{self.name} was closed during the call"))
        if self.on_over is not None:
            self.on_over()
        self.thread.leave(self)

    def run(
        self,
        waiter: Waiter[T],
        context: contextvars.Context | None,
        function: Callable[..., Coroutine[Any, Any, T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Run an async function for a thread that waits; to be called in the loop."""
        if self.state is State.OVER:
            waiter.fail(ClosedError(f"{self.name} is closed"))
            return
        task = self.thread.spawn(self._answer(waiter, function, args, kwargs), context)
        waiter.task = task
        self._tasks.add(task)

    async def _answer(
        self,
        waiter: Waiter[T],
        function: Callable[..., Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            waiter.fail(_for_thread(error, self.name))
        else:
            waiter.set(result)
        finally:
            task, waiter.task = waiter.task, None
            if task is not None:
                self._tasks.discard(task)

    def _run_posted(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.state is State.OVER:
            return
        try:
            function(*args)
        except Exception:
            # A bug in this package; it must not stop the loop, which other objects share.
            logger.exception("%s: a background call failed: %s", self.name, function)


def _run_plain(
    waiter: Waiter[T],
    function: Callable[..., T],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    try:
        waiter.set(function(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - raised in the calling thread
        waiter.fail(error)


def _for_thread(error: BaseException, name: str) -> BaseException:
    """The error to raise in the calling thread: ClosedError in place of a cancellation."""
    if isinstance(error, asyncio.CancelledError):
        return ClosedError(f"{name} was closed during the call")
    return error
