"""Handlers that reply to requests: the consumer's side of `Producer.request`.

Java counterpart: MessageUtil.createReplyMessage, which the consumer's listener calls by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from .pushing.handler_check import check_handler
from .pushing.pushed_message import PushedMessage
from .sending.producer import Producer

Replier: TypeAlias = Callable[[PushedMessage], Any | Awaitable[Any]]
"""Returns the body of the reply, or None for no reply."""


def replying(producer: Producer, replier: Replier) -> Callable[[PushedMessage], Awaitable[None]]:
    """A handler for `PushConsumer.run` that sends what a function returns as the reply.

    Use: `await consumer.run(replying(producer, answer))`.

    An exception of the function, or of the reply, has the request redelivered, as with any handler.
    A requester that waits no longer gets nothing.

    Args:
      producer: sends the replies; open while the handler runs.
      replier: an async function; or a plain one, which `run` calls in a thread, or in the loop if
        `in_loop`. It gets the request, and returns the body of the reply.

    Raises: ConfigurationError: the replier cannot be called with a message.
    """

    async def reply(message: PushedMessage, body: Any) -> None:
        if inspect.isawaitable(body):
            body = await body
        if body is not None:
            await producer.reply(message, body)

    async def handle(message: PushedMessage) -> None:
        await reply(message, replier(message))

    def handle_plain(message: PushedMessage) -> Awaitable[None]:
        # `run` calls this in a thread, and awaits the rest in the loop.
        return reply(message, replier(message))

    return handle if check_handler(replier).is_async else handle_plain
