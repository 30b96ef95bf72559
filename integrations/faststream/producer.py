"""The producer: encodes what is published, sends it, and waits for replies."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, NoReturn

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState

from ...client.errors import ReplyTimeoutError, RouteNotFoundError
from ...client.messages.message import SendResult
from ...client.sending.producer import Producer
from .message import STAND_IN, Delivery, parse, properties, to_message
from .response import REQUEST_TIMEOUT_S, RocketPublishCommand


class RocketProducer(ProducerProto[RocketPublishCommand]):
    """Sends the messages of one broker object.

    Args:
      parser, decoder: the broker's, for replies; None: the default.
    """

    def __init__(
        self, parser: Callable[..., Any] | None, decoder: Callable[..., Any] | None
    ) -> None:
        self.codec: Any = DefaultCodec()
        self._parser = ParserComposition(parser, parse)
        self._decoder = ParserComposition(decoder, self.codec.decode)
        self._serializer: Any = None
        self._producer: Producer | None = None

    def connect(self, producer: Producer, serializer: Any, codec: Any) -> None:
        """Called when the broker object is connected."""
        self._producer = producer
        self._serializer = serializer
        self.codec = codec or DefaultCodec()

    def disconnect(self) -> None:
        """Called before the producer is closed."""
        self._producer = None

    @property
    def _connected(self) -> Producer:
        if self._producer is None:
            raise IncorrectState(
                "the broker is not connected: use `async with broker`, or `await broker.start()`"
            )
        return self._producer

    async def publish(self, cmd: RocketPublishCommand) -> SendResult | None:
        """Send a message, and wait until a broker has stored it.

        Returns: what trocket's `Producer.send` does; None for a reply.
        Raises: ClientError: see `Producer.send` and `Producer.reply`.
        """
        producer = self._connected
        body, content_type = await self.codec.encode(cmd.body, self._serializer)
        if cmd.request is not None:
            await producer.reply(
                cmd.request,
                body or STAND_IN,
                tags=cmd.tag or None,
                properties=properties(cmd, body, content_type),
            )
            return None
        message = to_message(cmd, body, content_type)
        return await producer.send(message, timeout_s=cmd.timeout_s)

    async def request(self, cmd: RocketPublishCommand) -> Delivery:
        """Send a request, and wait for the reply of a consumer.

        Raises: TimeoutError: there was none in time; ClientError: see `Producer.request`.
        """
        producer = self._connected
        body, content_type = await self.codec.encode(cmd.body, self._serializer)
        message = to_message(cmd, body, content_type)
        timeout_s = REQUEST_TIMEOUT_S if cmd.timeout_s is None else cmd.timeout_s
        begin_s = monotonic()
        try:
            return Delivery(await producer.request(message, timeout_s=timeout_s))
        except ReplyTimeoutError as error:
            raise TimeoutError(str(error)) from error
        except RouteNotFoundError as error:
            if monotonic() - begin_s < timeout_s:
                raise
            raise TimeoutError(str(error)) from error  # the topic was not there in time

    async def publish_batch(self, cmd: RocketPublishCommand) -> NoReturn:
        """Not there: trocket's producer has `send_batch`, and `linger_s`, by which it batches."""
        raise FeatureNotSupportedException("RocketBroker has no publish_batch")
