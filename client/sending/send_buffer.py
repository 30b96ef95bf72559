"""Deliveries of `Producer.send_soon`, and the buffer that limits unconfirmed messages."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import anyio

from ..checks.misuse import knows_elsewhere
from ..checks.other_names import DELIVERY
from ..core.send_buffer import DeliveryState, UnconfirmedSends
from ..errors import ClientError
from ..messages.message import Message, SendResult


@knows_elsewhere(DELIVERY)
class Delivery(DeliveryState[ClientError]):
    """A message that `Producer.send_soon` has accepted; a broker may not have confirmed it yet.

    `await delivery` waits for the confirmation and returns its SendResult, or raises the errors of
    `Producer.send`.

    Attributes:
      message: the message given to `send_soon`.
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
        """Wait until the message is confirmed, and return the result.

        Raises: as `Producer.send`, if the message was given up.
        """
        if not self.is_done:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        return self._outcome()

    def __await__(self) -> Generator[Any, Any, SendResult]:
        return self.wait().__await__()

    def settle(self, result: SendResult | None, error: ClientError | None) -> None:
        """Set the outcome, confirmed (`result`) or given up (`error`); called once."""
        self._result, self._error = result, error
        if self._event is not None:
            self._event.set()


class SendBuffer(UnconfirmedSends[ClientError]):
    """The unconfirmed messages of `send_soon`: tasks wait for room, or until there are none.

    Args:
      count_max: largest number of messages.
      size_max: largest total size of their bodies, in bytes; a single message may be larger.
    """

    def __init__(self, count_max: int, size_max: int) -> None:
        super().__init__(count_max, size_max)
        self._room: anyio.Event | None = None

    async def wait_for_room(self, size: int) -> None:
        """Wait until there is room for a message of `size` bytes."""
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
        """Remove a message that is confirmed or given up, and wake tasks that wait for room."""
        super().leave(delivery, size, result, error)
        if self._room is not None:
            self._room.set()
            self._room = None

    async def drain(self) -> None:
        """Wait until all messages are confirmed or given up.

        Raises: UndeliveredError: messages were given up whose Delivery was not looked at.
        """
        while self.count:
            await self._wait_for_an_end()
        self.raise_failures()
