"""Values that go into and come out of the route table, and its table of live brokers.

Java counterparts: RocketMQ 5.3.3 namesrv/routeinfo/RouteInfoManager.java (BrokerAddrInfo,
BrokerLiveInfo, BrokerStatusChangeInfo, brokerLiveTable), RegisterBrokerResult.java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..remoting.bodies import PERM_WRITE, BrokerData, DataVersion, QueueData, TopicConfig
from .limits import HEARTBEAT_TIMEOUT_MS_MAX, HEARTBEAT_TIMEOUT_MS_MIN

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

    def timeout_ms(self) -> int:
        """The time without a heartbeat before it is removed, within the limits."""
        wanted_ms = self.heartbeat_timeout_ms
        if wanted_ms is None:
            return BROKER_CHANNEL_EXPIRED_MS
        return min(max(wanted_ms, HEARTBEAT_TIMEOUT_MS_MIN), HEARTBEAT_TIMEOUT_MS_MAX)


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


class RegisteredBody(NamedTuple):
    """What a registration has done to a master's topics, all of which are in the table.

    The same again does nothing to them.

    Attributes:
      digest: of its body.
      changed_at: `TopicTable.changed_at` of the broker's name after it; 0: it has no topics.
      deletes_missing_topics: `deleteTopicWithBrokerRegistration`.
    """

    digest: bytes
    changed_at: int
    deletes_missing_topics: bool


@dataclass(slots=True)
class BrokerLiveInfo:
    """The state of a live broker.

    Attributes:
      last_update_ms: monotonic time of the last registration or heartbeat.
      heartbeat_timeout_ms: the time after that until it is removed.
      data_version: of the topic table that it registered last.
      channel: the connection it registered on; compared by identity.
      ha_server_addr: `host:port` for its slaves; None: not given.
      registered: the body of that registration, if it may be repeated without being read; None: it
        has to be read.
    """

    broker_name: str
    last_update_ms: int
    heartbeat_timeout_ms: int
    data_version: DataVersion
    channel: object
    ha_server_addr: str | None
    registered: RegisteredBody | None = None


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

    def data(self) -> BrokerData:
        """The group as routes and the list of brokers show it."""
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.broker_name,
            broker_addrs=dict(self.broker_addrs),
            zone_name=self.zone_name,
            enable_acting_master=self.enable_acting_master,
        )

    def has_master(self) -> bool:
        """Whether the broker of the smallest id is a master."""
        return min(self.broker_addrs) <= MASTER_ID


def min_broker_id_change(
    group: BrokerGroup, offline_broker_addr: str | None, ha_broker_addr: str | None
) -> MinBrokerIdChange:
    """The change: for all remaining brokers after a removal, for the others after an addition."""
    addrs = group.broker_addrs
    min_id = min(addrs)
    if offline_broker_addr is not None or len(addrs) == 1:
        notified = tuple(addrs.values())
    else:
        notified = tuple(address for broker_id, address in addrs.items() if broker_id != min_id)
    return MinBrokerIdChange(
        group.broker_name, min_id, addrs[min_id], offline_broker_addr, ha_broker_addr, notified
    )


def show_acting_master(data: BrokerData, queue_data: QueueData) -> None:
    """Show the slave of the smallest id as master, unless its queues are writable."""
    if not queue_data.perm & PERM_WRITE:
        data.broker_addrs[MASTER_ID] = data.broker_addrs.pop(min(data.broker_addrs))


class LiveBrokers:
    """The live brokers by address, oldest first, and by connection.

    RocketMQ's name server scans all brokers when a connection ends, a client's included.

    Invariant: the index by connection is exactly the inverse of the table.
    """

    def __init__(self) -> None:
        self._table: dict[BrokerAddrInfo, BrokerLiveInfo] = {}
        # By identity, which is valid as long as the table refers to the connection.
        self._by_channel: dict[int, dict[BrokerAddrInfo, None]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, addr_info: BrokerAddrInfo) -> bool:
        return addr_info in self._table

    def __getitem__(self, addr_info: BrokerAddrInfo) -> BrokerLiveInfo:
        return self._table[addr_info]

    def get(self, addr_info: BrokerAddrInfo) -> BrokerLiveInfo | None:
        """The state of a broker; None: it is not alive."""
        return self._table.get(addr_info)

    def items(self) -> Iterator[tuple[BrokerAddrInfo, BrokerLiveInfo]]:
        """All live brokers; they must not change meanwhile."""
        return iter(self._table.items())

    def of_channel(self, channel: object) -> list[BrokerAddrInfo]:
        """The brokers whose last registration came on a connection."""
        return list(self._by_channel.get(id(channel), ()))

    def put(self, addr_info: BrokerAddrInfo, live: BrokerLiveInfo) -> None:
        """Set the state of a broker, with its connection."""
        before = self._table.get(addr_info)
        if before is None or before.channel is not live.channel:
            self._leave_channel(addr_info, before)
            self._by_channel.setdefault(id(live.channel), {})[addr_info] = None
        self._table[addr_info] = live

    def remove(self, addr_info: BrokerAddrInfo) -> None:
        """Remove a broker; an unknown one is ignored."""
        self._leave_channel(addr_info, self._table.pop(addr_info, None))

    def _leave_channel(self, addr_info: BrokerAddrInfo, live: BrokerLiveInfo | None) -> None:
        if live is None:
            return
        others = self._by_channel[id(live.channel)]
        del others[addr_info]
        if not others:
            del self._by_channel[id(live.channel)]
