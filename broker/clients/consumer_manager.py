"""ConsumerManager: the connected consumers by group, and notifications of their changes.

A consumer is registered from its first heartbeat until it unregisters (35), its connection closes,
or no heartbeat comes for CHANNEL_EXPIRED_S. At each change the clients of its group are notified
(NOTIFY_CONSUMER_IDS_CHANGED, 40), so that they rebalance at once and not within 20 s; a
broadcasting group has nothing to rebalance.

Java counterpart: broker/client/ConsumerManager.java of 5.3.3. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ...common.steps import Steps
from ...remoting.bodies import ConsumerData
from ...remoting.codec import RemotingCommand
from ...remoting.request_codes import RequestCode
from ..filters.subscription import Subscription
from .client_channel_info import (
    CHANNEL_EXPIRED_S,
    GROUPS_PER_CHANNEL_MAX,
    LEAVING_LINES_MAX,
    ClientChannel,
    ClientChannelInfo,
    silent_clients,
)
from .compensated_consumers import CompensatedConsumers
from .consumer_group_info import ConsumerGroupInfo

logger = logging.getLogger(__name__)

NotifyConsumerIdsChanged = Callable[[str, Sequence[ClientChannel]], None]


def notify_consumer_ids_changed(group: str, channels: Sequence[ClientChannel]) -> None:
    """Notify connections, oneway, that the clients of a group have changed.

    Source: Broker2Client.notifyConsumerIdsChanged.
    """
    for channel in channels:
        channel.send_oneway(
            RemotingCommand(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields={"consumerGroup": group}
            )
        )


def _ignore_group_gone(group: str) -> None:
    pass


class ConsumerManager:
    """The table of consumers. Not thread-safe: used from the broker's one trio run.

    Args:
      notify: called with a group and the connections of all its clients when these changed.
      expired_s: seconds without a heartbeat after which `scan_inactive` drops a client.
      on_group_gone: called with a group whose last client left.

    Attributes:
      expired_s: as above; it may change.
      compensated: groups that consume without heartbeats.
    """

    def __init__(
        self,
        *,
        notify: NotifyConsumerIdsChanged = notify_consumer_ids_changed,
        expired_s: float = CHANNEL_EXPIRED_S,
        on_group_gone: Callable[[str], None] = _ignore_group_gone,
    ) -> None:
        self._notify = notify
        self.expired_s = expired_s
        self.compensated = CompensatedConsumers()
        self._on_group_gone = on_group_gone
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[ClientChannel, set[str]] = {}
        self._sizes: dict[ClientChannel, int] = {}

    @property
    def consumer_table(self) -> Mapping[str, ConsumerGroupInfo]:
        """Every connected group by name; read-only."""
        return self._groups

    def get_consumer_group_info(self, group: str) -> ConsumerGroupInfo | None:
        """A connected group; None: none of its clients is connected."""
        return self._groups.get(group)

    def find_subscription_data(self, group: str, topic: str) -> Subscription | None:
        """A group's subscription to a topic, by its heartbeats or else its pops.

        Returns: None if it has none, or is not connected and did not pop lately.
        """
        info = self._groups.get(group)
        found = None if info is None else info.subscription_table.get(topic)
        return self.compensated.find(group, topic) if found is None else found

    def query_topic_consume_by_who(self, topic: str) -> set[str]:
        """The connected groups that subscribe to a topic."""
        return {group for group, info in self._groups.items() if topic in info.subscription_table}

    def register(
        self,
        data: ConsumerData,
        client: ClientChannelInfo,
        *,
        notify: bool = True,
        with_subscriptions: bool = True,
    ) -> bool:
        """Record a heartbeat of one group.

        Args:
          data: the group's part of the heartbeat.
          client: the client at the time of this heartbeat.
          notify: whether the group's clients are notified of changes (its
            notifyConsumerIdsChangedEnable).
          with_subscriptions: False if the heartbeat has no subscriptions, the known ones are kept.
        Returns: whether a client or a subscription was added or dropped.
        Source: ConsumerManager.registerConsumer, registerConsumerWithoutSub.
        """
        group = data.group_name
        info = self._groups.get(group)
        if info is None:
            info = ConsumerGroupInfo(data)
        groups = self._groups_of.setdefault(client.channel, set())
        if group not in groups and len(groups) >= GROUPS_PER_CHANNEL_MAX:
            logger.warning(
                "%(client)s: consumer group %(group)s is not registered, the connection already "
                "has %(limit)d groups",
                {"client": client, "group": group, "limit": len(groups)},
            )
            return False
        # Only now: a heartbeat that is refused must not leave an empty group.
        self._groups[group] = info
        groups.add(group)
        channel = client.channel
        before = info.size_of(channel) if channel in info.channel_info_table else 0
        changed = info.update_channel(client, data)
        if with_subscriptions and info.update_subscription(client, data.subscription_data_set):
            changed = True
        self._sizes[channel] = self._sizes.get(channel, 0) + info.size_of(channel) - before
        # Each member of a broadcasting group has all queues, so nothing is shared anew.
        if changed and notify and not info.is_broadcasting:
            self._notify(group, info.all_channels())
        return changed

    def unregister(self, group: str, channel: ClientChannel, *, notify: bool = True) -> bool:
        """Remove one client from one group.

        Args:
          notify: whether the remaining clients are notified.
        Returns: whether the client was registered.
        """
        info = self._groups.get(group)
        size = info.size_of(channel) if info is not None else 0
        client = self._leave(group, channel, notify=notify)
        if client is None:
            return False
        logger.info(
            "consumer left, group: %(group)s %(client)s", {"group": group, "client": client}
        )
        groups = self._groups_of[channel]
        groups.discard(group)
        self._sizes[channel] -= size
        if not groups:
            del self._groups_of[channel], self._sizes[channel]
        return True

    def _leave(
        self, group: str, channel: ClientChannel, *, notify: bool
    ) -> ClientChannelInfo | None:
        """Remove a client from a group. Returns: the client; None: it was not registered."""
        info = self._groups.get(group)
        client = info.remove_channel(channel) if info is not None else None
        if info is None or client is None:
            return None
        if not info.channel_info_table:
            del self._groups[group]
            self._on_group_gone(group)
        elif notify and not info.is_broadcasting:
            self._notify(group, info.all_channels())
        return client

    def size_of(self, channel: ClientChannel) -> int:
        """Approximate size of a connection's consumers and their subscriptions, in bytes."""
        return self._sizes.get(channel, 0)

    def channel_closed(self, channel: ClientChannel) -> bool:
        """Remove every client of a closed connection and notify the others of their groups.

        Returns: whether there was one.
        """
        groups = self._groups_of.pop(channel, ())
        self._sizes.pop(channel, None)
        for number, group in enumerate(groups):
            client = self._leave(group, channel, notify=True)
            if number < LEAVING_LINES_MAX:
                logger.info(
                    "consumer left, group: %(group)s %(client)s", {"group": group, "client": client}
                )
        if len(groups) > LEAVING_LINES_MAX:
            address, count = channel.remote_address, len(groups)
            logger.info(
                "%(address)s closed: its consumers left %(groups)d groups in all",
                {"address": address, "groups": count},
            )
        return bool(groups)

    def scan_inactive(self, now_s: float) -> Steps[list[ClientChannel]]:
        """Steps that remove the clients whose heartbeats have expired, and close their connections.

        Args:
          now_s: monotonic seconds.
        Returns: steps that return the connections that were closed.
        Source: ConsumerManager.scanNotActiveChannel.
        """
        closed: list[ClientChannel] = []
        tables = [info.channel_info_table for info in self._groups.values()]
        for client in silent_clients(tables, now_s - self.expired_s):
            if client is None:
                yield
                continue
            logger.warning(
                "consumer %(client)s sent no heartbeat for %(expired_s)g s",
                {"client": client, "expired_s": self.expired_s},
            )
            self.channel_closed(client.channel)
            client.channel.close(f"no heartbeat of a consumer for {self.expired_s:g} s")
            closed.append(client.channel)
        return closed
