"""One `run` of a push consumer: the tasks that call its handlers, and how they end.

The tasks belong to the event loop and not to the caller of `run`, so that `run` can return at its
time limit although a handler does not end: an async function may suppress its cancellation.

Java counterpart: ConsumeMessageConcurrentlyService.shutdown with awaitTerminateMillis.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from math import inf
from typing import Final

import anyio

from ..connection.client import Client
from ..errors import ClosedError
from ..messages.message import ReceivedMessage, for_log
from ..tasks.loop_call import LoopCall
from ..tasks.task_host import TaskHost
from .handler_thread import HandlerThread
from .handling import Handling
from .pushed_message import PushedMessage

logger = logging.getLogger(__name__)

CANCEL_S: Final = 1.0
"""Time for cancelled handlers to end, for example in `finally`; then they are left behind."""
NAMES_MAX: Final = 10
"""Messages that are named in the log when handlers are cut; the others are counted."""

_worker: ContextVar[_Worker | None] = ContextVar("trocket_handler", default=None)


class HandlerRun:
    """Calls handlers with the messages of a consumer until it is stopped.

    Lifecycle: `work` once; `stop` and `wait_ended` meanwhile.

    Args:
      client: an open client.
      handling: calls the handlers.
      next_messages: waits for the next messages; raises ClosedError when the consumer is stopped.
      concurrency: number of handlers at a time.
      loop_call: calls back into the event loop from their threads.
    """

    def __init__(
        self,
        client: Client,
        handling: Handling,
        next_messages: Callable[[], Awaitable[Sequence[PushedMessage]]],
        concurrency: int,
        loop_call: LoopCall,
    ) -> None:
        self._client = client
        self._handling = handling
        self._next_messages = next_messages
        self._workers = [
            _Worker(HandlerThread(f"trocket-handler-{number}", loop_call))
            for number in range(concurrency)
        ]
        self._running = 0
        self._due_s = inf
        self._limit_s = 0.0
        self._stopped = anyio.Event()
        self._ended = anyio.Event()
        self._tasks = TaskHost()
        self._failure: BaseException | None = None

    async def work(self) -> None:
        """Handle messages until the consumer is stopped, and all handlers have ended or are cut.

        If it is cancelled, so are the handlers; their messages come again, to this consumer if it
        goes on.

        Raises: an exception of a handler that is not an Exception.
        """
        await self._tasks.open()
        for worker in self._workers:
            self._tasks.start_soon(self._run, worker)
            self._running += 1
        self._tasks.start_soon(self._watch)
        try:
            await self._ended.wait()
        finally:
            if self._running and not self._ended.is_set():
                cut = self._cut("run was cancelled")
                await self._cancel()
                self._put_back(cut)
            self._tasks.group.cancel_scope.cancel()
            for worker in self._workers:
                worker.thread.end()
        if self._failure is not None:
            raise self._failure

    def stop(self, timeout_s: float) -> None:
        """Cut handlers that have not ended by then; a shorter time replaces a longer one.

        Args:
          timeout_s: seconds, >= 0.
        """
        due_s = self._client.now_s() + timeout_s
        if due_s < self._due_s:
            self._due_s, self._limit_s = due_s, timeout_s
        self._stopped.set()
        for worker in self._workers:
            if worker.is_late:
                worker.scope.cancel()

    async def wait_ended(self) -> None:
        """Wait until all handlers have ended or are cut; for one of them, return at once."""
        if _worker.get() not in self._workers:
            await self._ended.wait()

    async def _watch(self) -> None:
        await self._stopped.wait()
        while (left_s := self._due_s - self._client.now_s()) > 0:
            self._stopped = anyio.Event()
            with anyio.move_on_after(left_s):
                await self._stopped.wait()
        self._cut(exceeded(self._limit_s))
        await self._cancel()
        self._ended.set()

    def _cut(self, reason: str) -> list[PushedMessage]:
        """Take the messages from their handlers, log which they are, and return them."""
        cut = []
        for worker in self._workers:
            for message in worker.messages:
                if not message.is_settled:
                    message._give_up()
                    cut.append(message)
        if cut:
            log_cut(cut, reason)
        return cut

    def _put_back(self, cut: Sequence[PushedMessage]) -> None:
        """Have messages delivered again whose handlers have ended; a late one still has its own."""
        ids = {id(message) for message in cut}
        for worker in self._workers:
            if self._ended.is_set() and not worker.thread.is_busy:
                for message in worker.messages:
                    if id(message) in ids:
                        message._put_back()

    async def _cancel(self) -> None:
        """Cancel the handlers, and wait a little for their end."""
        for worker in self._workers:
            worker.scope.cancel()
        with anyio.move_on_after(CANCEL_S, shield=True):
            await self._ended.wait()

    async def _run(self, worker: _Worker) -> None:
        _worker.set(worker)
        try:
            with worker.scope:
                await self._handle_all(worker)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - raised by `work`
            self._failure = self._failure or error
            for each in self._workers:
                each.scope.cancel()
        finally:
            self._running -= 1
            if not self._running:
                self._ended.set()

    async def _handle_all(self, worker: _Worker) -> None:
        while True:
            try:
                worker.messages = await self._next_messages()
            except ClosedError:
                return
            await self._handling.handle(worker.messages, worker.thread)
            worker.messages = ()
            if worker.thread.is_busy:
                # It exceeded its time. There are never more threads than `concurrency`.
                worker.is_late = True
                if self._stopped.is_set() or self._due_s < inf:
                    return
                await worker.thread.wait_idle()
                worker.is_late = False


class _Worker:
    """A task that calls handlers, one at a time.

    Attributes:
      thread: for plain handlers.
      scope: cancels it.
      messages: those that its handler has.
      is_late: its thread still runs a handler that has exceeded its time.
    """

    def __init__(self, thread: HandlerThread) -> None:
        self.thread = thread
        self.scope = anyio.CancelScope()
        self.messages: Sequence[PushedMessage] = ()
        self.is_late = False


def exceeded(limit_s: float) -> str:
    """The reason for which handlers are cut at a time limit, in seconds, and what to do."""
    return (
        f"their handlers had not returned within {limit_s:.3g} s. Give `stop` a longer timeout_s,"
        " or the consumer a longer close_timeout_s, if handlers may take that long"
    )


def log_cut(messages: Sequence[ReceivedMessage], reason: str) -> None:
    """Log for which messages handlers were not waited for, and why."""
    named = ", ".join([for_log(message) for message in messages[:NAMES_MAX]])
    more = f" and {len(messages) - NAMES_MAX} more" if len(messages) > NAMES_MAX else ""
    logger.warning(
        "stopped without %d messages, which are not acknowledged, and are redelivered: %s%s: %s",
        len(messages),
        named,
        more,
        reason,
    )
