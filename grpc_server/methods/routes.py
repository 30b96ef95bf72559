"""QueryRoute and QueryAssignment: where a topic's queues are.

Source: proxy/grpc/v2/route/RouteActivity.java of RocketMQ 5.5.0. Unlike Apache's proxy, which
replaces the port that the client used by its own (unless useEndpointPortFromRequest), the answers
have the address *and port* of the request: behind a port mapping, that one works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...grpc_protocol.enums import AddressScheme, Code, MessageType, Permission
from ...remoting.bodies import TopicConfig
from ...remoting.bodies.topic import PERM_READ, PERM_WRITE
from ..exchange import Exchange
from ..refused import Refused
from ..rules import group_of, topic_of
from ..service import OnBroker, Right

ANY_QUEUE: Final = -1
"""The queue id of an assignment of all queues of a broker."""

FAQ: Final = "\nFor more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ"
"""The end of a text that clients print. Source: FAQUrl.java."""

TYPE_ATTRIBUTE: Final = "message.type"
"""The attribute of a topic with the type of its messages."""

_ALL_TYPES: Final = (
    MessageType.NORMAL,
    MessageType.FIFO,
    MessageType.DELAY,
    MessageType.TRANSACTION,
)
_TYPES: Final = {"MIXED": _ALL_TYPES} | {
    each.name: (each,) for each in MessageType if each != MessageType.MESSAGE_TYPE_UNSPECIFIED
}


def types_of(config: TopicConfig) -> tuple[MessageType, ...]:
    """The types of messages that a topic takes; never empty, and never the unspecified one, with
    which Java's client fails.

    A topic without the attribute takes normal messages only.

    Source: TopicConfig.getTopicMessageType.
    """
    return _TYPES.get(config.attributes.get(TYPE_ATTRIBUTE, "").upper(), (MessageType.NORMAL,))


def found_topic(exchange: Exchange, topic: str) -> Sequence[OnBroker]:
    """A topic on its brokers, at least one. Raises: Refused: there is no such topic."""
    found = exchange.service.backend.topic(topic)
    if not found:
        text = f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}{FAQ}"
        raise Refused(Code.TOPIC_NOT_FOUND, text)
    return found


def query_route(exchange: Exchange, request: Any) -> None:
    """Answer with the queues of a topic."""
    topic = topic_of(request.topic)
    exchange.require(Right(topic=topic, publishes=True, subscribes=True))
    queues = [
        exchange.service.messages.MessageQueue(
            topic=request.topic,
            id=queue_id,
            permission=permission,
            broker=broker,
            accept_message_types=types_of(config),
        )
        for name, config in found_topic(exchange, topic)
        for broker in [_broker(exchange, name, request.endpoints)]
        for queue_id, permission in enumerate(_permissions(config))
    ]
    exchange.succeed(message_queues=queues)


def query_assignment(exchange: Exchange, request: Any) -> None:
    """Answer with what a push consumer receives from: all queues, or each, if it is ordered."""
    topic, group = topic_of(request.topic), group_of(request.group)
    exchange.require(Right(topic=topic, subscribes=True), Right(group=group, subscribes=True))
    readable = [each for each in found_topic(exchange, topic) if reads_of(each.config)]
    if not readable:
        raise Refused(Code.FORBIDDEN, "no readable queue")
    known = exchange.service.backend.group(group)
    in_order = known is not None and known.consume_message_orderly
    messages = exchange.service.messages
    assignments = [
        messages.Assignment(
            message_queue=messages.MessageQueue(
                topic=request.topic,
                id=queue_id,
                permission=(Permission.READ_WRITE if config.perm & PERM_WRITE else Permission.READ),
                broker=broker,
            )
        )
        for name, config in readable
        for broker in [_broker(exchange, name, request.endpoints)]
        for queue_id in (range(config.read_queue_nums) if in_order else (ANY_QUEUE,))
    ]
    exchange.succeed(assignments=assignments)


def reads_of(config: TopicConfig) -> int:
    """The number of queues that may be read."""
    return config.read_queue_nums if config.perm & PERM_READ else 0


def writes_of(config: TopicConfig) -> int:
    """The number of queues that may be written."""
    return config.write_queue_nums if config.perm & PERM_WRITE else 0


def _broker(exchange: Exchange, name: str, endpoints: Any) -> Any:
    """A broker, at the address that the client used: this service asks it for the client. That of
    the connection, if the client names none."""
    messages = exchange.service.messages
    broker = messages.Broker(name=name, id=0, endpoints=endpoints)
    if not broker.endpoints.addresses:
        host, _, port = exchange.client.server_address.rpartition(":")
        is_6 = ":" in host
        broker.endpoints.scheme = AddressScheme.IPv6 if is_6 else AddressScheme.IPv4
        address = messages.Address(host=host.strip("[]"), port=int(port))
        broker.endpoints.addresses.append(address)
    return broker


def _permissions(config: TopicConfig) -> Iterator[Permission]:
    """The permission of each queue: those that are only read come first, then those that are only
    written."""
    reads, writes = reads_of(config), writes_of(config)
    if not config.perm & (PERM_READ | PERM_WRITE):
        nothing = max(config.read_queue_nums, config.write_queue_nums, 1)
        yield from [Permission.NONE] * nothing
        return
    both = min(reads, writes)
    yield from [Permission.READ] * (reads - both)
    yield from [Permission.WRITE] * (writes - both)
    yield from [Permission.READ_WRITE] * both
