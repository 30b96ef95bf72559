"""The Delivery of `Producer.send_soon`, and the buffer that bounds how much is under way."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import anyio

from .core.in_flight import DeliveryState, InFlight
from .errors import ClientError
from .message import Message, SendResult


class Delivery(DeliveryState[ClientError]):
    """A message on its way: what `Producer.send_soon` gives.

    `await delivery` waits for the confirmation, and gives a SendResult or raises as `send` does.

    Attributes:
      message: as it was given to `send_soon`.
    """

    __slots__ = ("_event",)

    def __init__(self, message: Message) -> None:
        # The fields of DeliveryState by hand: its __init__ would cost as much as all of these.
        self.message: Message = message
        self._result: SendResult | None = None
        self._error: ClientError | None = None
        self._is_looked_at = False
        self._event: anyio.Event | None = None

    async def wait(self) -> SendResult:
        """Wait until the message is confirmed or given up.

        Raises: as `Producer.send`.
        """
        if not self.is_done:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        return self._outcome()

    def __await__(self) -> Generator[Any, Any, SendResult]:
        return self.wait().__await__()

    def settle(self, result: SendResult | None, error: ClientError | None) -> None:
        """Note that it is confirmed (`result`) or given up (`error`): once, by the producer."""
        self._result, self._error = result, error
        if self._event is not None:
            self._event.set()


class SendBuffer(InFlight[ClientError]):
    """What `send_soon` has under way: tasks wait for room, and for the end.

    Args:
      count_max: messages.
      size_max: bytes of bodies; one message may be larger, if it is alone.
    """

    def __init__(self, count_max: int, size_max: int) -> None:
        super().__init__(count_max, size_max)
        self._room: anyio.Event | None = None

    async def wait_for_room(self, size: int) -> None:
        """Wait while a message of `size` bytes does not fit in."""
        while not self.has_room(size):
            await self._wait_for_an_end()

    async def _wait_for_an_end(self) -> None:
        if self._room is None:
            self._room = anyio.Event()
        await self._room.wait()

    def leave(
        self,
        delivery: DeliveryState[ClientError],
        size: int,
        result: SendResult | None,
        error: ClientError | None,
    ) -> None:
        """Settle a message that is confirmed or given up."""
        super().leave(delivery, size, result, error)
        if self._room is not None:
            self._room.set()
            self._room = None

    async def drain(self) -> None:
        """Wait until nothing is under way.

        Raises: UndeliveredError: some were given up, and their Delivery was not looked at.
        """
        while self.count:
            await self._wait_for_an_end()
        self.raise_failures()
