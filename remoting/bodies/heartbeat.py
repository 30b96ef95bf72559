"""HeartbeatData: the producers and consumers of a client."""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from .. import fastjson
from .base import REQUEST_SIZE_MAX, Body, name_of_ordinal
from .fields import Hash, Version

_BodyT = TypeVar("_BodyT", bound=Body)


class ConsumeType(StrEnum):
    """The way in which a consumer gets its messages."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """The members of a group that get a message: all, one, or as the subscription says (5.5)."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


class ConsumeFromWhere(StrEnum):
    """The offset at which a new group begins; the three in the middle are deprecated."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body):
    """A group's subscription to a topic.

    Attributes:
      sub_string: the expression as the user wrote it; "*": all messages.
      tags_set: its tags; empty for "*" and for SQL92.
      code_set: their hash codes, each a Java int.
      sub_version: when the client created it, ms since 1970; a greater one replaces a smaller one.
      expression_type: "TAG" or "SQL92".
      class_filter_mode: a filter server filters.
      filter_class_source: Java source of the filter, from old clients; RocketMQ never writes it.
    Source: RocketMQ 5.5.0 SubscriptionData.
    """

    topic: str = ""
    sub_string: str = ""
    tags_set: set[str] = msgspec.field(default_factory=set)
    code_set: set[Hash] = msgspec.field(default_factory=set)
    sub_version: Version = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False
    filter_class_source: str | None = None

    def selects(self, tags: str | None) -> bool:
        """Whether a received message belongs to the subscription.

        Brokers compare only the hash codes of tags, which can be equal for two tags, so the client
        compares the tags. Without tags in the subscription (SQL, "*", a class) all messages do.

        Args:
          tags: TAGS property of the message, or None.
        """
        return not self.tags_set or self.class_filter_mode or tags in self.tags_set


class ProducerData(Body):
    """A producer of the client."""

    group_name: str = ""


class ConsumerData(Body):
    """A consumer of the client.

    Attributes:
      consume_type, message_model, consume_from_where: as the enums say.
      subscription_data_set: one for each topic.
      unit_mode: it belongs to a unit.
    """

    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body):
    """Body of HEART_BEAT (34).

    Attributes:
      client_id: `ip@instance`; wire `clientID`.
      heartbeat_fingerprint: hash of the rest; 0: a heartbeat of version 1 (5.x).
      is_without_sub: it has the fingerprint instead of the subscriptions; wire `withoutSub`.
    """

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: Hash = 0
    is_without_sub: bool = msgspec.field(default=False, name="withoutSub")

    @classmethod
    def from_tree(cls, tree: object) -> HeartbeatData:
        """As `Body.from_tree`; enums may also be ordinals, as the C++ client sends them."""
        consumers = tree.get("consumerDataSet") if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(consumers, list):
            return super().from_tree(tree)
        return super().from_tree({**tree, "consumerDataSet": [_named(item) for item in consumers]})

    @classmethod
    def from_request_in_steps(cls, body: bytes) -> Generator[None, None, HeartbeatData]:
        """`from_request` in steps if the body is long: 1 MiB may take 20 ms.

        Raises: RemoteProtocolError: as `from_request`.
        """
        if not STEP_SIZE < len(body) <= REQUEST_SIZE_MAX:
            return cls.from_request(body)
        fastjson.check_size(body)
        try:
            head = msgspec.json.decode(body, type=_RawHeartbeat)
            yield
            consumers = yield from _consumers(head.consumer_data_set)
            producers = yield from _items(head.producer_data_set, ProducerData)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls.from_request(body)  # also for its error text
        return cls(
            head.client_id, producers, consumers, head.heartbeat_fingerprint, head.is_without_sub
        )


STEP_SIZE: Final = 64 * 1024
"""Bytes of a heartbeat, or of a consumer in one, that are parsed per step, some 2 ms."""
STEP_ITEMS: Final = 1_000
"""Producers or subscriptions that are parsed per step, some 1 ms."""


class _RawHeartbeat(msgspec.Struct, rename="camel", gc=False):
    """A heartbeat with unparsed lists."""

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: list[msgspec.Raw] = msgspec.field(default_factory=list)
    consumer_data_set: list[msgspec.Raw] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: Hash = 0
    is_without_sub: bool = msgspec.field(default=False, name="withoutSub")


class _RawConsumer(msgspec.Struct, rename="camel", gc=False):
    """A consumer with unparsed subscriptions."""

    group_name: str = ""
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[msgspec.Raw] = msgspec.field(default_factory=list)
    unit_mode: bool = False


def _consumers(raw: list[msgspec.Raw]) -> Generator[None, None, list[ConsumerData]]:
    consumers: list[ConsumerData] = []
    size = 0
    for item in raw:
        data = bytes(item)
        size += len(data)
        if len(data) > STEP_SIZE:
            # One consumer may have thousands of subscriptions: they are decoded in steps of their
            # own.
            head = msgspec.json.decode(data, type=_RawConsumer)
            yield
            consumer = ConsumerData(
                head.group_name,
                head.consume_type,
                head.message_model,
                head.consume_from_where,
                (yield from _items(head.subscription_data_set, SubscriptionData)),
                head.unit_mode,
            )
        else:
            consumer = msgspec.json.decode(data, type=ConsumerData)
        consumers.append(consumer)
        if size > STEP_SIZE:
            size = 0
            yield
    return consumers


def _items(raw: list[msgspec.Raw], kind: type[_BodyT]) -> Generator[None, None, list[_BodyT]]:
    items: list[_BodyT] = []
    for begin in range(0, len(raw), STEP_ITEMS):
        text = b"[%b]" % b",".join(raw[begin : begin + STEP_ITEMS])
        items += msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]
        yield
    return items


_ENUMS: Final[dict[str, type[StrEnum]]] = {
    "consumeType": ConsumeType,
    "messageModel": MessageModel,
    "consumeFromWhere": ConsumeFromWhere,
}


def _named(consumer: object) -> object:
    if not isinstance(consumer, dict):
        return consumer
    return {
        name: name_of_ordinal(_ENUMS[name], value) if name in _ENUMS else value
        for name, value in consumer.items()
    }


class CheckClientRequestBody(Body):
    """Body of CHECK_CLIENT_CONFIG (46).

    Attributes:
      group: its consumer group.
      subscription_data: the subscription to check.
      namespace: the client's namespace, or None.
    """

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None
