"""ConsumerGroupInfo: the connected clients of a consumer group, and its subscriptions.

All clients of a group must have the same subscriptions; the table holds one per topic, the one with
the highest `sub_version`. Where two connected clients differ, a warning is logged, because the
group then loses messages silently: each client's heartbeat replaces the other's subscriptions.

Java counterpart: broker/client/ConsumerGroupInfo.java of 5.3.3. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ...remoting.bodies import ConsumerData, MessageModel, SubscriptionData
from ..filters.subscription import Subscription, subscription_size
from .client_channel_info import CLIENT_SIZE, ClientChannel, ClientChannelInfo

logger = logging.getLogger(__name__)

SUBSCRIPTIONS_PER_GROUP_MAX: Final = 10_000
"""Topics that one group may subscribe to; the rest is ignored with a warning. RocketMQ has no
bound."""

SUBSCRIPTION_LINES_MAX: Final = 20
"""Log lines that one heartbeat may cause for added subscriptions, and for dropped ones. A line
takes 20 us, and 10,000 of them would block the loop for 0.2 s."""

_Terms = dict[str, tuple[str, str]]


class ConsumerGroupInfo:
    """The clients and subscriptions of one group. Changed only by `ConsumerManager`.

    Attributes:
      consume_type, message_model, consume_from_where: as the last heartbeat said.
      subscription_table: subscription by topic.
      channel_info_table: client by connection.
      heartbeat_fingerprint: of the last heartbeat; 0: it had none; None: no heartbeat yet.
    """

    __slots__ = (
        "_sizes",
        "_terms_of",
        "channel_info_table",
        "consume_from_where",
        "consume_type",
        "group_name",
        "heartbeat_fingerprint",
        "message_model",
        "subscription_table",
    )

    def __init__(self, data: ConsumerData) -> None:
        self.group_name = data.group_name
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        self.subscription_table: dict[str, Subscription] = {}
        self.channel_info_table: dict[ClientChannel, ClientChannelInfo] = {}
        self.heartbeat_fingerprint: int | None = None
        self._terms_of: dict[ClientChannel, _Terms] = {}
        self._sizes: dict[ClientChannel, int] = {}

    @property
    def is_broadcasting(self) -> bool:
        """Whether every client of the group gets every message."""
        return self.message_model is MessageModel.BROADCASTING

    def find_subscription_data(self, topic: str) -> Subscription | None:
        """The group's subscription to a topic; None: it has none."""
        return self.subscription_table.get(topic)

    def find_channel(self, client_id: str) -> ClientChannelInfo | None:
        """A client by its id; None: it is not connected."""
        for client in self.channel_info_table.values():
            if client.client_id == client_id:
                return client
        return None

    def all_client_ids(self) -> list[str]:
        """The ids of all clients, in the order in which they connected."""
        return [client.client_id for client in self.channel_info_table.values()]

    def all_channels(self) -> list[ClientChannel]:
        """The connections of all clients, in the order in which they connected."""
        return list(self.channel_info_table)

    def update_channel(self, client: ClientChannelInfo, data: ConsumerData) -> bool:
        """Record a heartbeat.

        Returns: whether the connection is new in the group.
        Source: ConsumerGroupInfo.updateChannel.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self.channel_info_table.get(client.channel)
        if known is None:
            self.channel_info_table[client.channel] = client
            logger.info(
                "new consumer connected, group: %(group)s %(consume_type)s %(message_model)s "
                "%(client)s",
                {
                    "group": self.group_name,
                    "consume_type": data.consume_type,
                    "message_model": data.message_model,
                    "client": client,
                },
            )
            return True
        if known.client_id != client.client_id:
            logger.error(
                "group %(group)s: the connection of %(previous_client)s is now used by "
                "%(client)s; two clients must not share one",
                {"group": self.group_name, "previous_client": known, "client": client},
            )
            self.channel_info_table[client.channel] = client
        known.last_update_s = client.last_update_s
        return False

    def update_subscription(
        self, client: ClientChannelInfo, subscriptions: Sequence[SubscriptionData]
    ) -> bool:
        """Update the table to a heartbeat's subscriptions.

        Topics that are missing there are dropped, new ones are added; of two subscriptions to one
        topic the one with the higher `sub_version` is kept.

        Returns: whether a topic was added or dropped.
        Source: ConsumerGroupInfo.updateSubscription.
        """
        updated = False
        size = 0
        added = 0
        terms: _Terms = {}
        table = self.subscription_table
        if len(subscriptions) > SUBSCRIPTIONS_PER_GROUP_MAX:
            logger.warning(
                "group %(group)s: %(client)s subscribes to %(subscriptions)d topics, only the "
                "first %(limit)d are used",
                {
                    "group": self.group_name,
                    "client": client,
                    "subscriptions": len(subscriptions),
                    "limit": SUBSCRIPTIONS_PER_GROUP_MAX,
                },
            )
        # Thousands of topics in one heartbeat must not fill the log: the first ones get a line
        # each, the rest a count.
        for data in subscriptions[:SUBSCRIPTIONS_PER_GROUP_MAX]:
            terms[data.topic] = (data.expression_type, data.sub_string)
            size += subscription_size(data)
            old = table.get(data.topic)
            if old is None:
                table[data.topic] = Subscription.from_data(data)
                updated = True
                added += 1
                if added <= SUBSCRIPTION_LINES_MAX:
                    logger.info(
                        "subscription added, group: %(group)s %(subscription)s",
                        {"group": self.group_name, "subscription": data},
                    )
            elif data.sub_version > old.sub_version:
                table[data.topic] = Subscription.from_data(data)
        if added > SUBSCRIPTION_LINES_MAX:
            logger.info(
                "%(count)d subscriptions added in all, group: %(group)s",
                {"count": added, "group": self.group_name},
            )
        dropped = [table.pop(topic) for topic in list(table) if topic not in terms]
        for subscription in dropped[:SUBSCRIPTION_LINES_MAX]:
            logger.warning(
                "subscription dropped, group: %(group)s %(subscription)s",
                {"group": self.group_name, "subscription": subscription},
            )
        if len(dropped) > SUBSCRIPTION_LINES_MAX:
            logger.warning(
                "%(count)d subscriptions dropped in all, group: %(group)s",
                {"count": len(dropped), "group": self.group_name},
            )
        updated = updated or bool(dropped)
        self._sizes[client.channel] = size
        if self._terms_of.get(client.channel) != terms:
            self._terms_of[client.channel] = terms
            self._warn_of_mixed(client, terms)
        return updated

    def _warn_of_mixed(self, client: ClientChannelInfo, terms: _Terms) -> None:
        for channel, other_terms in self._terms_of.items():
            other = self.channel_info_table.get(channel)
            if other is None or other_terms == terms:
                continue
            # The same client over a second connection, while it restarts or changes its
            # subscriptions.
            if other.client_id == client.client_id:
                continue
            topics = sorted(
                topic
                for topic in terms.keys() | other_terms.keys()
                if terms.get(topic) != other_terms.get(topic)
            )
            logger.warning(
                "the clients of group %(group)s have different subscriptions and will lose "
                "messages: %(client)s and %(other)s differ in %(topics)s; give each its own group",
                {
                    "group": self.group_name,
                    "client": client,
                    "other": other,
                    "topics": ", ".join(
                        f"{topic} ({_name(terms.get(topic))} against "
                        f"{_name(other_terms.get(topic))})"
                        for topic in topics[:5]
                    ),
                },
            )
            return

    def size_of(self, channel: ClientChannel) -> int:
        """Approximate size of a client and its subscriptions, in bytes."""
        return CLIENT_SIZE + self._sizes.get(channel, 0)

    def remove_channel(self, channel: ClientChannel) -> ClientChannelInfo | None:
        """Remove a client.

        Returns: the client; None: it was not in the group.
        """
        self._terms_of.pop(channel, None)
        self._sizes.pop(channel, None)
        return self.channel_info_table.pop(channel, None)


def _name(terms: tuple[str, str] | None) -> str:
    return "not subscribed" if terms is None else f"{terms[0]} {terms[1]!r}"
