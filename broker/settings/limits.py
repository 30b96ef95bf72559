"""The limits of what clients may create and hold in a broker: keys of broker.conf.

None of them is a key of RocketMQ. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...common.config import setting
from ...common.connection_policy import ConnectionPolicy
from .creation_rate import Rates


@dataclass
class BrokerLimits(ConnectionPolicy):
    """Keys that limit tables and held pulls. Without slots, as its base.

    Attributes:
      topics_max: topics of the broker. RocketMQ has no bound, although any name in a send becomes a
        topic, and each creation writes the whole table, 250 bytes a topic, and registers it.
      groups_max: consumer groups of the broker; any name in a heartbeat becomes a group, 400 bytes
        in a table that each creation writes.
      auto_create_topics_per_minute, auto_create_topics_per_minute_and_address: topics that first
        sends may create in a minute, of all clients, and of one address (but
        limitExemptAddresses); more are refused with SYSTEM_BUSY. An application with hundreds of
        topics starts at once; a flood needs more than an hour for the places of topicsMax.
      auto_create_groups_per_minute, auto_create_groups_per_minute_and_address: the same for groups
        that heartbeats and pulls create.
      clients_per_group_max: consumers of one group; the heartbeats of more are refused with
        SYSTEM_BUSY. A join or leave notifies all others of the group.
      held_pulls_max: pulls held at a time; a further one is answered at once, as if it had timed
        out. RocketMQ bounds the pulls that wait for a thread by the same number
        (pullThreadPoolQueueCapacity).
      held_pulls_per_connection_max, held_pulls_per_group_max: the same for one connection and one
        group, once half of heldPullsMax are held; the other half is for those with few. A client
        holds one for each queue it consumes.
    """

    topics_max: int = setting(100_000, minimum=1, live=True)
    groups_max: int = setting(50_000, minimum=1, live=True)
    auto_create_topics_per_minute: int = setting(5_000, minimum=1, live=True)
    auto_create_topics_per_minute_and_address: int = setting(1_000, minimum=1, live=True)
    auto_create_groups_per_minute: int = setting(5_000, minimum=1, live=True)
    auto_create_groups_per_minute_and_address: int = setting(1_000, minimum=1, live=True)
    clients_per_group_max: int = setting(5_000, minimum=1, live=True)
    held_pulls_max: int = setting(100_000, minimum=1, live=True)
    held_pulls_per_connection_max: int = setting(1_000, minimum=1, live=True)
    held_pulls_per_group_max: int = setting(10_000, minimum=1, live=True)

    def topic_rates(self) -> Rates:
        """The rates of topics that first sends create."""
        return Rates(
            self.auto_create_topics_per_minute_and_address,
            "autoCreateTopicsPerMinuteAndAddress",
            self.auto_create_topics_per_minute,
            "autoCreateTopicsPerMinute",
        )

    def group_rates(self) -> Rates:
        """The rates of groups that heartbeats and pulls create."""
        return Rates(
            self.auto_create_groups_per_minute_and_address,
            "autoCreateGroupsPerMinuteAndAddress",
            self.auto_create_groups_per_minute,
            "autoCreateGroupsPerMinute",
        )
