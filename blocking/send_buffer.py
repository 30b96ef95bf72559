"""Delivery of a `send_soon`, and the buffer that limits how many messages are unconfirmed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from ..client.checks import process
from ..client.checks.misuse import knows_elsewhere
from ..client.checks.other_names import DELIVERY
from ..client.core.send_buffer import DeliveryState, UnconfirmedSends
from ..client.errors import ClosedError, ForkedError
from ..client.messages.message import Message, SendResult
from .loop_thread import Waiter, longest_wait_s

PART: Final = 4
"""A thread that waits for room resumes when this part (1/PART) of the buffer is free."""


@knows_elsewhere(DELIVERY)
class Delivery(DeliveryState[Exception]):
    """A message of `Producer.send_soon` and its outcome.

    Its `error` is a ClientError, unless a serializer or an interceptor raised something else.

    Attributes:
      message: as it was given to `send_soon`.
      size: bytes of the body that the buffer counts.
    """

    __slots__ = ("_buffer", "size")

    def __init__(self, message: Message, size: int, buffer: SendBuffer) -> None:
        # The fields of DeliveryState by hand: its __init__ would cost as much as all of these.
        self.message: Message = message
        self._result: SendResult | None = None
        self._error: Exception | None = None
        self._is_looked_at = False
        self.size: int = size
        self._buffer = buffer

    def result(self, timeout_s: float | None = None) -> SendResult:
        """Wait until the message is confirmed or given up.

        Args:
          timeout_s: seconds; None: as long as it takes, which is the time of its sending.

        Raises: TimeoutError: neither in time; ForkedError; and as `Producer.send`.
        """
        if not self.is_done:
            self._buffer.wait(self, timeout_s)
        return self._outcome()


class SendBuffer:
    """The unconfirmed messages of `send_soon`: threads wait for room, and for the outcome.

    Args:
      count_max: messages.
      size_max: bytes of bodies; one message alone may have more.
    """

    def __init__(self, count_max: int, size_max: int) -> None:
        self._pid = os.getpid()
        self._generation = process.generation()
        # Guards the fields below. A forked child must not use it: it may be locked there.
        self._condition = threading.Condition()
        self._unconfirmed: UnconfirmedSends[Exception] = UnconfirmedSends(count_max, size_max)
        self._under_way: set[Delivery] = set()
        self._waiters: dict[Delivery, list[Waiter[None]]] = {}
        # Waking a thread costs as much as sending several messages, so it finds room for these.
        self._free_count = max(count_max // PART, 1)
        self._is_wanted = False  # a thread waits, and was not notified since
        self._is_closed = False

    # For calling threads

    def enter(self, delivery: Delivery) -> None:
        """Wait for room, and take it.

        Raises: ClosedError.
        """
        unconfirmed, size = self._unconfirmed, delivery.size
        with self._condition:
            if not unconfirmed.has_room(size):
                free = self._free_count
                self._wait_until(lambda: self._is_closed or unconfirmed.has_room(size, free))
            if self._is_closed:
                raise ClosedError("the producer was closed meanwhile")
            self._under_way.add(delivery)
            unconfirmed.enter(size)

    def drain(self) -> None:
        """Wait until everything is confirmed or given up.

        Raises: UndeliveredError: some were given up, and their Delivery was not looked at.
        """
        with self._condition:
            self._wait_until(lambda: not self._under_way)
            self._unconfirmed.raise_failures()

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
        """Refuse new messages, and wake the threads that wait for room."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def give_up(self) -> None:
        """Give up all unconfirmed messages, with a ClosedError."""
        for delivery in list(self._under_way):
            self.leave(delivery, None, ClosedError("the producer was closed before the answer"))

    # For the loop's thread

    def leave(self, delivery: Delivery, result: SendResult | None, error: Exception | None) -> None:
        """Set the outcome of a message, and remove it; a second call has no effect."""
        unconfirmed = self._unconfirmed
        with self._condition:
            if delivery not in self._under_way:
                return
            self._under_way.remove(delivery)
            unconfirmed.leave(delivery, delivery.size, result, error)
            if self._waiters:
                for waiter in self._waiters.pop(delivery, ()):
                    waiter.set(None)
            if self._is_wanted and unconfirmed.has_room(0, self._free_count):
                # Notify once: more messages may leave before the thread runs.
                self._is_wanted = False
                self._condition.notify_all()

    def _wait_until(self, is_there: Callable[[], bool]) -> None:
        while not is_there():
            self._is_wanted = True
            self._condition.wait(longest_wait_s())
