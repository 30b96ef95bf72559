"""The one background thread with an event loop that all blocking objects of a process share.

It starts when the first object is opened, and ends when the last one is closed. It is a daemon: an
object that was not closed does not keep the interpreter alive. When the interpreter ends, what is
still open is closed, for at most EXIT_TIMEOUT_S.

Calling threads hand work over by `post`: they append to a deque and wake the loop, once for all
that gathers until it looks. They wait on bare locks (`Waiter`), which is what Python has cheapest.

A process that is forked off has no such thread, whatever its parent had; the first object that is
opened there starts one.

asyncio is used by name, as it comes with Python, and no user sees which loop it is.
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
"""How long the end of the interpreter may wait for objects that were not closed."""

WAIT_S: Final = 0.1 if sys.platform == "win32" else threading.TIMEOUT_MAX
"""Longest wait of a thread at one go: on Windows Ctrl-C does not break into a wait for a lock."""

Post = tuple["Waiter[Any] | None", Callable[..., object], tuple[Any, ...]]


class Waiter(Generic[T]):
    """Waits in one thread for what another one sets, once.

    Attributes:
      task: what is waited for, if it is a task of the loop.
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
        """Give the result to the thread that waits."""
        if not self.is_set:
            self.is_set = True
            self._result = result
            self._lock.release()

    def fail(self, error: BaseException) -> None:
        """Raise the error in the thread that waits."""
        if not self.is_set:
            self.is_set = True
            self._error = error
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for `set` or `fail`; False: neither came in time.

        Raises: KeyboardInterrupt, or what else a signal handler raises.
        """
        return acquire(self._lock, timeout_s)

    def cancel(self) -> None:
        """Cancel the task that is waited for; to be called in the loop."""
        if self.task is not None:
            self.task.cancel()

    def take(self) -> T:
        """The result, after `wait`.

        Raises: the error.
        """
        error, self._error = self._error, None
        if error is None:
            result: T = self._result  # type: ignore[assignment]
            return result
        try:
            raise error
        finally:
            # Its traceback holds this frame: nothing shall go round in a circle.
            del error


def acquire(lock: threading.Lock, timeout_s: float | None) -> bool:
    """Acquire a lock that somebody else releases; Ctrl-C breaks in.

    Args:
      timeout_s: seconds; None: without end.
    """
    if sys.platform != "win32":
        if timeout_s is None:
            return lock.acquire()
        return lock.acquire(timeout=min(max(timeout_s, 0), WAIT_S))
    left_s = threading.TIMEOUT_MAX if timeout_s is None else max(timeout_s, 0)
    while not lock.acquire(timeout=min(left_s, WAIT_S)):
        left_s -= WAIT_S
        if left_s <= 0:
            return False
    return True


class LoopThread:
    """A thread that runs an asyncio loop.

    Lifecycle: `start`; every `enter` has one `leave`, and the last of them ends it.

    Attributes:
      is_over: it has ended, or is about to.
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
        """Run the loop; it takes posts when this returns."""
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
        """Call a function in the loop's thread, soon, and in the order of the posts.

        Args:
          function: returns at once, and does not raise.
          waiter: fails with ClosedError if the loop ends before.
        """
        self._inbox.append((waiter, function, args))
        if not self._is_woken:
            try:
                self._is_woken = True
                with suppress(RuntimeError):  # the loop is closed: refused below, or there
                    self._loop.call_soon_threadsafe(self._take_posts, context=self._context)
            except BaseException:
                # Ctrl-C in between: the next post wakes the loop, which would sleep on otherwise.
                self._is_woken = False
                raise
        if self._is_refusing:
            self._refuse_posts()

    def spawn(
        self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context | None = None
    ) -> asyncio.Task[None]:
        """A task in the loop; to be called there. The caller keeps it.

        Args:
          context: see `context_for`; None: the loop's.
        """
        if context is None:
            context = self._context.copy()
        return self._loop.create_task(coroutine, context=context)

    def context_for(self) -> contextvars.Context:
        """The calling thread's context variables, and the loop's own ones, for a task.

        So an interceptor finds, say, the caller's tracing span.
        """
        context = self._context.copy()
        theirs = contextvars.copy_context()
        if theirs:
            context.run(_overlay, theirs, self._context)
        return context

    def enter(self, key: object, close: Callable[[], None]) -> None:
        """Take a user in; to be called with the module's lock.

        Args:
          close: called in the loop if the interpreter ends before `leave`.
        """
        self._closers[key] = close

    def leave(self, key: object) -> None:
        """Let a user go; to be called in the loop."""
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
        """Wait for its end; False: it did not come in time."""
        if not self.is_current:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def end(self) -> None:
        """Close what is open, and end; for the end of the interpreter."""
        names = [str(key) for key in list(self._closers)]
        if names:
            logger.warning("still open at the end of the program: %s; use `with`", "; ".join(names))
        for close in list(self._closers.values()):
            self.post(close)
        if not self.join(EXIT_TIMEOUT_S):
            logger.warning("not closed within %g s: %s", EXIT_TIMEOUT_S, "; ".join(names))
            self.post(self._stop.set)
            self.join(0.5)

    # In its own thread

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
        # Before the inbox is read: a post from now on wakes the loop again.
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
                waiter.fail(ClosedError("it was closed meanwhile"))


def _overlay(theirs: contextvars.Context, ours: contextvars.Context) -> None:
    for variable, value in theirs.items():
        # What the loop itself goes by (which async library runs) stays.
        if variable not in ours:
            variable.set(value)


async def in_thread(name: str, function: Callable[..., T], *args: Any) -> T:
    """Run a function in a new thread; if this is cancelled, the thread goes on alone.

    The thread is a daemon (those of anyio are not): it does not hold up the interpreter's end.

    Raises: what the function raises.
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
        except Exception as error:  # noqa: BLE001 - the caller gets it
            failure = error
        except BaseException as error:  # noqa: BLE001 - a SystemExit would end the loop
            failure = RuntimeError(f"{name} raised {error!r}")
        if isinstance(failure, StopIteration):  # no future takes one
            failure = RuntimeError(f"{name} raised {failure!r}")
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            logger.debug("%s ended after its loop", name)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


# The process's one. Held for moments only, by calling threads and by the loop.
_lock = threading.Lock()
_current: LoopThread | None = None
_forgotten: list[LoopThread] = []


def enter(key: object, close: Callable[[], None]) -> LoopThread:
    """The process's loop thread, started if there is none; see `LoopThread.enter`."""
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
    # Somebody may have held it at that moment.
    _lock = threading.Lock()
    if _current is not None:
        # For ever: were its loop collected here, it would take its descriptors out of the epoll
        # set, which is the parent's too.
        _forgotten.append(_current)
        _current = None


def _at_exit() -> None:
    thread = _current
    if thread is not None:
        thread.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
