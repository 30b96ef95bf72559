"""Connected clients, for administrators."""

from __future__ import annotations

import msgspec

from .base import Body, Int32
from .heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData


class Connection(msgspec.Struct, frozen=True, rename="camel"):
    """One client.

    Attributes:
      client_id: such as `192.0.2.2@c1`.
      client_addr: `ip:port`.
      language: name of a LanguageCode.
      version: ordinal of an MQVersion.
    """

    client_id: str
    client_addr: str
    language: str
    version: Int32


class ConsumerConnection(Body):
    """Answer to GET_CONSUMER_CONNECTION_LIST (203).

    Attributes:
      connection_set: the group's clients.
      subscription_table: by topic.
      consume_type, message_model, consume_from_where: as the last heartbeat said.
    Source: RocketMQ 5.3.3 ConsumerConnection.
    """

    connection_set: list[Connection] = msgspec.field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body):
    """Answer to GET_PRODUCER_CONNECTION_LIST (204): the group's clients."""

    connection_set: list[Connection] = msgspec.field(default_factory=list)


class GroupList(Body):
    """Answer to QUERY_TOPIC_CONSUME_BY_WHO (300): consumer groups."""

    group_list: list[str] = msgspec.field(default_factory=list)
