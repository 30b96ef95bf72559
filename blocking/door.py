"""What all blocking objects have in common: opened, used by many threads, closed, safe after fork.

A `Door` stands before an object of `trocket.client`, which lives in the loop's thread: a `Resident`
enters it there, keeps the calls into it, and leaves it, all by one task, as anyio wants it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeAlias, TypeVar

from ..client import process
from ..client.errors import ClientError, ClosedError, ForkedError
from . import loop_thread
from .loop_thread import LoopThread, Waiter

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
InnerT = TypeVar("InnerT", bound=AbstractAsyncContextManager[Any])

ExitInfo: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
NO_ERROR: ExitInfo = (None, None, None)


class Resident:
    """An object of the loop's thread, from its opening to its closing.

    Lifecycle: `open`, then `call` and its like from any thread, `close` once.

    Args:
      inner: not yet entered.
      name: for texts.
      before_close: awaited in the loop before the object is left.

    Attributes:
      is_over: it was left.
      waiters: of threads that no task answers; they fail when the object is left.
      on_over: called in the loop when the object has been left, however that came.
    """

    def __init__(
        self,
        inner: AbstractAsyncContextManager[Any],
        name: str,
        before_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name: str = name
        self.is_over: bool = False
        self._inner = inner
        self._before_close = before_close
        self._pid = os.getpid()
        self._generation = process.generation()
        self._opened: Waiter[None] = Waiter()
        self._closed: Waiter[None] = Waiter()
        # Of the loop's thread:
        self._closing: asyncio.Event | None = None
        self._exit_info = NO_ERROR
        self._is_awaited = False
        self._is_entering = False
        self._main: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.waiters: set[Waiter[Any]] = set()
        self.on_over: Callable[[], None] | None = None
        self.thread: LoopThread

    def __str__(self) -> str:
        return self.name

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
        self._is_awaited = True
        self.close_soon(exit_info)
        self._closed.wait()
        self._join()
        self._closed.take()

    def close_soon(self, exit_info: ExitInfo = NO_ERROR) -> None:
        """Leave the object without waiting for it."""
        self.thread.post(self._close_soon, exit_info, waiter=self._closed)

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
          work: what was begun; it is cancelled if this thread is told not to wait.
        """
        try:
            waiter.wait()
        except BaseException:
            # Ctrl-C, or what another signal handler raised.
            self.thread.post(_cancel, work)
            raise
        return waiter.take()

    def call_plain(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that is not async in the loop's thread and wait for its result."""
        self.check_thread()
        waiter: Waiter[T] = Waiter()
        self.thread.post(self._run_plain, waiter, function, args, kwargs, waiter=waiter)
        waiter.wait()
        return waiter.take()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Run a function in the loop's thread soon, unless the object is closed by then."""
        self.thread.post(self._run_posted, function, args)

    def check_process(self) -> None:
        """Raises: ForkedError: this process is not the one that opened the object."""
        if process.generation() != self._generation:
            raise ForkedError(
                f"{self.name} belongs to process {self._pid} and cannot be used in its child "
                f"{os.getpid()}: make another there"
            )

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
        task = self.thread.spawn(self._guard(function(*args)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception:
            # A bug of ours: the loop and all other objects go on.
            logger.exception("%s: a task in the background failed", self.name)

    def _begin(self) -> None:
        self._closing = asyncio.Event()
        self._main = self.thread.spawn(self._live())

    def _give_up(self) -> None:
        """Nobody waits for the opening any more."""
        if self._closing is None:  # it never began
            self._end()
            return
        if self._is_entering and self._main is not None:
            self._main.cancel()
        self._close_soon()

    def _close_soon(self, exit_info: ExitInfo = NO_ERROR) -> None:
        if self._closing is not None and not self._closing.is_set():
            self._exit_info = exit_info
            self._closing.set()

    async def _live(self) -> None:
        assert self._closing is not None  # by _begin
        try:
            if self._closing.is_set():
                raise ClosedError(f"{self.name} was given up before it was opened")
            # A task that is cancelled before it begins would not come to its end below.
            self._is_entering = True
            await self._inner.__aenter__()
        except BaseException as error:  # noqa: BLE001 - told to the opening thread
            self._end()
            self._opened.fail(_told(error, self.name))
            return
        finally:
            self._is_entering = False
        self._opened.set(None)
        failure: BaseException | None = None
        try:
            try:
                await self._closing.wait()
                kind = self._exit_info[0]
                if self._before_close is not None and (kind is None or issubclass(kind, Exception)):
                    await self._before_close()
            finally:
                await self._inner.__aexit__(*self._exit_info)
        except BaseException as error:  # noqa: BLE001 - told to the closing thread
            failure = _told(error, self.name)
        self._exit_info = NO_ERROR  # it holds frames of the program
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._end()
        if failure is None:
            self._closed.set(None)
        else:
            self._closed.fail(failure)
            if not self._is_awaited:
                logger.error("%s could not be closed in good order", self.name, exc_info=failure)

    def _end(self) -> None:
        self.is_over = True
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
        if self.is_over:
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
        except BaseException as error:  # noqa: BLE001 - told to the calling thread
            waiter.fail(_told(error, self.name))
        else:
            waiter.set(result)
        finally:
            task, waiter.task = waiter.task, None
            if task is not None:
                self._tasks.discard(task)

    def _run_plain(
        self,
        waiter: Waiter[T],
        function: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        try:
            waiter.set(function(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - told to the calling thread
            waiter.fail(error)

    def _run_posted(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.is_over:
            return
        try:
            function(*args)
        except Exception:
            # A bug of ours: the loop and all other objects go on.
            logger.exception("%s: a call in the background failed: %s", self.name, function)


def _cancel(waiter: Waiter[Any]) -> None:
    if waiter.task is not None:
        waiter.task.cancel()


def _told(error: BaseException, name: str) -> BaseException:
    """An error of the loop's thread as the calling thread gets it."""
    if isinstance(error, asyncio.CancelledError):
        return ClosedError(f"{name} was closed meanwhile")
    return error


class Door(Generic[InnerT]):
    """A blocking object.

    Lifecycle: `with` it, or `open` and `close`. Any number of threads may use it in between.

    Args:
      make: makes the async object; again, if this one was of no use yet and its process forked, or
        if opening it failed.
    """

    def __init__(self, make: Callable[[], InnerT]) -> None:
        self._make = make
        self._made = make()
        self._pid = os.getpid()
        self._generation = process.generation()
        self._resident: Resident | None = None
        self._is_closed = False
        self._is_spent = False
        self._lifecycle = threading.Lock()

    @property
    def _inner(self) -> InnerT:
        return self._made

    # Lifecycle

    def open(self) -> Self:
        """Connect; returns the object itself. `close` it, or better use `with`.

        If it fails, it may be tried again.

        Raises: ClosedError: it was opened before; ConnectError and what else connecting may raise;
          ForkedError.
        """
        if self._resident is None and process.generation() != self._generation:
            # Made before the fork, as servers do that load the program first, and not used yet.
            self._lifecycle = threading.Lock()
            self._is_spent = True
            self._pid = os.getpid()
            self._generation = process.generation()
        self._check_process()
        with self._lifecycle:
            if self._resident is not None or self._is_closed:
                raise ClosedError(f"{self} is opened once; make another")
            if self._is_spent:
                self._made = self._make()
            self._is_spent = True
            resident = self._enter(self._inner)
            resident.open()
            self._resident = resident
        return self

    def _enter(self, inner: InnerT) -> Resident:
        """Where the object is to live; for classes that have more to do."""
        return Resident(inner, str(self))

    def close(self) -> None:
        """Leave in good order, and wait for it. The second time, and in a forked child: nothing.

        Raises: as the end of the `with` block of the class.
        """
        self._close(NO_ERROR)

    def _close(self, exit_info: ExitInfo) -> None:
        resident = self._resident
        if resident is None or self._is_closed or process.generation() != self._generation:
            # In a forked child it is not the child's to close.
            return
        resident.check_thread()
        self._is_closed = True
        if not resident.is_over:  # else its loop failed
            self._leave(resident, exit_info)

    def _leave(self, resident: Resident, exit_info: ExitInfo) -> None:
        """Close what is open; for classes that have more to do."""
        resident.close(exit_info)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close((kind, error, traceback))

    def __del__(self) -> None:
        resident = getattr(self, "_resident", None)
        if resident is None or resident.is_over or self._is_closed:
            return
        if process.generation() != self._generation:
            return
        self._is_closed = True
        resident.close_soon()
        warnings.warn(f"{self} was not closed", ResourceWarning, stacklevel=2, source=self)

    def __str__(self) -> str:
        return f"this {type(self).__name__}"

    # For the verbs

    def _opened(self) -> Resident:
        """Where the object lives.

        Raises: ClosedError; ForkedError.
        """
        self._check_process()
        resident = self._resident
        if resident is None:
            raise ClosedError(f"{self} is not open: use `with`, or `open`")
        if self._is_closed:
            raise ClosedError(f"{self} is closed")
        return resident

    def _check_process(self) -> None:
        if process.generation() != self._generation:
            raise ForkedError(
                f"{self} belongs to process {self._pid} and cannot be used in its child "
                f"{os.getpid()}: make another there"
            )

    def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._opened().call(function, *args, **kwargs)

    def _call_plain(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._opened().call_plain(function, *args, **kwargs)
