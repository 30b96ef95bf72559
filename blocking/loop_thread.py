"""The background thread with an event loop that all blocking objects of a process share.

It starts when the first object is opened and ends when the last one is closed. It is a daemon
thread, so an object that was not closed does not keep the interpreter alive. At the interpreter's
exit, objects that are still open are closed, which takes at most EXIT_TIMEOUT_S.

Calling threads hand over work by `post`: they append it to a deque and wake the loop, once for all
that is appended until the loop takes it. They wait on plain locks (`Waiter`), the cheapest way to
wait that Python has.

A forked child does not have this thread; the first object that is opened in it starts a new one.

The loop is asyncio's, because that comes with Python and users never see which loop runs.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import anyio

from ..client.errors import ClosedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

EXIT_TIMEOUT_S: Final = 5.0
"""Longest time that the interpreter's exit waits for objects that were not closed."""

WAIT_S: Final = 0.1 if sys.platform == "win32" else 1.0
"""Longest single wait for a lock in a thread that may run signal handlers. A signal does not
interrupt such a wait on Windows, nor elsewhere if it comes just before the wait or in another
thread: Python calls its handler when the wait ends."""

Post = tuple["Waiter[Any] | None", Callable[..., object], tuple[Any, ...]]


class Waiter(Generic[T]):
    """The result of work in another thread, set once and waited for by one thread.

    Attributes:
      task: the task of the loop that produces the result, if there is one.
    """

    __slots__ = ("_error", "_lock", "_result", "is_set", "task")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.is_set: bool = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None

    def set(self, result: T) -> None:
        """Set the result; it has no effect after the first `set` or `fail`."""
        if not self.is_set:
            self.is_set = True
            self._result = result
            self._lock.release()

    def fail(self, error: BaseException) -> None:
        """Set an error, which `take` raises; it has no effect after the first `set` or `fail`."""
        if not self.is_set:
            self.is_set = True
            self._error = error
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for `set` or `fail`.

        Args:
          timeout_s: seconds; None: no limit.

        Returns: False if neither was called in time.
        Raises: KeyboardInterrupt, or any other exception of a signal handler.
        """
        return acquire(self._lock, timeout_s)

    def cancel(self) -> None:
        """Cancel the task, if there is one; to be called in the loop."""
        if self.task is not None:
            self.task.cancel()

    def take(self) -> T:
        """The result; call it after `wait` has returned True.

        Raises: the error given to `fail`.
        """
        error, self._error = self._error, None
        if error is None:
            result: T = self._result  # type: ignore[assignment]
            return result
        try:
            raise error
        finally:
            # The traceback refers to this frame: keep no reference cycle.
            del error


def acquire(lock: threading.Lock, timeout_s: float | None) -> bool:
    """Acquire a lock that another thread releases; Ctrl-C interrupts the wait.

    Args:
      timeout_s: seconds; None: no limit.

    Returns: False if it was not released in time.
    """
    left_s = threading.TIMEOUT_MAX if timeout_s is None else max(timeout_s, 0)
    while not lock.acquire(timeout=min(left_s, WAIT_S)):
        left_s -= WAIT_S
        if left_s <= 0:
            return False
    return True


def longest_wait_s() -> float:
    """The longest single wait of this thread, in seconds: only the main thread handles signals."""
    is_main = threading.current_thread() is threading.main_thread()
    return WAIT_S if is_main else threading.TIMEOUT_MAX


class LoopThread:
    """A thread that runs an asyncio loop as long as it has users.

    Lifecycle: `start`, then one `leave` for each `enter`. The last `leave` ends the thread.

    Attributes:
      is_over: it has ended, or is about to end.
    """

    def __init__(self) -> None:
        self.is_over: bool = False
        self._inbox: deque[Post] = deque()
        self._is_woken = False
        self._is_refusing = False
        self._thread = threading.Thread(target=self._run, name="trocket-blocking", daemon=True)
        self._ready: Waiter[None] = Waiter()
        self._loop: asyncio.AbstractEventLoop
        self._context: contextvars.Context
        self._stop: asyncio.Event
        self._closers: dict[object, Callable[[], None]] = {}

    def start(self) -> None:
        """Run the loop; when this returns, `post` can be called."""
        self._thread.start()
        self._ready.wait()
        self._ready.take()

    @property
    def is_current(self) -> bool:
        """Whether this is the calling thread."""
        return threading.current_thread() is self._thread

    def post(
        self, function: Callable[..., object], *args: Any, waiter: Waiter[Any] | None = None
    ) -> None:
        """Schedule a function in the loop's thread; functions run in the order of the posts.

        Args:
          function: must return at once and must not raise.
          waiter: fails with ClosedError if the loop ends before the function is called.
        """
        self._inbox.append((waiter, function, args))
        if not self._is_woken:
            try:
                self._is_woken = True
                with suppress(RuntimeError):  # the loop is closed: `_refuse_posts` will follow
                    self._loop.call_soon_threadsafe(self._take_posts, context=self._context)
            except BaseException:
                # Ctrl-C before the loop was woken: the next post must wake it.
                self._is_woken = False
                raise
        if self._is_refusing:
            self._refuse_posts()

    def spawn(
        self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context | None = None
    ) -> asyncio.Task[None]:
        """Start a task; to be called in the loop. The caller must keep a reference to it.

        Args:
          context: see `context_for`; None: the loop's context.
        """
        if context is None:
            context = self._context.copy()
        return self._loop.create_task(coroutine, context=context)

    def context_for(self) -> contextvars.Context:
        """The context for a task: the loop's variables and those of the calling thread.

        With it, an interceptor finds the caller's tracing span, for example.
        """
        context = self._context.copy()
        caller = contextvars.copy_context()
        if caller:
            context.run(_overlay, caller, self._context)
        return context

    def enter(self, key: object, close: Callable[[], None]) -> None:
        """Add a user of the loop; the caller must hold the module's lock.

        Args:
          key: identifies the user; its `str` is logged if it is not closed.
          close: called in the loop if the interpreter exits before `leave`.
        """
        self._closers[key] = close

    def leave(self, key: object) -> None:
        """Remove a user; the last one ends the thread. To be called in the loop."""
        global _current
        with _lock:
            self._closers.pop(key, None)
            if self._closers:
                return
            if _current is self:
                _current = None
            self.is_over = True
        self._stop.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the thread has ended; returns False if it does not end in time."""
        if not self.is_current:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def end(self) -> None:
        """Close the objects that are still open, and end; called at the interpreter's exit."""
        names = [str(key) for key in list(self._closers)]
        if names:
            logger.warning("still open at the end of the program: %s; use `with`", "; ".join(names))
        for close in list(self._closers.values()):
            self.post(close)
        if not self.join(EXIT_TIMEOUT_S):
            logger.warning("not closed within %g s: %s", EXIT_TIMEOUT_S, "; ".join(names))
            self.post(self._stop.set)
            self.join(0.5)

    # In the loop's thread

    def _run(self) -> None:
        try:
            anyio.run(self._serve, backend="asyncio")
        except BaseException as error:
            self._ready.fail(error)
            logger.critical("the loop of trocket.blocking failed", exc_info=True)
        finally:
            self._forget()
            self._is_refusing = True
            self._refuse_posts()

    def _forget(self) -> None:
        global _current
        self.is_over = True
        with _lock:
            if _current is self:
                _current = None

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._stop = asyncio.Event()
        self._ready.set(None)
        await self._stop.wait()

    def _take_posts(self) -> None:
        # Reset it before the inbox is read: a post from now on has to wake the loop again.
        self._is_woken = False
        inbox = self._inbox
        for _ in range(len(inbox)):
            _, function, args = inbox.popleft()
            function(*args)

    def _refuse_posts(self) -> None:
        while True:
            try:
                waiter, _, _ = self._inbox.popleft()
            except IndexError:
                return
            if waiter is not None:
                waiter.fail(ClosedError("it was closed during the call"))


