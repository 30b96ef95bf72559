"""Tests without a server: `async with TestRocketBroker(broker):`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import time_ns
from typing import Any, Final
from unittest.mock import AsyncMock
from uuid import uuid4

import anyio
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from ...client.messages.message import Message, ReceivedMessage, wire_properties
from ...common import message_properties as names
from ...remoting.bodies import MessageQueue
from ...remoting.message import MessageExt
from ...remoting.message_codec import MAGIC_V1
from .broker import RocketBroker
from .message import Delivery, parse, to_message
from .producer import RocketProducer
from .publisher import RocketPublisher
from .response import REQUEST_TIMEOUT_S, RocketPublishCommand
from .subscriber import RocketSubscriber

BROKER_NAME: Final = "memory"
"""Of the queues that messages are said to come from."""

NO_HOST: Final = bytes(8)
"""An address, 0.0.0.0:0."""


class TestRocketBroker(TestBroker[RocketBroker, Any], broker=RocketBroker):  # type: ignore[call-arg]
    """Has what is published handled at once, in this process, and records it in mocks.

    Each group gets a message once. Delays are passed over, nothing is delivered again, and a
    subscriber with a condition of SQL92 gets all messages of its topic.

    Args:
      brokers: broker objects that publish to each other.
      with_real: use the server of the broker objects, such as a `trocket.testing.Broker`.
      connect_only: do not start the subscribers; None: where TestApp is used, which starts them.
    """

    def create_publisher_fake_subscriber(
        self, broker: RocketBroker, publisher: RocketPublisher
    ) -> tuple[RocketSubscriber, bool]:
        """The subscriber that a publisher's mock is of, and whether the program made it."""
        for subscriber in _subscribers(self.brokers):
            if subscriber.selects(publisher.topic, publisher.config.tag):
                return subscriber, True
        return broker.subscriber(publisher.topic, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: RocketBroker) -> Iterator[None]:
        fake = MemoryProducer(broker, self.brokers)
        own = broker.config.broker_config
        own.is_in_memory = True
        try:
            with change_producer(own, fake):
                yield
        finally:
            own.is_in_memory = False

    async def _fake_connect(self, broker: RocketBroker, *args: Any, **kwargs: Any) -> Any:
        return AsyncMock()


class MemoryProducer(RocketProducer):
    """Calls the handlers of what is published, and waits for them; their errors are raised."""

    def __init__(self, broker: RocketBroker, brokers: Sequence[RocketBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)
        self._broker = broker
        self._brokers = brokers
        self._serializer = broker.config.fd_config._serializer
        self.codec = broker.config.broker_codec or DefaultCodec()
        self._parser = ParserComposition(broker._parser, parse)
        self._decoder = ParserComposition(broker._decoder, self.codec.decode)

    async def publish(self, cmd: RocketPublishCommand) -> None:
        """Have each group that selects it handle the message."""
        delivery = await self._delivery(cmd)
        for subscriber in self._groups(cmd):
            await subscriber.process_message(Delivery(delivery.message))

    async def request(self, cmd: RocketPublishCommand) -> Delivery:
        """Have the first group that selects it handle the message, and return its answer.

        Raises: SubscriberNotFound: there is none; TimeoutError: it took too long.
        """
        delivery = await self._delivery(cmd)
        for subscriber in self._groups(cmd):
            limit_s = REQUEST_TIMEOUT_S if cmd.timeout_s is None else cmd.timeout_s
            with anyio.fail_after(limit_s):
                answer = await subscriber.process_message(delivery)
            command = RocketPublishCommand.from_cmd(answer.as_publish_command())
            command.destination = cmd.destination
            return await self._delivery(command)
        raise SubscriberNotFound(f"no subscriber gets messages of {cmd.destination}")

    async def _delivery(self, cmd: RocketPublishCommand) -> Delivery:
        body, content_type = await self.codec.encode(cmd.body, self._serializer)
        return Delivery(received(to_message(cmd, body, content_type)))

    def _groups(self, cmd: RocketPublishCommand) -> list[RocketSubscriber]:
        found: dict[str, RocketSubscriber] = {}
        for subscriber in _subscribers(self._brokers):
            if subscriber.selects(cmd.destination, cmd.tag):
                found.setdefault(subscriber.group, subscriber)
        return list(found.values())


def _subscribers(brokers: Sequence[RocketBroker]) -> Iterator[RocketSubscriber]:
    for broker in brokers:
        for subscriber in broker.subscribers:
            if isinstance(subscriber, RocketSubscriber):
                yield subscriber


def received(message: Message) -> ReceivedMessage:
    """The message that a consumer would get of one that is sent.

    Raises: MessageRefusedError: a header has a reserved name, or what no property may have.
    """
    now_ms = time_ns() // 1_000_000
    unique = {names.PROPERTY_UNIQUE_KEY: uuid4().hex.upper()}
    ext = MessageExt(
        topic=message.topic,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=message.body,
        properties_bytes=names.properties_to_bytes(wire_properties(message, unique)),
        flag=0,
        sys_flag=0,
        born_timestamp_ms=now_ms,
        born_host=NO_HOST,
        store_timestamp_ms=now_ms,
        store_host=NO_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        store_size=0,
        magic=MAGIC_V1,
        body_crc=0,
    )
    queue = MessageQueue(message.topic, BROKER_NAME, 0)
    return ReceivedMessage(ext, queue, message.topic)
