"""What becomes of a message that `Producer.send_soon` took, and the buffer that bounds how many.

Java counterpart: backPressureForAsyncSendNum and ...Size of DefaultMQProducer, SendCallback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any, Final

import anyio

from .errors import ClientError, UndeliveredError
from .message import Message, SendResult


class Delivery:
    """A message on its way: what `Producer.send_soon` gives.

    `await delivery` waits for the confirmation, and gives a SendResult or raises as `send` does.
    """

    __slots__ = ("_error", "_event", "_is_looked_at", "_result", "message")

    def __init__(self, message: Message) -> None:
        self.message: Message = message
        self._event: anyio.Event | None = None
        self._result: SendResult | None = None
        self._error: ClientError | None = None
        self._is_looked_at = False

    @property
    def is_done(self) -> bool:
        """Whether it was confirmed, or given up."""
        return self._result is not None or self._error is not None

    @property
    def error(self) -> ClientError | None:
        """Why it was given up; None: it was not."""
        self._is_looked_at = True
        return self._error

    async def wait(self) -> SendResult:
        """Wait until the message is confirmed or given up.

        Raises: as `Producer.send`.
        """
        if not self.is_done:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        self._is_looked_at = True
        if self._error is not None:
            raise self._error
        assert self._result is not None  # done
        return self._result

    def __await__(self) -> Generator[Any, Any, SendResult]:
        return self.wait().__await__()

    @property
    def is_looked_at(self) -> bool:
        """Whether somebody waited for it, or asked why it was given up."""
        return self._is_looked_at

    def settle(self, result: SendResult | None, error: ClientError | None) -> None:
        """It is confirmed (`result`) or given up (`error`): the producer says so, once."""
        self._result, self._error = result, error
        if self._event is not None:
            self._event.set()


FAILED_COUNT_MAX: Final = 1000
"""Failures that are kept for `drain`, the latest ones; a program need never drain."""


class SendBuffer:
    """What `send_soon` has under way: waiting for room, and for the end.

    Args:
      count_max: messages.
      size_max: bytes of bodies; one message may be larger, if it is alone.
    """

    def __init__(self, count_max: int, size_max: int) -> None:
        self._count_max = count_max
        self._size_max = size_max
        self._count = 0
        self._size = 0
        self._room: anyio.Event | None = None
        self._failed: deque[Delivery] = deque(maxlen=FAILED_COUNT_MAX)

    def is_full(self, size: int) -> bool:
        """Whether a message of so many bytes does not fit in now."""
        count = self._count
        return count > 0 and (count >= self._count_max or self._size + size > self._size_max)

    async def wait_for_room(self, size: int) -> None:
        """Wait while a message of so many bytes does not fit in."""
        while self.is_full(size):
            await self._wait_for_an_end()

    async def _wait_for_an_end(self) -> None:
        if self._room is None:
            self._room = anyio.Event()
        await self._room.wait()

    def take(self, size: int) -> None:
        """A message of so many bytes is on its way; `finish` is called once for each."""
        self._count += 1
        self._size += size

    def finish(
        self,
        delivery: Delivery,
        size: int,
        result: SendResult | None,
        error: ClientError | None,
    ) -> None:
        """A message that was taken is confirmed or given up."""
        self._count -= 1
        self._size -= size
        if self._room is not None:
            self._room.set()
            self._room = None
        delivery.settle(result, error)
        if error is not None and not delivery.is_looked_at:
            while self._failed and self._failed[0].is_looked_at:
                self._failed.popleft()
            self._failed.append(delivery)

    async def drain(self) -> None:
        """Wait until nothing is under way.

        Raises: UndeliveredError: messages were given up, and nobody looked at their Delivery.
        """
        while self._count:
            await self._wait_for_an_end()
        failed = list(self._failed)
        self._failed.clear()
        # Taken by somebody meanwhile: told already.
        errors = [delivery.error for delivery in failed if not delivery.is_looked_at]
        if errors:
            raise UndeliveredError([error for error in errors if error is not None])