def _overlay(caller: contextvars.Context, loop: contextvars.Context) -> None:
    for variable, value in caller.items():
        # Keep the loop's own variables, such as the name of the async library that runs.
        if variable not in loop:
            variable.set(value)


async def in_thread(name: str, function: Callable[..., T], *args: Any) -> T:
    """Run a function in a new thread and wait for its result.

    If this is cancelled, the thread is abandoned. It is a daemon thread, unlike those of anyio, so
    it does not delay the interpreter's exit.

    Raises: the function's exception.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - raised in the caller
            failure = error
        except BaseException as error:  # noqa: BLE001 - a SystemExit would end the loop
            failure = RuntimeError(f"{name} raised {error!r}")
        if isinstance(failure, StopIteration):  # a future does not accept it
            failure = RuntimeError(f"{name} raised {failure!r}")
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            logger.debug("%s ended after its loop", name)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


# Guards `_current`. Calling threads and the loop hold it, always briefly.
_lock = threading.Lock()
_current: LoopThread | None = None
_of_parent: list[LoopThread] = []


def enter(key: object, close: Callable[[], None]) -> LoopThread:
    """Add a user to the process's loop thread, which is started if there is none.

    See `LoopThread.enter` for the arguments.
    """
    global _current
    with _lock:
        thread = _current
        if thread is None or thread.is_over:
            thread = LoopThread()
            thread.start()
            _current = thread
        thread.enter(key, close)
        return thread


def _after_fork_in_child() -> None:
    global _lock, _current
    # Another thread may have held the lock at the moment of the fork.
    _lock = threading.Lock()
    if _current is not None:
        # Keep it for ever: if the loop were garbage-collected, it would remove its descriptors
        # from the epoll set, which is shared with the parent.
        _of_parent.append(_current)
        _current = None


def _at_exit() -> None:
    thread = _current
    if thread is not None:
        thread.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
