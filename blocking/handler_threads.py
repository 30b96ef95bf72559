"""The threads in which a push consumer's handler runs."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable

from ..client.errors import ClosedError, ConfigurationError, HandlerTimeoutError
from ..client.push_options import RetryLater
from .loop_thread import WAIT_S
from .message_buffer import MessageBuffer
from .pushed_message import PushedMessage

logger = logging.getLogger(__name__)


class HandlerThreads:
    """Threads that take messages from a buffer and handle them.

    Lifecycle: `work` once. The thread that calls it looks after those who are late.

    Args:
      buffer: ends when the consumer is stopped.
      handler: may block.
      concurrency: threads.
      timeout_s: seconds that the handler may take for a message.
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
        # Guards what follows.
        self._condition = threading.Condition()
        self._present = 0
        # By thread, the oldest first: what it handles, and since when.
        self._busy: dict[int, tuple[PushedMessage, float]] = {}
        self._late: set[int] = set()
        self._is_over = False
        self._failure: BaseException | None = None

    def work(self) -> None:
        """Handle messages until the buffer ends, and all handlers have returned or are late.

        Raises: what a handler raised that is no Exception; KeyboardInterrupt.
        """
        self._present = self._concurrency
        self._buffer.on_end(self._look)
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
        """Wait for the next handler to be late; False: there is none to wait for."""
        with self._condition:
            is_over = self._is_over or self._buffer.is_over
            # Messages of those who are late come again; a handler that hangs is not waited for.
            if not self._present or (is_over and self._present == len(self._late)):
                return False
            now_s = time.monotonic()
            late = []
            wait_s = self._timeout_s
            for number, (message, start_s) in self._busy.items():
                left_s = start_s + self._timeout_s - now_s
                if left_s > 0:
                    wait_s = left_s
                    break
                if number not in self._late:
                    self._late.add(number)
                    late.append(message)
            if not late:
                self._condition.wait(min(wait_s, WAIT_S))
        for message in late:
            error = HandlerTimeoutError(message.message_id, self._timeout_s)
            logger.error("%s; it comes again", error)
            message._retry_soon()
        return True

    def _look(self) -> None:
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
                self._present -= 1
                self._late.discard(number)
                self._busy.pop(number, None)
                self._condition.notify_all()

    def _handle(self, number: int, message: PushedMessage) -> None:
        with self._condition:
            self._busy[number] = message, time.monotonic()
        delay_level: int | None = None
        try:
            outcome = self._handler(message)
            if inspect.iscoroutine(outcome):
                outcome.close()
                raise ConfigurationError("the handler is async; it is to be a plain function")
        except RetryLater as wish:
            delay_level = wish.delay_level
        except Exception:
            logger.exception("the handler of %s failed; it comes again", message)
            delay_level = 0
        with self._condition:
            del self._busy[number]
            is_late = number in self._late
            self._late.discard(number)
        if is_late:
            logger.warning("the handler of %s has returned, too late: it comes again", message)
        elif delay_level is None:
            message.ack()
        else:
            message.retry(delay_level)
