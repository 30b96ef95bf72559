"""The messaging of the shop. No other module of this project imports a RocketMQ client."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from types import TracebackType

from trocket.client import ClientError, Message, Producer, PushConsumer

NotSentError = ClientError
"""What `Sender.send` raises."""

TWO_HOURS = 18
"""The delay level of RocketMQ's default ladder `1s 5s 10s 30s 1m 2m … 10m 20m 30m 1h 2h`."""

Handle = Callable[[bytes], Awaitable[None]]


class Sender:
    """Sends messages; use it as `async with`.

    Args:
      url: URL of the name server.
      timeout_s: seconds for all attempts to send a message.
    """

    def __init__(self, url: str, *, timeout_s: float = 3.0) -> None:
        self._producer = Producer(url, group="shop", timeout_s=timeout_s)

    async def __aenter__(self) -> Sender:
        await self._producer.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._producer.__aexit__(kind, error, trace)

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        key: str,
        tag: str,
        in_order_of: str | None = None,
        delay_level: int = 0,
    ) -> None:
        """Send one message.

        Args:
          in_order_of: messages with the same value stay in order. They go to one queue, so a
            failed attempt is not repeated on another; other messages are tried three times.

        Raises: NotSentError: the message was not confirmed.
        """
        await self._producer.send(
            Message(
                topic,
                body,
                keys=key,
                tags=tag,
                sharding_key=in_order_of,
                delay_level=delay_level,
            )
        )


async def consume(
    url: str, topic: str, group: str, handle: Handle, *, tags: str = "*", count: float = math.inf
) -> None:
    """Call `handle` with one message after the other; after an exception it is redelivered.

    Args:
      tags: tags to receive, such as "EUR || CHF".
      count: how many messages are handled before this returns, failures included.
    """
    done = 0
    async with PushConsumer(url, group=group, subscriptions={topic: tags}) as consumer:
        while done < count:
            message = await consumer.receive()
            done += 1
            try:
                await handle(message.body)
            except Exception:  # noqa: BLE001 - any failure means redelivery
                await message.retry()
            else:
                message.ack()
