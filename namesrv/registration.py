"""What goes into and comes out of the route table: values, no behaviour.

Java counterparts: RocketMQ 5.3.3 namesrv/routeinfo/RouteInfoManager.java (BrokerAddrInfo,
BrokerLiveInfo, BrokerStatusChangeInfo), RegisterBrokerResult.java.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..remoting.bodies import DataVersion, TopicConfig

MASTER_ID = 0
"""The broker id of a master; slaves have greater ones. Source: RocketMQ MixAll.MASTER_ID."""

BROKER_CHANNEL_EXPIRED_MS = 120_000
"""A broker is gone so long after its last heartbeat, unless it registered with another time.
Source: RouteInfoManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME."""


class BrokerAddrInfo(NamedTuple):
    """The identity of one broker: where it is, in which cluster."""

    cluster_name: str
    broker_addr: str


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What one broker tells of itself.

    Attributes:
      cluster_name, broker_name: names by `remoting.names.is_name`.
      broker_addr: `host:port` that clients are sent to.
      broker_id: 0 for a master, greater for a slave.
      ha_server_addr: `host:port` from which its slaves copy; None: not told.
      data_version: of its topic table; unchanged means that the table is.
      topics: its topics, or only those that are new (a 4.9 broker that creates a topic sends just
        that one; a 5.x broker may split a large table over several registrations).
      queue_mappings: of static topics, by topic, passed through to clients.
      filter_servers: addresses; None: not told, which leaves them as they are.
      zone_name: for clients that ask for brokers of their zone only.
      heartbeat_timeout_ms: after which silence it is gone; None: BROKER_CHANNEL_EXPIRED_MS.
      enable_acting_master: whether its slave may act when the master is gone; None: it is a 4.x
        broker, which does not know of it.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int
    data_version: DataVersion
    topics: Sequence[TopicConfig] = ()
    ha_server_addr: str | None = None
    queue_mappings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    filter_servers: Sequence[str] | None = None
    zone_name: str | None = None
    heartbeat_timeout_ms: int | None = None
    enable_acting_master: bool | None = None


class MinBrokerIdChange(NamedTuple):
    """That another broker of a group now has the smallest id, and who is to be told.

    Attributes:
      notify_addrs: the brokers to send NOTIFY_MIN_BROKER_ID_CHANGE to.
      offline_broker_addr: the broker that went; None when one came instead.
      ha_broker_addr: where the one that came gives its log; None when one went.
    """

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    notify_addrs: tuple[str, ...]


class RegisterBrokerResult(NamedTuple):
    """How a registration ended.

    Attributes:
      master_addr, ha_server_addr: where a slave finds its master; None for a master, and while
        there is none.
      change: whom to notify; None: nobody.
    """

    master_addr: str | None = None
    ha_server_addr: str | None = None
    change: MinBrokerIdChange | None = None


class Removal(NamedTuple):
    """What the removal of brokers caused.

    Attributes:
      brokers: those that were there and are gone.
      channels: the connections on which they had registered.
      changes: whom to notify.
    """

    brokers: tuple[BrokerAddrInfo, ...] = ()
    channels: tuple[object, ...] = ()
    changes: tuple[MinBrokerIdChange, ...] = ()


@dataclass(slots=True)
class BrokerLiveInfo:
    """That a broker is alive.

    Attributes:
      broker_name: the group in whose addresses it stands.
      last_update_ms: monotonic time of the last registration or heartbeat.
      heartbeat_timeout_ms: it is gone so long after that.
      data_version: of the topic table that it registered last.
      channel: the connection it registered on; compared by identity.
      ha_server_addr: where its slaves connect; None: not told.
    """

    broker_name: str
    last_update_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    channel: object
    ha_server_addr: str | None


@dataclass(slots=True)
class BrokerGroup:
    """The brokers of one name: a master and its slaves.

    Attributes:
      broker_addrs: address by broker id; never empty in the table.
    """

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False

    def has_master(self) -> bool:
        """Whether the broker of the smallest id is a master."""
        return min(self.broker_addrs) <= MASTER_ID
