"""Messages that `send_soon` took and that are not confirmed yet: how many may be, how each ends.

Java counterpart: backPressureForAsyncSendNum and ...Size of DefaultMQProducer, SendCallback. Pure.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final, Generic, TypeVar

from ..errors import ClientError, MessageRefusedError, UndeliveredError
from ..message import Message, SendResult

logger = logging.getLogger(__name__)

ErrorT = TypeVar("ErrorT", bound=Exception)

FAILED_MAX: Final = 1024
"""Failures that are kept for `drain`, the latest ones; older ones are logged."""


class DeliveryState(Generic[ErrorT]):
    """A message on its way, and how that ended; each kind of producer adds how one waits for it.

    Attributes:
      message: as it was given to `send_soon`.
    """

    __slots__ = ("_error", "_is_looked_at", "_result", "message")

    def __init__(self, message: Message) -> None:
        self.message: Message = message
        self._result: SendResult | None = None
        self._error: ErrorT | None = None
        self._is_looked_at = False

    @property
    def is_done(self) -> bool:
        """Whether it was confirmed, or given up."""
        return self._result is not None or self._error is not None

    @property
    def error(self) -> ErrorT | None:
        """Why it was given up; None: it was not, or not yet."""
        self._is_looked_at = True
        return self._error

    @property
    def is_looked_at(self) -> bool:
        """Whether the program waited for it, or asked why it was given up."""
        return self._is_looked_at

    def look_at(self) -> None:
        """Leave its failure to the program that asked for it: `drain` does not raise it."""
        self._is_looked_at = True

    def settle(self, result: SendResult | None, error: ErrorT | None) -> None:
        """Note that it is confirmed (`result`) or given up (`error`): once, by the producer."""
        self._result, self._error = result, error

    def _outcome(self) -> SendResult:
        """The result, when it is done. Raises: the error."""
        self._is_looked_at = True
        if self._error is not None:
            raise self._error
        assert self._result is not None  # done
        return self._result


class InFlight(Generic[ErrorT]):
    """How many messages are under way, and which failed without the program's notice.

    Args:
      count_max: messages.
      size_max: bytes of bodies; one message alone may have more.
    """

    def __init__(self, count_max: int, size_max: int) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self.count: int = 0
        self.size: int = 0
        self._failed: deque[DeliveryState[ErrorT]] = deque()

    def has_room(self, size: int, count: int = 1) -> bool:
        """Whether `count` messages fit in, the first of them with `size` bytes."""
        return not self.count or (
            self.count + count <= self._count_max and self.size + size <= self._size_max
        )

    def enter(self, size: int) -> None:
        """Count a message of `size` bytes; `leave` is called once for each."""
        self.count += 1
        self.size += size

    def leave(
        self,
        delivery: DeliveryState[ErrorT],
        size: int,
        result: SendResult | None,
        error: ErrorT | None,
    ) -> None:
        """Settle a message that is confirmed or given up."""
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
                    "a message was not delivered, and the program never asked: %s", oldest.error
                )

    def raise_failures(self) -> None:
        """Report each failure once, unless the program has looked at it.

        Raises: UndeliveredError: there are such.
        """
        failed = list(self._failed)
        self._failed.clear()
        # Those that somebody looked at meanwhile are no news.
        errors = [delivery.error for delivery in failed if not delivery.is_looked_at]
        if errors:
            raise UndeliveredError([_client_error(error) for error in errors])


def _client_error(error: Exception | None) -> ClientError:
    if isinstance(error, ClientError):
        return error
    wrapped = MessageRefusedError(f"it could not be prepared: {error!r}")
    wrapped.__cause__ = error
    return wrapped
