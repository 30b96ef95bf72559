"""Supervision: exceptions that end the process, and recovery from all others.

An unexpected error is a bug or a failure of the machine. It ends the callback, connection, request
or round in which it happened; it is logged with its traceback, and the process continues to serve.
`ENDS_PROCESS` lists the exceptions that are raised again; docs/operations.md has the same list for
operators.

Java counterpart: common/ServiceThread.java and ScheduledExecutorService with catch Throwable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

import trio

ENDS_PROCESS: Final[Mapping[type[BaseException], str]] = {
    KeyboardInterrupt: "the operator stops the process",
    SystemExit: "the program stops the process",
    GeneratorExit: "the interpreter closes a coroutine",
    trio.Cancelled: "the owner of the task stops it",
    trio.TrioInternalError: "the event loop itself is broken: no task can be trusted to run",
}
"""Exceptions that are always raised again, and why. So is every exception that is not an
`Exception`. Errors of a start (configuration, address, data folder) end the process, too: they come
before anything is supervised."""

FAILURE_INTERVAL_S: Final = 60.0
"""Seconds between two log lines about the same failure. A failure that repeats each millisecond
would fill the disk that the store needs."""

FAILURES_REMEMBERED_MAX: Final = 256
"""Different failures that one log distinguishes; the messages may depend on input from peers."""

PAUSE_S_MIN: Final = 0.1
"""Pause before the first restart of a failed service."""

PAUSE_S_MAX: Final = 10.0
"""The pause doubles up to this: a lasting failure costs little, and its end is noticed soon."""

WELL_S: Final = 60.0
"""A service that ran this long without a failure is restarted after the shortest pause."""

T = TypeVar("T")
Fatal = tuple[type[BaseException], ...]


def split_fatal(
    error: BaseException, ends: Fatal = ()
) -> tuple[BaseException | None, BaseException | None]:
    """Split an error, or a group of errors, by `ENDS_PROCESS`.

    Args:
      ends: types that end this task beside those of `ENDS_PROCESS`.

    Returns: the part to raise again, and the part to log; None for a part without errors.
    """

    def is_fatal(each: BaseException) -> bool:
        return isinstance(each, (*ENDS_PROCESS, *ends)) or not isinstance(each, Exception)

    if isinstance(error, BaseExceptionGroup):
        return error.split(lambda each: not isinstance(each, BaseExceptionGroup) and is_fatal(each))
    return (error, None) if is_fatal(error) else (None, error)


class FailureLog:
    """Logs unexpected errors with their tracebacks, each kind at most once a minute.

    Args:
      logger: logs the lines.
      now_s: a monotonic clock, seconds.
    """

    def __init__(
        self, logger: logging.Logger, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._now_s = now_s
        self._seen: dict[tuple[str, type[BaseException]], tuple[float, int]] = {}

    def note(self, what: str, meaning: str, error: BaseException) -> None:
        """Log an error.

        Args:
          what: the part of the server that failed, such as "the registration".
          meaning: what the failure costs, and what happens next.
        """
        key, now_s = (what, type(error)), self._now_s()
        logged_s, count = self._seen.pop(key, (-FAILURE_INTERVAL_S, 0))
        if now_s - logged_s < FAILURE_INTERVAL_S:
            self._seen[key] = logged_s, count + 1
            return
        if len(self._seen) >= FAILURES_REMEMBERED_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = now_s, 0
        more = f" ({count} more of these since the last line)" if count else ""
        self._logger.error(
            "%(what)s failed with an error that is not expected, please report it: %(kind)s: "
            "%(error)s. %(meaning)s%(more)s",
            {
                "what": what,
                "kind": type(error).__name__,
                "error": error,
                "meaning": meaning,
                "more": more,
            },
            exc_info=error,
        )


@contextmanager
def contained(failures: FailureLog, what: str, meaning: str) -> Iterator[None]:
    """Log an unexpected error of the block and continue after it; see `FailureLog.note`."""
    try:
        yield
    except BaseException as error:
        fatal, other = split_fatal(error)
        if other is None:
            raise
        failures.note(what, meaning, other)
        if fatal is not None:
            raise fatal from None


def call_each(
    calls: Iterable[Callable[[], object]], failures: FailureLog, what: str, meaning: str
) -> None:
    """Call all functions; a failure is logged, and the others are called."""
    for call in calls:
        with contained(failures, what, meaning):
            call()


def notify_each(
    calls: Iterable[Callable[[T], object]], value: T, failures: FailureLog, what: str, meaning: str
) -> None:
    """`call_each` with a value, in the cheap form for every turn."""
    for call in calls:
        try:
            call(value)
        except Exception as error:  # noqa: BLE001 - the others are called
            failures.note(what, meaning, error)


class Supervisor:
    """Starts services in a nursery, and restarts each after an unexpected error.

    A service must be restartable: its `run` begins from its object's state.

    Args:
      nursery: owns the services.
      logger: where failures are logged.
      ends: types that end the process beside those of `ENDS_PROCESS`.
    """

    def __init__(self, nursery: trio.Nursery, logger: logging.Logger, *, ends: Fatal = ()) -> None:
        self._nursery = nursery
        self._failures = FailureLog(logger)
        self._ends = ends

    def start_soon(self, what: str, run: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run a service until it returns.

        Args:
          what: names it in the log, such as "the registration".
          run: its async function.
          args: of `run`.
        """
        self._nursery.start_soon(self._supervise, what, run, args, {})

    async def start(self, what: str, run: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run a service that reports its start (trio's `task_status`), and wait for that.

        Raises: the exception of `run` before it has started.
        """
        await self._nursery.start(self._start, what, run, args)

    def every(self, what: str, interval_s: float, act: Callable[[], object]) -> None:
        """Call `act` at intervals.

        Args:
          interval_s: seconds between two calls.
          act: may be an async function.
        """
        self.start_soon(what, _every, interval_s, act)

    async def _start(
        self,
        what: str,
        run: Callable[..., Awaitable[object]],
        args: tuple[object, ...],
        *,
        task_status: trio.TaskStatus[object],
    ) -> None:
        status = _Status(task_status)
        await self._supervise(what, run, args, {"task_status": status}, status)

    async def _supervise(
        self,
        what: str,
        run: Callable[..., Awaitable[object]],
        args: tuple[object, ...],
        options: Mapping[str, object],
        status: _Status | None = None,
    ) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            began_s = trio.current_time()
            try:
                await run(*args, **options)
            except BaseException as error:
                fatal, other = split_fatal(error, self._ends)
                if other is None or (status is not None and not status.has_started):
                    raise
                if trio.current_time() - began_s >= WELL_S:
                    pause_s = PAUSE_S_MIN
                self._failures.note(what, f"It goes on in {pause_s:g} s", other)
                if fatal is not None:
                    raise fatal from None
            else:
                return
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


class _Status:
    """A service's task status; a restarted service may call `started` again."""

    def __init__(self, status: trio.TaskStatus[object]) -> None:
        self.has_started = False
        self._status = status

    def started(self, value: object = None) -> None:
        if not self.has_started:
            self.has_started = True
            self._status.started(value)


async def _every(interval_s: float, act: Callable[[], object]) -> None:
    while True:
        await trio.sleep(interval_s)
        done = act()
        if isinstance(done, Awaitable):
            await done
