"""Messages: as trocket received them, as FastStream's handlers see them, and as they are sent."""

from __future__ import annotations

from typing import Any, Final

from faststream.message import StreamMessage

from ...client.messages.message import Message, ReceivedMessage
from ...common import message_properties as names
from .response import RocketPublishCommand

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
REPLY_TO: Final = "reply_to"
"""User properties, named as in FastStream's other brokers."""

EMPTY_BODY: Final = "empty-body"
"""The user property of a message whose body is empty: brokers take at least one byte."""

STAND_IN: Final = b" "
"""What such a message has instead, for readers that do not know the property."""


class Delivery:
    """One message as middlewares and parsers get it: FastStream's raw message.

    Settling does nothing here: replies, and the messages of a TestRocketBroker, need none.

    Args:
      message: as trocket's client received it.

    Attributes:
      message: the same.
      body: its body; a middleware may replace it.
    """

    __slots__ = ("body", "message")

    def __init__(self, message: ReceivedMessage) -> None:
        self.message = message
        self.body = b"" if EMPTY_BODY in message.properties else message.body

    def __repr__(self) -> str:
        return repr(self.message)

    @property
    def is_request(self) -> bool:
        """Whether it was sent by `request`, of trocket or of another client: it wants a reply."""
        properties = self.message.properties
        return (
            names.PROPERTY_MESSAGE_REPLY_TO_CLIENT in properties
            and names.PROPERTY_CORRELATION_ID in properties
            and names.PROPERTY_CLUSTER in properties
        )

    async def ack(self) -> None:
        """The group is done with it."""

    async def nack(self, delay_s: float | None = None) -> None:
        """Have it delivered again, after some seconds; None: after a time that grows."""

    async def reject(self) -> None:
        """Give it up: it becomes a dead letter."""


class RocketMessage(StreamMessage[Delivery]):
    """A message as a handler gets it; `raw_message.message` is trocket's own.

    The verbs that settle it raise ClientError if the broker could not be reached, or refused.
    """

    raw_message: Delivery

    @property
    def topic(self) -> str:
        """Its topic, without namespace."""
        return self.raw_message.message.topic

    @property
    def tag(self) -> str | None:
        """Its tag; None: none."""
        return self.raw_message.message.tags

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which it can be queried."""
        return self.raw_message.message.keys

    @property
    def delivery_attempt(self) -> int:
        """Number of this delivery, from 1 on."""
        return self.raw_message.message.delivery_attempt

    async def ack(self) -> None:
        """Acknowledge it; once it is settled, nothing."""
        if self.committed is None:
            await self.raw_message.ack()
        await super().ack()

    async def nack(self, delay_s: float | None = None) -> None:
        """Have it delivered again; once it is settled, nothing.

        Args:
          delay_s: seconds until then, 0 to three days; None: the subscriber's `nack_delay_s`.
        """
        if self.committed is None:
            await self.raw_message.nack(delay_s)
        await super().nack()

    async def reject(self) -> None:
        """Give it up: it goes to the group's dead-letter topic; once it is settled, nothing."""
        if self.committed is None:
            await self.raw_message.reject()
        await super().reject()


async def parse(delivery: Delivery) -> RocketMessage:
    """FastStream's message of a delivery; replies are wanted at `reply_to`."""
    message = delivery.message
    headers: dict[str, Any] = message.user_properties
    headers.pop(EMPTY_BODY, None)
    reply_to = headers.get(REPLY_TO, "")
    if not reply_to and delivery.is_request:
        reply_to = message.properties[names.PROPERTY_MESSAGE_REPLY_TO_CLIENT]
    return RocketMessage(
        raw_message=delivery,
        body=delivery.body,
        headers=headers,
        reply_to=reply_to,
        content_type=headers.get(CONTENT_TYPE),
        correlation_id=headers.get(CORRELATION_ID),
        message_id=message.message_id,
    )


def properties(
    command: RocketPublishCommand, body: bytes, content_type: str | None
) -> dict[str, str]:
    """The user properties of a message; RocketMQ has no empty ones, so these are left out."""
    headers = {
        CONTENT_TYPE: content_type,
        CORRELATION_ID: command.correlation_id,
        REPLY_TO: command.reply_to,
        **command.headers,
        EMPTY_BODY: None if body else "true",
    }
    texts = {name: "" if value is None else str(value) for name, value in headers.items()}
    return {name: text for name, text in texts.items() if text}


def to_message(command: RocketPublishCommand, body: bytes, content_type: str | None) -> Message:
    """The message to send.

    Raises: MessageRefusedError: a key, the tag, a header or a delay is not valid.
    """
    return Message(
        command.destination,
        body or STAND_IN,
        tags=command.tag or None,
        keys=command.keys,
        properties=properties(command, body, content_type),
        delay_s=command.delay_s,
        sharding_key=command.sharding_key,
    )
