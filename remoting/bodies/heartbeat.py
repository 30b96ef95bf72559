"""HeartbeatData: which producers and consumers a client holds."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from .base import Body, name_of_ordinal
from .fields import Hash, Version


class ConsumeType(StrEnum):
    """How a consumer gets its messages."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Who of a group gets a message: all, one, or as the subscription says (5.5)."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


class ConsumeFromWhere(StrEnum):
    """Where a new group begins; the three in the middle are long deprecated."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body):
    """What a group wants of a topic.

    Attributes:
      topic: the topic.
      sub_string: the expression as the user wrote it; "*": everything.
      tags_set: the tags in it; empty for "*" and for SQL.
      code_set: their hash codes, each a Java int.
      sub_version: when the client made it, ms since 1970; a greater one replaces a smaller one.
      expression_type: "TAG" or "SQL92".
      class_filter_mode: a filter server decides.
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


class ProducerData(Body):
    """A producer of the client."""

    group_name: str = ""


class ConsumerData(Body):
    """A consumer of the client.

    Attributes:
      group_name: its group.
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
      producer_data_set: its producers.
      consumer_data_set: its consumers.
      heartbeat_fingerprint: hash of the rest; 0: a heartbeat of the first kind (5.x).
      is_without_sub: only the fingerprint counts, subscriptions are left out; wire `withoutSub`.
    """

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: Hash = 0
    is_without_sub: bool = msgspec.field(default=False, name="withoutSub")

    @classmethod
    def from_tree(cls, tree: object) -> HeartbeatData:
        """As any body's; the C++ client sends the numbers of enums instead of their names."""
        consumers = tree.get("consumerDataSet") if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(consumers, list):
            return super().from_tree(tree)
        return super().from_tree({**tree, "consumerDataSet": [_named(item) for item in consumers]})


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
      client_id: the client.
      group: its consumer group.
      subscription_data: what it is about to subscribe to.
      namespace: the client's namespace, or None.
    """

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None
