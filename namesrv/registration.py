"""Values that go into and come out of the route table.

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
"""The time from a broker's last heartbeat to its removal, unless it registered with another one.
Source: RouteInfoManager.DEFAULT_BROKER_CHANNEL_EXPIRED_TIME."""


class BrokerAddrInfo(NamedTuple):
    """The identity of one broker: its cluster and its address."""

    cluster_name: str
    broker_addr: str


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of one broker.

    Attributes:
      cluster_name, broker_name: names by `remoting.names.is_name`.
      broker_addr: `host:port` for clients.
      broker_id: 0 for a master, greater for a slave.
      ha_server_addr: `host:port` for its slaves; None: not given.
      data_version: of its topic table; if unchanged, so is the table.
      topics: its topics, or only the new ones (a 4.9 broker that creates a topic sends just that
        one; a 5.x broker may split a large table over several registrations).
      queue_mappings: of static topics, by topic, passed through to clients.
      filter_servers: addresses; None: not given, the known ones are kept.
      zone_name: for clients that want only brokers of their zone.
      heartbeat_timeout_ms: time without a heartbeat before it is removed; None:
        BROKER_CHANNEL_EXPIRED_MS.
      enable_acting_master: whether a slave may act for a lost master; None: a 4.x broker, which
        does not have the setting.
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
    """A change of the broker with the smallest id of a group.

    Attributes:
      notify_addrs: the brokers to send NOTIFY_MIN_BROKER_ID_CHANGE to.
      offline_broker_addr: the removed broker; None if one was added.
      ha_broker_addr: the added broker's HA address; None if one was removed.
    """

    broker_name: str
    min_broker_id: int
    min_broker_addr: str
    offline_broker_addr: str | None
    ha_broker_addr: str | None
    notify_addrs: tuple[str, ...]


class RegisterBrokerResult(NamedTuple):
    """The result of a registration.

    Attributes:
      master_addr, ha_server_addr: the addresses of a slave's master; None for a master, and while
        there is none.
      change: to be sent to the group's brokers; None: nothing has changed.
      warning: for the broker's operator; "": none.
    """

    master_addr: str | None = None
    ha_server_addr: str | None = None
    change: MinBrokerIdChange | None = None
    warning: str = ""


class Removal(NamedTuple):
    """The result of a removal of brokers.

    Attributes:
      brokers: the removed brokers.
      channels: the connections on which they had registered.
      changes: to be sent to the brokers of their groups.
    """

    brokers: tuple[BrokerAddrInfo, ...] = ()
    channels: tuple[object, ...] = ()
    changes: tuple[MinBrokerIdChange, ...] = ()


@dataclass(slots=True)
class BrokerLiveInfo:
    """The state of a live broker.

    Attributes:
      last_update_ms: monotonic time of the last registration or heartbeat.
      heartbeat_timeout_ms: the time after that until it is removed.
      data_version: of the topic table that it registered last.
      channel: the connection it registered on; compared by identity.
      ha_server_addr: `host:port` for its slaves; None: not given.
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
