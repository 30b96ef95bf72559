"""The threads that run a push consumer's handler."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable

from ..client.errors import ClosedError, ConfigurationError, HandlerTimeoutError
from ..client.handler_result import check_result
from ..client.message import for_log
from ..client.push_options import RetryLater
from .loop_thread import longest_wait_s
from .message_buffer import MessageBuffer
from .pushed_message import PushedMessage

logger = logging.getLogger(__name__)


class HandlerThreads:
    """Threads that take messages from a buffer and call the handler with each.

    Lifecycle: call `work` once. Its calling thread watches for handlers that exceed their time.

    Args:
      buffer: holds the messages; it is closed when the consumer is stopped.
      handler: called in the threads; it may block.
      concurrency: number of threads.
      timeout_s: seconds that the handler may take for one message.
    """

    def __init__(
        self,
        buffer: MessageBuffer[PushedMessage],
        handler: Callable[[PushedMessage], object],
        concurrency: int,
        timeout_s: float,
    ) -> None:
        self._buffer = buffer
        self._handler = handler
        self._timeout_s = timeout_s
        self._concurrency = concurrency
        # Guards all attributes below.
        self._condition = threading.Condition()
        self._running_count = 0
        # By thread, oldest first: the message that it handles, and the time when it began.
        self._busy: dict[int, tuple[PushedMessage, float]] = {}
        self._late: set[int] = set()
        self._is_over = False
        self._failure: BaseException | None = None

    def work(self) -> None:
        """Handle messages until the buffer is closed and all handlers have returned or are late.

        Raises: KeyboardInterrupt, and any exception of a handler that is not an Exception.
        """
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
            self._is_over = True
            self._buffer.wake()
        if self._failure is not None:
            raise self._failure

    def _watch(self) -> bool:
        """Wait until a handler exceeds its time; returns False if there is nothing to wait for."""
        with self._condition:
            is_over = self._is_over or self._buffer.is_closed
            # Late handlers are not waited for: they may hang, and their messages come again.
            if not self._running_count or (is_over and self._running_count == len(self._late)):
                return False
            now_s = time.monotonic()
            late = []
            wait_s = self._timeout_s
            # `_busy` is in order of time, so the first handler within its time ends the search.
            for number, (message, start_s) in self._busy.items():
                left_s = start_s + self._timeout_s - now_s
                if left_s > 0:
                    wait_s = left_s
                    break
                if number not in self._late:
                    self._late.add(number)
                    late.append(message)
            if not late:
                self._condition.wait(min(wait_s, longest_wait_s()))
        for message in late:
            error = HandlerTimeoutError(message.message_id, self._timeout_s)
            logger.error("%s; the message will be redelivered", error)
            message._retry_soon(error)
        return True

    def _wake_watcher(self) -> None:
        with self._condition:
            self._condition.notify_all()

    # In the handler threads

    def _run(self, number: int) -> None:
        try:
            while True:
                try:
                    message = self._buffer.take(None, lambda: self._is_over)
                except ClosedError:
                    return
                if message is None:
                    return
                self._handle(number, message)
        except BaseException as error:  # noqa: BLE001 - raised by `work`
            self._failure = error
            self._is_over = True
            self._buffer.wake()
        finally:
            with self._condition:
                self._running_count -= 1
                self._late.discard(number)
                self._busy.pop(number, None)
                self._condition.notify_all()

    def _handle(self, number: int, message: PushedMessage) -> None:
        with self._condition:
            self._busy[number] = message, time.monotonic()
        delay_level: int | None = None
        cause: Exception | None = None
        try:
            result = self._handler(message)
            if inspect.iscoroutine(result):
                result.close()
                raise ConfigurationError("the handler is async; pass a plain function")
            check_result(result)
        except RetryLater as retry:
            delay_level = retry.delay_level
        except Exception as error:
            logger.exception("the handler failed for %s; it will be redelivered", for_log(message))
            delay_level, cause = 0, error
        with self._condition:
            del self._busy[number]
            is_late = number in self._late
            self._late.discard(number)
        if is_late:
            # The watcher has asked for its redelivery already.
            text = "the handler returned too late for %s; it will be redelivered"
            logger.warning(text, for_log(message))
        elif delay_level is None:
            message.ack()
        else:
            message.retry(delay_level, cause=cause)
