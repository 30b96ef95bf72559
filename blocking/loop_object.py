"""An async object in the loop's thread: entered there, called from other threads, and left.

One task enters the object and leaves it, as anyio wants it, and waits in between. Its states:

| state | what may come | then |
|---|---|---|
| NEW | the task begins | ENTERING |
| | a request to close, or the opening thread gives up (Ctrl-C) | OVER |
| ENTERING | entered | OPEN |
| | it could not be entered, or the opening thread gives up | OVER |
| OPEN | a request to close, from a thread or from the end of the interpreter | LEAVING |
| LEAVING | left, and every task that it had has ended | OVER |

A request to close that comes while it is entered waits until it is OPEN.
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

from ..client import process
from ..client.errors import ClientError, ClosedError
from . import loop_thread
from .loop_thread import LoopThread, Waiter

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

ExitInfo: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
NO_ERROR: ExitInfo = (None, None, None)


class State(Enum):
    """Where an object is between its opening and its end."""

    NEW = auto()
    ENTERING = auto()
    OPEN = auto()
    LEAVING = auto()
    OVER = auto()


class _CloseRequest(NamedTuple):
    """How the object is to be left, and whether a thread waits for that."""

    exit_info: ExitInfo = NO_ERROR
    is_awaited: bool = False


_NOT_AWAITED: Final = _CloseRequest()


class LoopObject:
    """An object of the loop's thread, from its opening to its end.

    Lifecycle: `open`, then `call` and its like from any thread, `close` once.

    Args:
      inner: not yet entered.
      name: for texts.
      before_close: awaited in the loop before the object is left.

    Attributes:
      state: set in the loop's thread only.
      waiters: of threads that no task answers; they fail when the object is left.
      on_over: called in the loop when the object has been left, however that came.
      thread: the loop's; set by `open`.
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
        # Of the loop's thread:
        self._close_request: _CloseRequest | None = None
        self._closing = asyncio.Event()
        self._main: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __str__(self) -> str:
        return self.name

    @property
    def is_over(self) -> bool:
        """Whether it was left."""
        return self.state is State.OVER

    # For calling threads

    def open(self) -> None:
        """Enter the object.

        Raises: what entering it raises.
        """
        self.thread = loop_thread.enter(self, self._close_soon)
        try:
            self.thread.post(self._begin, waiter=self._opened)
            self._opened.wait()
        except BaseException:
            # Ctrl-C, which may come before the wait has begun.
            self.thread.post(self._give_up)
            raise
        try:
            self._opened.take()
        except BaseException:
            self._join()
            raise

    def close(self, exit_info: ExitInfo = NO_ERROR) -> None:
        """Leave the object; calls that still wait get a ClosedError.

        Raises: what leaving it raises.
        """
        self.thread.post(self._close_soon, _CloseRequest(exit_info, True), waiter=self._closed)
        self._closed.wait()
        self._join()
        self._closed.take()

    def close_soon(self) -> None:
        """Leave the object without waiting for it."""
        self.thread.post(self._close_soon, waiter=self._closed)

    def call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an async function in the loop and wait for its result.

        Raises: what it raises; ClosedError: the object is closed meanwhile.
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
        """`call` in two halves: the first one, without waiting."""
        self.check_thread()
        thread = self.thread
        context = thread.context_for()
        thread.post(self.run, waiter, context, function, args, kwargs, waiter=waiter)

    def wait_for(self, waiter: Waiter[T], work: Waiter[Any]) -> T:
        """`call` in two halves: the second one.

        Args:
          work: what was begun; it is cancelled if Ctrl-C ends the wait.
        """
        try:
            waiter.wait()
        except BaseException:
            # Ctrl-C, or what another signal handler raised.
            self.thread.post(work.cancel)
            raise
        return waiter.take()

    def call_plain(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that is not async in the loop's thread and wait for its result."""
        self.check_thread()
        waiter: Waiter[T] = Waiter()
        self.thread.post(_run_plain, waiter, function, args, kwargs, waiter=waiter)
        waiter.wait()
        return waiter.take()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Run a function in the loop's thread soon, unless the object is closed by then."""
        self.thread.post(self._run_posted, function, args)

    def check_process(self) -> None:
        """Raises: ForkedError: this process is not the one that opened the object."""
        process.check_generation(self._generation, self.name, self._pid)

    def check_thread(self) -> None:
        """Raises: ClientError: this is the loop's thread, which would wait for itself."""
        if self.thread.is_current:
            raise ClientError(
                f"{self.name}: a blocking call in the thread of trocket.blocking's loop would wait"
                " for itself; interceptors, selectors, serializers and rebalance listeners run"
                " there: hand the work to a thread of yours"
            )

    def _join(self) -> None:
        if self.thread.is_over:
            self.thread.join()

    # In the loop's thread

    def spawn(self, function: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run an async function that is cancelled when the object has been closed."""
        task = self.thread.spawn(self._guard(function, args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(
        self, function: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]
    ) -> None:
        try:
            await function(*args)
        except Exception:
            # A bug of ours: the loop and all other objects go on.
            logger.exception("%s: a task in the background failed", self.name)

    def _begin(self) -> None:
        self._main = self.thread.spawn(self._live())

    def _give_up(self) -> None:
        """End an opening that no thread waits for any more."""
        if self._main is None:
            self._end()
        elif self.state is State.ENTERING:
            self._main.cancel()
        else:
            # A task that is cancelled before it begins would not come to its end.
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
                raise ClosedError(f"{self.name} was given up before it was opened")
            self.state = State.ENTERING
            await self._inner.__aenter__()
        except BaseException as error:  # noqa: BLE001 - the opening thread gets it
            self._end()
            self._opened.fail(_for_thread(error, self.name))
            return
        self.state = State.OPEN
        self._opened.set(None)
        failure: BaseException | None = None
        try:
            await self._leave_when_asked()
        except BaseException as error:  # noqa: BLE001 - the closing thread gets it
            failure = _for_thread(error, self.name)
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
            logger.error("%s could not be closed in good order", self.name, exc_info=failure)

    async def _leave_when_asked(self) -> None:
        exit_info = NO_ERROR
        try:
            await self._closing.wait()
            self.state = State.LEAVING
            if self._close_request is not None:
                exit_info = self._close_request.exit_info
                # It holds frames of the program.
                self._close_request = self._close_request._replace(exit_info=NO_ERROR)
            kind = exit_info[0]
            if self._before_close is not None and (kind is None or issubclass(kind, Exception)):
                await self._before_close()
        finally:
            await self._inner.__aexit__(*exit_info)

    def _end(self) -> None:
        self.state = State.OVER
        for waiter in self.waiters:
            waiter.fail(ClosedError(f"{self.name} was closed meanwhile"))
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
        """Run an async function for a thread that waits."""
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
        except BaseException as error:  # noqa: BLE001 - the calling thread gets it
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
            # A bug of ours: the loop and all other objects go on.
            logger.exception("%s: a call in the background failed: %s", self.name, function)


def _run_plain(
    waiter: Waiter[T],
    function: Callable[..., T],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    try:
        waiter.set(function(*args, **kwargs))
    except Exception as error:  # noqa: BLE001 - the calling thread gets it
        waiter.fail(error)


def _for_thread(error: BaseException, name: str) -> BaseException:
    """An error of the loop's thread as the calling thread gets it."""
    if isinstance(error, asyncio.CancelledError):
        return ClosedError(f"{name} was closed meanwhile")
    return error
