"""Pending replies to request messages.

Java counterpart: RequestResponseFuture, RequestFutureHolder.
"""

from __future__ import annotations

import anyio

from ..messages.message import ReceivedMessage


class PendingReply:
    """The future reply to one request message.

    Attributes:
      event: set when the reply has arrived.
      message: the reply; None before.
    """

    __slots__ = ("event", "message")

    def __init__(self) -> None:
        self.event: anyio.Event = anyio.Event()
        self.message: ReceivedMessage | None = None
