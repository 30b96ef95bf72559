"""Unconfirmed messages of `send_soon`: their limits, and the outcome of each.

Java counterpart: backPressureForAsyncSendNum and ...Size of DefaultMQProducer, SendCallback. Pure.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, Generic, TypeVar

from ..checks.misuse import Presentable
from ..errors import ClientError, MessageRefusedError, UndeliveredError
from ..messages.message import Message, SendResult

logger = logging.getLogger(__name__)

ErrorT = TypeVar("ErrorT", bound=Exception)

FAILED_MAX: Final = 1024
"""Number of failures that are kept for `drain`; if there are more, the oldest is logged."""


class DeliveryState(Presentable, Generic[ErrorT]):
    """A message of `send_soon` and its outcome; subclasses add a way to wait for it.

    Attributes:
      message: the message given to `send_soon`.
    """

    __slots__ = ("_error", "_is_looked_at", "_result", "message")

    def __init__(self, message: Message) -> None:
        self.message: Message = message
        self._result: SendResult | None = None
        self._error: ErrorT | None = None
        self._is_looked_at = False

    @property
    def is_done(self) -> bool:
        """Whether the message was confirmed or given up."""
        return self._result is not None or self._error is not None

    @property
    def error(self) -> ErrorT | None:
        """The reason why the message was given up; None if it was not, or is not done yet."""
        self._is_looked_at = True
        return self._error

    @property
    def is_looked_at(self) -> bool:
        """Whether the program waited for the outcome or read `error`: then `drain` skips it."""
        return self._is_looked_at

    def look_at(self) -> None:
        """Mark the outcome as looked at, so that `drain` does not raise its error."""
        self._is_looked_at = True

    def settle(self, result: SendResult | None, error: ErrorT | None) -> None:
        """Set the outcome, confirmed (`result`) or given up (`error`); called once."""
        self._result, self._error = result, error

    def _outcome(self) -> SendResult:
        """The result of a message that is done. Raises: its error."""
        self._is_looked_at = True
        if self._error is not None:
            raise self._error
        assert self._result is not None  # done
        return self._result


class UnconfirmedSends(Generic[ErrorT]):
    """The number and size of unconfirmed messages, and failures that were not looked at.

    Args:
      count_max: largest number of messages.
      size_max: largest total size of their bodies, in bytes; a single message may be larger.

    Attributes:
      count: number of unconfirmed messages.
      size: total size of their bodies, in bytes.
    """

    def __init__(self, count_max: int, size_max: int) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self.count: int = 0
        self.size: int = 0
        self._failed: deque[DeliveryState[ErrorT]] = deque()

    def has_room(self, size: int, count: int = 1) -> bool:
        """Whether there is room for `count` messages, the first one with `size` bytes."""
        return not self.count or (
            self.count + count <= self._count_max and self.size + size <= self._size_max
        )

    def enter(self, size: int) -> None:
        """Add a message of `size` bytes; `leave` must be called once for each."""
        self.count += 1
        self.size += size

    def leave(
        self,
        delivery: DeliveryState[ErrorT],
        size: int,
        result: SendResult | None,
        error: ErrorT | None,
    ) -> None:
        """Remove a message that is confirmed or given up, and set its outcome."""
        self.count -= 1
        self.size -= size
        delivery.settle(result, error)
        if error is not None and not delivery.is_looked_at:
            self._keep(delivery)

    def _keep(self, delivery: DeliveryState[ErrorT]) -> None:
        failed = self._failed
        while failed and failed[0].is_looked_at:
            failed.popleft()
        failed.append(delivery)
        if len(failed) > FAILED_MAX:
            oldest = failed.popleft()
            if not oldest.is_looked_at:
                logger.error(
                    "a message was not delivered, and the program did not look at its Delivery: %s",
                    oldest.error,
                )

    def raise_failures(self) -> None:
        """Raise the failures that were not looked at; each is raised once.

        Raises: UndeliveredError: there are such failures.
        """
        failed = list(self._failed)
        self._failed.clear()
        errors = [delivery.error for delivery in failed if not delivery.is_looked_at]
        if errors:
            raise UndeliveredError([_client_error(error) for error in errors])


def _client_error(error: Exception | None) -> ClientError:
    if isinstance(error, ClientError):
        return error
    wrapped = MessageRefusedError(f"the message could not be prepared: {error!r}")
    wrapped.__cause__ = error
    return wrapped
