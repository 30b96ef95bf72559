"""Subscribers: a consumer group that pops the messages of one topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from time import monotonic
from typing import Any

from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.utils import process_msg
from faststream.message import StreamMessage
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from ...client.connection.participant import subscribed_to
from ...client.errors import ClosedError
from ...client.popping.simple_consumer import SimpleConsumer
from .configs import (
    OfTopic,
    RocketBrokerConfig,
    RocketSubscriberConfig,
    RocketSubscriberSpecificationConfig,
)
from .message import Delivery, RocketMessage
from .publisher import ReplyPublisher
from .receiver import MISSING_PAUSE_S, HeldMessage, Receiver, TopicReader


class RocketSubscriberSpecification(
    OfTopic, SubscriberSpecification[RocketBrokerConfig, RocketSubscriberSpecificationConfig]
):
    """A subscriber in AsyncAPI."""

    @property
    def channel_labels(self) -> list[str]:
        """The topic; a subscriber has one channel."""
        return [self.topic]

    @property
    def name(self) -> str:
        """The key of its channel."""
        return self.config.title_ or f"{self.topic}:{self.call_name}"

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Its channel; AsyncAPI has no bindings for RocketMQ."""
        payload = resolve_payloads(self.get_payloads())
        return {
            self.name: SubscriberSpec(
                address=self.topic,
                description=self.description,
                operation=Operation(
                    message=Message(title=f"{self.name}:Message", payload=payload), bindings=None
                ),
                bindings=None,
            )
        }


class RocketSubscriber(OfTopic, SubscriberUsecase[Delivery]):
    """Consumes the messages of one topic; see `RocketRegistrator.subscriber`."""

    def __init__(
        self,
        config: RocketSubscriberConfig,
        specification: RocketSubscriberSpecification,
        calls: CallsCollection[Delivery],
    ) -> None:
        super().__init__(config, specification, calls)
        self.config = config
        self._consumer: SimpleConsumer | None = None
        self._reader: TopicReader | None = None
        self._receiver: Receiver | None = None

    @property
    def group(self) -> str:
        """The consumer group: by default, of the topic's name."""
        return self.config.group or self.topic

    def selects(self, topic: str, tag: str | None) -> bool:
        """Whether it gets a message, as far as that is known without a broker: not by SQL92.

        Args:
          topic: of the message, without namespace.
          tag: its tag; None: none.
        """
        return topic == self.topic and subscribed_to(topic, self.config.selector, 0).selects(tag)

    async def start(self) -> None:
        """Join the group, and begin to consume if there is a handler.

        Raises: ConfigurationError: a name or a selector is invalid, or another subscriber of this
          broker object has the group. ClientError: the brokers refuse.
        """
        await super().start()
        if self._outer_config.is_in_memory:
            self._post_start()
            return
        self._consumer = await SimpleConsumer(
            self._outer_config.connected,
            group=self.group,
            subscriptions={self.topic: self.config.selector},
            consume_from_where=self.config.consume_from_where,
        ).open()
        self._post_start()
        if self.calls:
            self._receiver = Receiver(
                self._consumer, self.consume, lambda: bool(self.running), self.config
            )
            self._receiver.start()
        else:
            self._reader = TopicReader(self._consumer, self.config)

    async def stop(self) -> None:
        """Receive no more; handlers have `graceful_timeout` to end.

        What is not settled then comes to others at once.
        """
        await super().stop()
        consumer, self._consumer, self._reader = self._consumer, None, None
        if self._receiver is not None:
            await self._receiver.stop()
        elif consumer is not None:
            await consumer.close()

    # Messages without a handler

    async def get_one(self, *, timeout: float = 5.0) -> RocketMessage | None:
        """Receive one message, which the caller settles within `invisible_s`.

        Args:
          timeout: seconds to wait for it.

        Returns: the message; None: there was none in time.
        Raises: ClientError: see `SimpleConsumer.receive`.
        """
        assert not self.calls, "a subscriber with a handler gets its messages there"
        raw = await self._receive_one(timeout)
        return None if raw is None else await self._processed(raw)

    async def __aiter__(self) -> AsyncIterator[RocketMessage]:
        assert not self.calls, "a subscriber with a handler gets its messages there"
        while self.running:
            raw = await self._receive_one(self.config.wait_s)
            if raw is not None:
                yield await self._processed(raw)

    async def _receive_one(self, wait_s: float) -> HeldMessage | None:
        end_s = monotonic() + wait_s
        while True:
            if self._reader is None:
                raise ClosedError("the subscriber is not started")
            left_s = max(end_s - monotonic(), 0.0)
            messages = await self._reader.receive(1, left_s)
            if messages:
                return messages[0]
            if monotonic() >= end_s:
                return None
            await asyncio.sleep(MISSING_PAUSE_S if messages is None else 0.0)

    async def _processed(self, raw: HeldMessage) -> RocketMessage:
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        message: RocketMessage = await process_msg(
            msg=raw,
            middlewares=(each(raw, context=context) for each in self._broker_middlewares),
            parser=parser,
            decoder=decoder,
        )
        return message

    # For FastStream's base class

    def _make_response_publisher(self, message: StreamMessage[Delivery]) -> Sequence[Any]:
        raw = message.raw_message
        request = raw.message if raw.is_request else None
        return (ReplyPublisher(self._outer_config.producer, message.reply_to, request),)

    def get_log_context(self, message: StreamMessage[Delivery] | None) -> dict[str, str]:
        """What log lines have of a message."""
        return {
            "topic": self.topic,
            "group": self.group,
            "message_id": message.message_id if message is not None else "",
        }
