"""Handlers that reply to requests, for programs with threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..client.pushing.handler_check import Handlers
from .producer import Producer
from .pushed_message import Handler, PushedMessage

Replier: TypeAlias = Callable[[PushedMessage], Any]
"""Returns the body of the reply, or None for no reply."""


def replying(producer: Producer, replier: Replier) -> Handler:
    """A handler for `PushConsumer.run` that sends what a function returns as the reply.

    Use: `consumer.run(replying(producer, answer))`.

    An exception of the function, or of the reply, has the request redelivered, as with any handler.
    A requester that waits no longer gets nothing.

    Args:
      producer: sends the replies; open while the handler runs.
      replier: gets the request, and returns the body of the reply; it may block.

    Raises: ConfigurationError: the replier is async, or cannot be called with a message.
    """
    Handlers(replier, ()).refuse_async()

    def handle(message: PushedMessage) -> None:
        body = replier(message)
        if body is not None:
            producer.reply(message, body)

    return handle
