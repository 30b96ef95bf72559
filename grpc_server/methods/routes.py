"""QueryRoute and QueryAssignment: where a topic's queues are.

Source: proxy/grpc/v2/route/RouteActivity.java of RocketMQ 5.5.0. Unlike Apache's proxy, which
replaces the port that the client used by its own (unless useEndpointPortFromRequest), the answers
have the address *and port* of the request: behind a port mapping, that one works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ...grpc_protocol.enums import Code, MessageType, Permission
from ...remoting.bodies import TopicConfig
from ...remoting.bodies.topic import PERM_READ, PERM_WRITE
from ..exchange import Exchange
from ..refused import Refused
from ..rules import group_of, topic_of
from ..service import Right

ANY_QUEUE: Final = -1
"""The queue id of an assignment of all queues of a broker."""

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


def topic_config(exchange: Exchange, topic: str) -> TopicConfig:
    """A topic's settings. Raises: Refused: there is no such topic."""
    config = exchange.service.directory.topic(topic)
    if config is None:
        text = f"No topic route info in name server for the topic: {topic}"
        raise Refused(Code.TOPIC_NOT_FOUND, text)
    return config


def query_route(exchange: Exchange, request: Any) -> None:
    """Answer with the queues of a topic."""
    topic = topic_of(request.topic)
    exchange.require(Right(topic=topic, publishes=True, subscribes=True))
    config = topic_config(exchange, topic)
    broker, types = _broker(exchange, request.endpoints), types_of(config)
    queues = [
        exchange.service.messages.MessageQueue(
            topic=request.topic,
            id=queue_id,
            permission=permission,
            broker=broker,
            accept_message_types=types,
        )
        for queue_id, permission in enumerate(_permissions(config))
    ]
    exchange.succeed(message_queues=queues)


def query_assignment(exchange: Exchange, request: Any) -> None:
    """Answer with what a push consumer receives from: all queues, or each, if it is ordered."""
    topic, group = topic_of(request.topic), group_of(request.group)
    exchange.require(Right(topic=topic, subscribes=True), Right(group=group, subscribes=True))
    config = topic_config(exchange, topic)
    if not config.perm & PERM_READ or not config.read_queue_nums:
        raise Refused(Code.FORBIDDEN, "no readable queue")
    known = exchange.service.directory.group(group)
    in_order = known is not None and known.consume_message_orderly
    writes = config.perm & PERM_WRITE
    messages, broker = exchange.service.messages, _broker(exchange, request.endpoints)
    assignments = [
        messages.Assignment(
            message_queue=messages.MessageQueue(
                topic=request.topic,
                id=queue_id,
                permission=Permission.READ_WRITE if writes else Permission.READ,
                broker=broker,
            )
        )
        for queue_id in (range(config.read_queue_nums) if in_order else (ANY_QUEUE,))
    ]
    exchange.succeed(assignments=assignments)


def _broker(exchange: Exchange, endpoints: Any) -> Any:
    """This broker, at the address that the client used."""
    return exchange.service.messages.Broker(
        name=exchange.service.broker_name, id=0, endpoints=endpoints
    )


def _permissions(config: TopicConfig) -> Iterator[Permission]:
    """The permission of each queue: those that are only read come first, then those that are only
    written."""
    reads = config.read_queue_nums if config.perm & PERM_READ else 0
    writes = config.write_queue_nums if config.perm & PERM_WRITE else 0
    if not config.perm & (PERM_READ | PERM_WRITE):
        nothing = max(config.read_queue_nums, config.write_queue_nums, 1)
        yield from [Permission.NONE] * nothing
        return
    both = min(reads, writes)
    yield from [Permission.READ] * (reads - both)
    yield from [Permission.WRITE] * (writes - both)
    yield from [Permission.READ_WRITE] * both
