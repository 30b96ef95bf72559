"""The task that a client's background tasks run in, and the lifecycle methods built on it.

The task belongs to the event loop and not to the task that opens the client. So any task of the
same loop may open, use and close it: a fixture of pytest-asyncio, the hooks of a web framework, a
class with `start` and `stop`. A cancelled caller leaves the background tasks alone until it closes
the client, so that it can still commit its offsets.

Java counterpart: none.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import anyio
import anyio.abc

from ..checks.misuse import Presentable, wrong_with
from ..errors import WrongLoopError
from .task_group import AsyncFunction, TaskGroup

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 5.0
"""Longest wait for the background tasks when a client is closed; they are cancelled before."""


class TaskHost:
    """A task group in a separate task.

    Lifecycle: created in a running event loop, then `open` and `close` once each.

    Attributes:
      here: returns a value that identifies the running event loop.
      owner: the value of the loop that it was created in; None once its tasks end.
    """

    def __init__(self) -> None:
        self.group: TaskGroup
        self._started = anyio.Event()
        self._ended = anyio.Event()
        self._wanted = anyio.Event()
        self._from_callbacks: deque[tuple[AsyncFunction, tuple[Any, ...]]] = deque()
        self._is_over = False
        self._thread = threading.current_thread().name
        self._task: asyncio.Task[None] | None = None
        trio = sys.modules.get("trio")
        self._trio = trio if trio is not None and trio.lowlevel.in_trio_run() else None
        # The cheapest function whose result differs in every other loop that still runs: a thread
        # runs one trio loop at a time, and under asyncio programs may run one after another.
        self.here: Callable[[], object] = (
            threading.get_ident if self._trio else asyncio._get_running_loop
        )
        self.owner: object = self.here()

    @property
    def is_over(self) -> bool:
        """Whether its tasks end or have ended: by `close`, or because the event loop ends."""
        return self._is_over

    def check_loop(self, name: str) -> None:
        """Check that the caller runs in the event loop that opened the client.

        Raises: WrongLoopError: it runs in another one, or in none.
        """
        if self.here() != self.owner:
            raise WrongLoopError(
                f"{name} was opened in an event loop of the thread {self._thread}, and cannot be"
                f" used in another loop (here: in the thread {threading.current_thread().name}):"
                " open one in each loop, or use trocket.blocking, whose objects all threads share"
            )

    async def open(self) -> None:
        """Start the task."""
        if self._trio is not None:
            context = contextvars.copy_context()
            self._trio.lowlevel.spawn_system_task(self._run, name="trocket", context=context)
        else:
            # The loop has only a weak reference to it.
            self._task = asyncio.get_running_loop().create_task(self._run(), name="trocket")
        await self._started.wait()

    async def _run(self) -> None:
        try:
            async with TaskGroup() as self.group:
                self._started.set()
                try:
                    await self._start_from_callbacks()
                finally:
                    self._is_over = True
                    self.owner = None
        finally:
            self._ended.set()

    def start_soon(self, function: AsyncFunction, *args: Any) -> None:
        """Run an async function in the group. Any code of the event loop may call this."""
        if self._trio is not None or asyncio.current_task() is not None:
            self.group.start_soon(function, *args)
        else:
            # Answers arrive in a callback of asyncio's loop, where anyio starts no tasks: it may
            # recognize the event loop by the running task alone.
            self._from_callbacks.append((function, args))
            self._wanted.set()

    async def _start_from_callbacks(self) -> None:
        while True:
            while self._from_callbacks:
                function, args = self._from_callbacks.popleft()
                self.group.start_soon(function, *args)
            self._wanted = anyio.Event()
            await self._wanted.wait()

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended, for at most CLOSE_TIMEOUT_S."""
        self.group.cancel_scope.cancel()
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            await self._ended.wait()


async def guarded(function: AsyncFunction, args: tuple[Any, ...]) -> None:
    """Run an async function; its error, a bug in this package, is logged: other tasks continue."""
    try:
        await function(*args)
    except Exception:
        logger.exception("a background task of the client failed: %s", function)


class Openable(Presentable):
    """Base of the objects that are used by `async with`, or by `open` and `close`."""

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise wrong_with(self, "async with")

        def __exit__(self, *exit_info: object) -> None:
            """Never called: `with` looks for both before it calls one."""

    async def open(self) -> Self:
        """Connect, and return this object. Prefer `async with`, which also closes it.

        Use it where one function opens and another one closes: any task of the event loop may
        call `close`.

        Raises: ClosedError: it was opened before; and the errors of `async with`.
        """
        return await self.__aenter__()

    async def close(self) -> None:
        """Do what the end of `async with` does; a second time, nothing.

        Raises: WrongLoopError: it was opened in another event loop.
        """
        self._check_loop()
        await self.__aexit__(None, None, None)

    def _check_loop(self) -> None:
        """Raises: WrongLoopError: it is open in another event loop."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        raise NotImplementedError
