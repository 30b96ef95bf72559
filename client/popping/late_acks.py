"""Acknowledgements of an iteration: one whose broker hangs goes on beside the next messages.

Java counterpart: none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from ..connection.client import Client
from ..connection.patience import wait_a_little
from ..errors import ClientError, ClosedError, ExpiredReceiptError
from ..messages.message import for_log
from ..tasks.task_group import together
from .popped_message import PoppedMessage
from .popping import TRANSIENT_ERRORS, Popping

logger = logging.getLogger(__name__)

DELIVERED_AGAIN: Final = (*TRANSIENT_ERRORS, ExpiredReceiptError)
"""Errors after which an iteration goes on."""


class LateAcks:
    """The acknowledgements of one consumer's iterations.

    Args:
      client: an open client, whose background tasks send them.
      popping: the consumer's.
      on_acknowledged: called with each message that is acknowledged.
    """

    def __init__(
        self, client: Client, popping: Popping, on_acknowledged: Callable[[PoppedMessage], None]
    ) -> None:
        self._client = client
        self._popping = popping
        self._on_acknowledged = on_acknowledged
        self._under_way: set[_Ack] = set()

    async def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a message, and wait for the answer for half a second at most.

        If the broker cannot be reached, or does not accept the receipt any more, that is logged:
        the message is delivered again.

        Raises: ServerError: the broker refused the request in time. ClosedError; ForkedError.
        """
        self._client.check_open()
        ack = _Ack()
        self._under_way.add(ack)
        await wait_a_little(self._client, self._run, message, ack)
        if ack.error is not None and not isinstance(ack.error, DELIVERED_AGAIN):
            raise ack.error

    async def finish(self) -> None:
        """Wait until all are answered."""
        await together(ack.ended.wait for ack in self._under_way)

    async def _run(self, message: PoppedMessage, ack: _Ack) -> None:
        try:
            await self._popping.ack(message.settled)
            self._on_acknowledged(message)
        except ClosedError as error:
            ack.error = error
        except ClientError as error:
            ack.error = error
            text = "%s was not acknowledged and is delivered again: %s"
            logger.warning(text, for_log(message), error)
        finally:
            self._under_way.discard(ack)
            ack.ended.set()


class _Ack:
    """An acknowledgement, and what became of it."""

    __slots__ = ("ended", "error")

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.error: ClientError | None = None
