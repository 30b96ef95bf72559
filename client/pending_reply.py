"""The place where a client keeps the reply to a request message, under its correlation id.

Java counterpart: RequestResponseFuture, RequestFutureHolder.
"""

from __future__ import annotations

import anyio

from .message import ReceivedMessage


class PendingReply:
    """A place for the reply to one request message.

    Attributes:
      event: set once the reply is there.
      message: the reply.
    """

    __slots__ = ("event", "message")

    def __init__(self) -> None:
        self.event: anyio.Event = anyio.Event()
        self.message: ReceivedMessage | None = None
