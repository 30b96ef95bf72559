"""The threads that run a push consumer's handlers."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Generic, TypeVar

from ..client.errors import ClosedError, ConfigurationError, HandlerTimeoutError
from ..client.messages.message import for_log
from ..client.options.push_options import RetryLater
from ..client.pushing.handler_check import CheckedHandler, Handlers, check_outcome, check_result
from ..client.pushing.handler_run import exceeded, log_cut
from ..client.pushing.handling import acknowledge, log_failure, unsettled_count
from ..client.pushing.pushed_message import GIVEN_UP, InHandler
from ..client.pushing.pushed_message import PushedMessage as AsyncPushedMessage
from .loop_object import LoopObject
from .loop_thread import in_thread, longest_wait_s
from .message_buffer import MessageBuffer
from .pushed_message import PushedMessage, retry_all

logger = logging.getLogger(__name__)

T = TypeVar("T")


class HandlerThreads(Generic[T]):
    """Threads that take messages from a buffer and call the handlers with them.

    Lifecycle: call `work` once. Its calling thread watches for handlers that exceed their time.

    Args:
      buffer: holds the messages, or batches; it is closed when the consumer is stopped.
      messages_of: the messages of an item of the buffer, at least one.
      handlers: called in the threads with an item; they may block.
      concurrency: number of threads.
      timeout_s: seconds that a handler may take for one item.
      is_orderly: the messages of a batch are of one queue, in order.
    """

    def __init__(
        self,
        buffer: MessageBuffer[T],
        messages_of: Callable[[T], Sequence[PushedMessage]],
        handlers: Handlers,
        concurrency: int,
        timeout_s: float,
        *,
        is_orderly: bool,
    ) -> None:
        self._buffer = buffer
        self._messages_of = messages_of
        self._handlers = handlers
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        self._is_orderly = is_orderly
        # Guards all attributes below.
        self._condition = threading.Condition()
        self._running_count = 0
        # By thread, oldest first: the messages that it handles, and the time when it began.
        self._busy: dict[int, tuple[Sequence[PushedMessage], float]] = {}
        self._late: set[int] = set()
        self._is_over = False
        self._due_s = inf
        self._limit_s = inf
        self._failure: BaseException | None = None
        self._watching: int | None = None
        self._threads: set[int] = set()

    def work(self) -> None:
        """Handle messages until the buffer is closed and all handlers have returned or are late.

        Raises: KeyboardInterrupt, and any exception of a handler that is not an Exception.
        """
        self._watching = threading.get_ident()
        self._running_count = self._concurrency
        self._buffer.on_close(self._wake_watcher)
        try:
            for number in range(self._concurrency):
                threading.Thread(
                    target=self._run, args=(number,), name=f"trocket-handler-{number}", daemon=True
                ).start()
            while self._watch():
                pass
        finally:
            with self._condition:
                self._is_over = True
                self._condition.notify_all()
            self._buffer.wake()
        if self._failure is not None:
            raise self._failure

    def stop(self, timeout_s: float) -> None:
        """Cut handlers that have not returned by then; a shorter time replaces a longer one.

        It can be called in a signal handler.

        Args:
          timeout_s: seconds, >= 0.
        """
        with self._condition:
            due_s = time.monotonic() + timeout_s
            if due_s < self._due_s:
                self._due_s, self._limit_s = due_s, timeout_s
            self._condition.notify_all()

    def wait_ended(self) -> None:
        """Wait, after `stop`, until all handlers have returned or are cut.

        In one of their threads, return at once.
        """
        this = threading.get_ident()
        if this in self._threads:
            return
        if this == self._watching:  # a signal handler interrupted `work`
            while self._watch():
                pass
            return
        with self._condition:
            while not self._is_over:
                self._condition.wait(longest_wait_s())

    def _watch(self) -> bool:
        """Wait until a handler exceeds its time; returns False if there is nothing to wait for."""
        with self._condition:
            is_over = self._is_over or self._buffer.is_closed
            # Late handlers are not waited for: they may hang, and their messages come again.
            if not self._running_count or (is_over and self._running_count == len(self._late)):
                return False
            now_s = time.monotonic()
            if now_s >= self._due_s:
                self._cut()
                return False
            late: list[PushedMessage] = []
            wait_s = min(self._timeout_s, self._due_s - now_s)
            # `_busy` is in order of time, so the first handler within its time ends the search.
            for number, (messages, start_s) in self._busy.items():
                left_s = start_s + self._timeout_s - now_s
                if left_s > 0:
                    wait_s = min(wait_s, left_s)
                    break
                if number not in self._late:
                    self._late.add(number)
                    late += messages
            if not late:
                self._condition.wait(min(wait_s, longest_wait_s()))
        for message in late:
            error = HandlerTimeoutError(message.message_id, self._timeout_s)
            if message._give_up(error):
                logger.error("%s; the message will be redelivered", error)
        return True

    def _cut(self) -> None:
        """Take the messages from their handlers, and log which they are."""
        cut = [
            message
            for messages, _ in self._busy.values()
            for message in messages
            if message._give_up()
        ]
        if cut:
            log_cut(cut, exceeded(self._limit_s))

    def _wake_watcher(self) -> None:
        with self._condition:
            self._condition.notify_all()

    # In the handler threads

    def _run(self, number: int) -> None:
        self._threads.add(threading.get_ident())
        try:
            while True:
                try:
                    item = self._buffer.take(None, lambda: self._is_over)
                except ClosedError:
                    return
                if item is None:
                    return
                self._handle(number, item)
        except BaseException as error:  # noqa: BLE001 - raised by `work`
            self._failure = error
            self._is_over = True
            self._buffer.wake()
        finally:
            with self._condition:
                self._running_count -= 1
                self._late.discard(number)
                self._busy.pop(number, None)
                # A thread that starts later may get the same number.
                self._threads.discard(threading.get_ident())
                self._condition.notify_all()

    def _handle(self, number: int, item: T) -> None:
        messages = self._messages_of(item)
        with self._condition:
            self._busy[number] = messages, time.monotonic()
        delay_level: int | None = None
        cause: Exception | None = None
        try:
            with InHandler([message.inner for message in messages]):
                call_handler(self._handlers.find(messages[0].topic), item)
        except RetryLater as retry:
            delay_level = retry.delay_level
        except Exception as error:  # noqa: BLE001 - logged, and its messages are redelivered
            log_failure(messages, unsettled_count(messages), error)
            delay_level, cause = 0, error
        with self._condition:
            del self._busy[number]
            self._late.discard(number)
        late = [message for message in messages if message._settlement == GIVEN_UP]
        if late:
            # The watcher has asked for their redelivery already.
            text = "the handler returned too late for %s; it will be redelivered"
            logger.warning(text, for_log(late[0]))
        elif delay_level is None:
            acknowledge(messages, is_orderly=self._is_orderly)
        else:
            retry_all(messages, delay_level, cause, in_order=self._is_orderly)


def call_handler(handler: CheckedHandler, item: object) -> None:
    """Call a plain handler.

    Raises: its exception; ConfigurationError: what it returned does not run by itself.
    """
    outcome = handler.function(item)
    if inspect.iscoroutine(outcome):
        outcome.close()
        raise ConfigurationError(f"the handler {handler.name} is async; pass a plain function")
    check_outcome(outcome, handler.name)
    check_result(outcome)


class DirectCall:
    """Calls a handler with a message that an administrator sends (CONSUME_MESSAGE_DIRECTLY).

    Args:
      handlers: of the consumer's `run`.
      loop_object: the consumer in the loop.
      is_batch: they take lists of messages.
    """

    def __init__(self, handlers: Handlers, loop_object: LoopObject, *, is_batch: bool) -> None:
        self._handlers = handlers
        self._loop_object = loop_object
        self._is_batch = is_batch

    async def __call__(self, inner: AsyncPushedMessage) -> None:
        """Call it in a new thread.

        Raises: its exception.
        """
        message = PushedMessage(inner, self._loop_object)
        handler = self._handlers.find(message.topic)
        item = [message] if self._is_batch else message
        await in_thread("trocket-handler", call_handler, handler, item)
