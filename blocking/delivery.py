"""What `send_soon` gives, and how much of it may be under way."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from ..client import process
from ..client.errors import (
    ClientError,
    ClosedError,
    ForkedError,
    MessageRefusedError,
    UndeliveredError,
)
from ..client.message import Message, SendResult
from .loop_thread import WAIT_S, Waiter

logger = logging.getLogger(__name__)

FAILED_MAX: Final = 1024
"""Deliveries that failed, and that nobody looked at, kept for `drain`; the rest is logged."""

PART: Final = 4
"""A thread that waited for room goes on when this part of the buffer is free: waking is dear."""


class Delivery:
    """A message on its way: what `Producer.send_soon` gives.

    Attributes:
      message: as it was given to `send_soon`.
    """

    __slots__ = ("_error", "_is_looked_at", "_result", "_size", "_window", "message")

    def __init__(self, message: Message, size: int, window: Window) -> None:
        self.message: Message = message
        self._size = size
        self._window = window
        self._result: SendResult | None = None
        self._error: Exception | None = None
        self._is_looked_at = False

    @property
    def is_done(self) -> bool:
        """Whether it was confirmed, or given up."""
        return self._result is not None or self._error is not None

    @property
    def error(self) -> Exception | None:
        """Why it was given up; None: it was not, or not yet.

        It is a ClientError, unless a serializer or an interceptor raised something else.
        """
        self._is_looked_at = True
        return self._error

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait until the message is confirmed or given up.

        Args:
          timeout_s: seconds; None: as long as it takes, which is the time of its sending.

        Raises: TimeoutError: neither in time; ForkedError; and as `Producer.send`.
        """
        if not self.is_done:
            self._window.wait(self, timeout_s)
        self._is_looked_at = True
        if self._error is not None:
            raise self._error
        assert self._result is not None  # done
        return self._result


class Window:
    """The messages that `send_soon` took and that are under way: so many, and no more.

    Args:
      count_max: messages.
      size_max: bytes of bodies; one message alone may have more.
    """

    def __init__(self, count_max: int, size_max: int) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self._pid = os.getpid()
        self._generation = process.generation()
        # Guards what follows; in a forked child it is not touched.
        self._condition = threading.Condition()
        self._under_way: set[Delivery] = set()
        self._size = 0
        self._waiters: dict[Delivery, list[Waiter[None]]] = {}
        self._failed: deque[Delivery] = deque()
        self._wanting = 0
        self._is_closed = False

    # For calling threads

    def enter(self, delivery: Delivery) -> None:
        """Wait for room, and take it.

        Raises: ClosedError.
        """
        size = delivery._size
        with self._condition:
            if self._under_way and (
                len(self._under_way) >= self._count_max or self._size + size > self._size_max
            ):
                self._wait_until(lambda: self._is_closed or self._has_room(size))
            if self._is_closed:
                raise ClosedError("the producer was closed meanwhile")
            self._under_way.add(delivery)
            self._size += size

    def drain(self) -> None:
        """Wait until everything is confirmed or given up.

        Raises: UndeliveredError: some were given up, and nobody looked at their Delivery.
        """
        with self._condition:
            self._wait_until(lambda: not self._under_way)
            failed, self._failed = self._failed, deque()
        errors = [_client_error(d._error) for d in failed if not d._is_looked_at]
        if errors:
            raise UndeliveredError(errors)

    def wait(self, delivery: Delivery, timeout_s: float | None) -> None:
        """Wait until it is confirmed or given up.

        Raises: TimeoutError; ForkedError.
        """
        if process.generation() != self._generation:
            raise ForkedError(
                f"this message was sent by process {self._pid}; what becomes of it is known there"
            )
        waiter: Waiter[None] = Waiter()
        with self._condition:
            if delivery.is_done:
                return
            self._waiters.setdefault(delivery, []).append(waiter)
        if not waiter.wait(timeout_s) and not delivery.is_done:
            raise TimeoutError(f"the message was not confirmed within {timeout_s:.3g} s")

    def close(self) -> None:
        """Let nothing in any more."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def give_up(self) -> None:
        """What is still under way will not be confirmed."""
        for delivery in list(self._under_way):
            self.leave(delivery, None, ClosedError("the producer was closed before the answer"))

    # For the loop's thread

    def leave(self, delivery: Delivery, result: SendResult | None, error: Exception | None) -> None:
        """It is confirmed or given up; a second time has no effect."""
        with self._condition:
            if delivery not in self._under_way:
                return
            self._under_way.remove(delivery)
            self._size -= delivery._size
            delivery._result, delivery._error = result, error
            if error is not None:
                self._note_failed(delivery)
            if self._waiters:
                for waiter in self._waiters.pop(delivery, ()):
                    waiter.set(None)
            if self._wanting and self._has_room(0):
                self._condition.notify_all()

    def _has_room(self, size: int) -> bool:
        """Whether so many bytes, and a part of all messages, would go in."""
        return not self._under_way or (
            len(self._under_way) <= self._count_max - self._count_max // PART
            and self._size + size <= self._size_max
        )

    def _wait_until(self, is_there: Callable[[], bool]) -> None:
        self._wanting += 1
        try:
            while not is_there():
                self._condition.wait(WAIT_S)
        finally:
            self._wanting -= 1

    def _note_failed(self, delivery: Delivery) -> None:
        self._failed.append(delivery)
        if len(self._failed) > FAILED_MAX:
            oldest = self._failed.popleft()
            if not oldest._is_looked_at:
                logger.error("a message was not delivered, and nobody asked: %s", oldest._error)


def _client_error(error: Exception | None) -> ClientError:
    if isinstance(error, ClientError):
        return error
    wrapped = MessageRefusedError(f"it could not be prepared: {error!r}")
    wrapped.__cause__ = error
    return wrapped
