"""RouteInfoManager: the live brokers and the routes of their topics.

The five tables of RocketMQ's name server, in one object without locks: one task uses it at a time.
Nothing is stored on disk; brokers register every 30 seconds, which fills an empty name server.

Pure: times are monotonic milliseconds in arguments; connections are opaque objects, compared by
identity; notifications are returned as values.

Java counterpart: RocketMQ 5.3.3 namesrv/routeinfo/RouteInfoManager.java. It differs where Apache's
tables can become inconsistent (see "Differences" in docs/namesrv.md).

Invariants: an address is in exactly one broker group of its cluster, and is alive; no group is
empty; every queue belongs to a group.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from ..common.steps import Steps, as_long_as, at_once
from ..remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicRouteData,
)
from ..remoting.errors import RequestRefused
from ..remoting.names import (
    FILTER_SERVERS_MAX,
    check_address,
    check_name,
    check_server_name,
    is_address,
)
from ..remoting.response_codes import ResponseCode
from .duplicate_brokers import DuplicateBrokers
from .limits import BROKERS_MAX
from .registration import (
    MASTER_ID,
    BrokerAddrInfo,
    BrokerGroup,
    BrokerLiveInfo,
    BrokerRegistration,
    LiveBrokers,
    MinBrokerIdChange,
    RegisterBrokerResult,
    RegisteredBody,
    Removal,
    min_broker_id_change,
    show_acting_master,
)
from .topic_table import Form, TopicTable

logger = logging.getLogger(__name__)

UNIT_FLAG = 1 << 0
UNIT_SUB_FLAG = 1 << 1
"""Bits of a topic's sysFlag. Source: RocketMQ TopicSysFlag.java."""

SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics whose routes never show an acting master. Source: RocketMQ TopicValidator.java."""


class RouteInfoManager:
    """The route table of one name server.

    Attributes:
      removed: brokers that were removed, by the reason.
    """

    def __init__(self) -> None:
        self.topics = TopicTable()
        self._groups: dict[str, BrokerGroup] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live = LiveBrokers()
        self._filter_servers: dict[BrokerAddrInfo, tuple[str, ...]] = {}
        self._duplicates = DuplicateBrokers()
        self.removed: Counter[str] = Counter()

    # Registration

    def register_broker_in_steps(
        self,
        registration: BrokerRegistration,
        *,
        channel: object,
        now_ms: int,
        delete_missing_topics: bool = False,
        body_digest: bytes = b"",
    ) -> Steps[RegisterBrokerResult]:
        """Process a broker's first registration, or a renewal.

        A topic that is not in the registration is kept, because a broker that creates a topic may
        send only that one. Topics are processed last, in steps; if the broker is removed or
        registers again between two steps, the rest is skipped.

        Args:
          channel: its connection; when it closes, the broker is removed.
          now_ms: monotonic.
          delete_missing_topics: `deleteTopicWithBrokerRegistration`: topics that are missing in a
            registration of more than one topic are deleted, unless it has queue mappings.
          body_digest: of the body that the registration was read from, for `repeated`; b"": the
            next one is read in any case.

        Raises: RequestRefused: SYSTEM_ERROR: an illegal name or address, a full table, a broker
          name of another cluster, or a registration of one topic from an unregistered broker.
        """
        self._check(registration)
        addr_info = BrokerAddrInfo(registration.cluster_name, registration.broker_addr)
        name = registration.broker_name
        before = self._live.get(addr_info)
        if before is not None and before.broker_name != name:
            _log_renamed(addr_info, before.broker_name, name)
            self.remove_brokers([addr_info])
            before = None
        group = self._groups.get(name)
        # Compared after the update: the smallest id of a broker name acts as its master, and a
        # change is sent to the other brokers of that name.
        min_id_before = min(group.broker_addrs) if group is not None else MASTER_ID
        if group is not None and self._is_superseded(registration, group):
            self.remove_brokers([addr_info])
            return RegisterBrokerResult()
        self._check_first(registration, group)
        group, is_first = self._update_group(group, registration, channel, now_ms)
        live = BrokerLiveInfo(
            name,
            now_ms,
            registration.timeout_ms(),
            registration.data_version,
            channel,
            registration.ha_server_addr,
        )
        self._live.put(addr_info, live)
        if before is None:
            _log_registered(addr_info, name, registration.broker_id)
        self._update_filter_servers(addr_info, registration)
        change = None
        if registration.broker_id < min_id_before:
            change = min_broker_id_change(group, None, registration.ha_server_addr)
        result = self._result(registration, group, change)
        steps = self._update_topics(registration, group, before, is_first, delete_missing_topics)
        has_all = yield from as_long_as(lambda: self._live.get(addr_info) is live, steps)
        if has_all and body_digest:
            changed_at = self.topics.changed_at.get(name, 0)
            live.registered = RegisteredBody(body_digest, changed_at, delete_missing_topics)
        return result

    def repeated(
        self,
        addr_info: BrokerAddrInfo,
        broker_name: str,
        broker_id: int,
        *,
        body_digest: bytes,
        delete_missing_topics: bool,
    ) -> DataVersion | None:
        """The version in a body that says what its broker's last one said; None: it is to be read.

        Brokers register all topics every 30 seconds, unchanged or not; reading takes 1.2 us each.
        """
        live, group = self._live.get(addr_info), self._groups.get(broker_name)
        if live is None or group is None or live.broker_name != broker_name:
            return None
        # The topics of a slave are taken only while it acts for its master.
        if broker_id != MASTER_ID or group.broker_addrs.get(MASTER_ID) != addr_info.broker_addr:
            return None
        changed_at = self.topics.changed_at.get(broker_name, 0)
        said = RegisteredBody(body_digest, changed_at, delete_missing_topics)
        return live.data_version if live.registered == said else None

    def _check(self, registration: BrokerRegistration) -> None:
        check_server_name("cluster name", registration.cluster_name)
        check_server_name("broker name", registration.broker_name)
        check_address("broker address", registration.broker_addr)
        if registration.ha_server_addr:
            check_address("HA address", registration.ha_server_addr)
        if registration.zone_name:
            check_name("zone name", registration.zone_name)
        group = self._groups.get(registration.broker_name)
        if group is not None and group.cluster != registration.cluster_name:
            reason = f"broker name {group.broker_name} is taken in cluster {group.cluster}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        addr_info = BrokerAddrInfo(registration.cluster_name, registration.broker_addr)
        if len(self._live) >= BROKERS_MAX and addr_info not in self._live:
            reason = f"the name server is full: {BROKERS_MAX} brokers"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)

    def _is_superseded(self, registration: BrokerRegistration, group: BrokerGroup) -> bool:
        """Whether another address has this broker id with a newer state."""
        other = group.broker_addrs.get(registration.broker_id)
        if other is None or other == registration.broker_addr:
            return False
        live = self._live.get(BrokerAddrInfo(group.cluster, other))
        if live is None:
            return False
        old = live.data_version.state_version
        new = registration.data_version.state_version
        if old <= new:
            return False
        logger.warning(
            "the registration of %(broker_name)s id %(broker_id)d is ignored: "
            "%(known_address)s has the id with state version %(known_version)d, which is newer "
            "than %(broker_address)s with %(version)d",
            {
                "broker_name": group.broker_name,
                "broker_id": registration.broker_id,
                "known_address": other,
                "known_version": old,
                "broker_address": registration.broker_addr,
                "version": new,
            },
        )
        return True

    def _check_first(self, registration: BrokerRegistration, group: BrokerGroup | None) -> None:
        known = group is not None and registration.broker_id in group.broker_addrs
        if not known and len(registration.topics) == 1:
            logger.warning(
                "%(broker_name)s %(broker_address)s is refused: it registers one topic before "
                "its first full registration",
                {
                    "broker_name": registration.broker_name,
                    "broker_address": registration.broker_addr,
                },
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "register broker failed")

    def _update_group(
        self,
        group: BrokerGroup | None,
        registration: BrokerRegistration,
        channel: object,
        now_ms: int,
    ) -> tuple[BrokerGroup, bool]:
        """Set what a registration tells of its group. Returns: it, and what `_put_address` does."""
        shown = None if group is None else group.data()
        if group is None:
            cluster, name = registration.cluster_name, registration.broker_name
            group = self._groups[name] = BrokerGroup(cluster, name)
            self._clusters.setdefault(cluster, set()).add(name)
        group.enable_acting_master = bool(registration.enable_acting_master)
        group.zone_name = registration.zone_name
        is_first = self._put_address(group, registration, channel, now_ms)
        if group.data() != shown:
            self.topics.answers.clear()
        return group, is_first

    def _put_address(
        self, group: BrokerGroup, registration: BrokerRegistration, channel: object, now_ms: int
    ) -> bool:
        """Set the address of a broker id. Returns: whether the id had none before."""
        addrs = group.broker_addrs
        broker_id, address = registration.broker_id, registration.broker_addr
        for old_id in [i for i, a in addrs.items() if a == address and i != broker_id]:
            logger.info(
                "%(broker_name)s %(address)s changes its id from %(old_broker_id)d to "
                "%(broker_id)d",
                {
                    "broker_name": group.broker_name,
                    "address": address,
                    "old_broker_id": old_id,
                    "broker_id": broker_id,
                },
            )
            del addrs[old_id]
        replaced = addrs.get(broker_id)
        identity = group.broker_name, broker_id
        if replaced is None or replaced == address:
            self._duplicates.renewed(identity, address, channel, now_ms)
        else:
            # Its connection is open: one that ends without unregistering is removed with it.
            old = self._live[BrokerAddrInfo(group.cluster, replaced)]
            if self._duplicates.replaced(
                identity, address, channel, old=replaced, old_channel=old.channel, now_ms=now_ms
            ):
                logger.warning("%(warning)s", {"warning": self._duplicates.warning(identity)})
            self._forget(BrokerAddrInfo(group.cluster, replaced))
        addrs[broker_id] = address
        return replaced is None

    def _update_topics(
        self,
        registration: BrokerRegistration,
        group: BrokerGroup,
        before: BrokerLiveInfo | None,
        is_first: bool,
        delete_missing_topics: bool,
    ) -> Steps[bool]:
        """Update the queues from a master, or from the slave that may act for it.

        Returns: steps that return whether all topics of a master are in the table.
        """
        is_master = registration.broker_id == MASTER_ID
        is_prime_slave = (
            not is_master
            and registration.enable_acting_master is not None
            and registration.broker_id == min(group.broker_addrs)
        )
        if not is_master and not is_prime_slave:
            return False
        name, topics = group.broker_name, registration.topics
        if delete_missing_topics and len(topics) > 1 and not registration.queue_mappings:
            self.topics.keep_only(name, {topic.topic_name for topic in topics})
        changed = is_first or before is None or before.data_version != registration.data_version
        # Missing topics are added even if the version is unchanged, because all parts of a split
        # registration may have the same version.
        has_all = yield from self.topics.put_topics(
            name,
            topics,
            only_missing=not changed,
            keep_perm=~PERM_WRITE if is_prime_slave and group.enable_acting_master else -1,
        )
        if changed:
            self.topics.put_mappings(name, registration.queue_mappings)
        return has_all and is_master

    def _update_filter_servers(
        self, addr_info: BrokerAddrInfo, registration: BrokerRegistration
    ) -> None:
        if registration.filter_servers is None:
            return
        kept = tuple(filter(is_address, registration.filter_servers[:FILTER_SERVERS_MAX]))
        if kept != self._filter_servers.get(addr_info, ()):
            self.topics.answers.clear()
        if kept:
            self._filter_servers[addr_info] = kept
        else:
            self._filter_servers.pop(addr_info, None)

    def _result(
        self, registration: BrokerRegistration, group: BrokerGroup, change: MinBrokerIdChange | None
    ) -> RegisterBrokerResult:
        """The result, with the master's addresses for a slave."""
        master_addr = group.broker_addrs.get(MASTER_ID)
        warning = self._duplicates.warning((group.broker_name, registration.broker_id))
        if registration.broker_id == MASTER_ID or master_addr is None:
            return RegisterBrokerResult(change=change, warning=warning)
        live = self._live[BrokerAddrInfo(group.cluster, master_addr)]
        return RegisterBrokerResult(master_addr, live.ha_server_addr, change, warning)

    def update_heartbeat(self, addr_info: BrokerAddrInfo, *, now_ms: int) -> None:
        """Record a heartbeat; that of an unregistered broker is ignored."""
        live = self._live.get(addr_info)
        if live is not None:
            live.last_update_ms = now_ms

    def data_version(self, addr_info: BrokerAddrInfo) -> DataVersion | None:
        """The version of the table that a broker registered last; None: it is not registered."""
        live = self._live.get(addr_info)
        return None if live is None else live.data_version

    def channel_of(self, addr_info: BrokerAddrInfo) -> object | None:
        """The connection of a broker's last registration; None: it is not registered."""
        live = self._live.get(addr_info)
        return None if live is None else live.channel

    # Removal

    def unregister_broker(self, addr_info: BrokerAddrInfo, broker_name: str) -> Removal:
        """Remove a broker on its request; one that has another name is ignored."""
        self._duplicates.unregistered(addr_info.broker_addr)
        live = self._live.get(addr_info)
        if live is None or live.broker_name != broker_name:
            logger.info(
                "unregister %(broker)s as %(broker_name)s: there is no such broker",
                {"broker": addr_info, "broker_name": broker_name},
            )
            return Removal()
        return self._counted("unregistered", self.remove_brokers([addr_info]))

    def channel_closed(self, channel: object) -> Removal:
        """Remove the brokers whose last registration came on a closed connection."""
        self._duplicates.channel_closed(channel)
        lost = self._live.of_channel(channel)
        return self._counted("connection_closed", self.remove_brokers(lost))

    def expire(self, *, now_ms: int) -> Removal:
        """Remove the brokers without a heartbeat for longer than their time-out."""
        self._duplicates.expire(now_ms)
        silent = [
            addr_info
            for addr_info, live in self._live.items()
            if live.last_update_ms + live.heartbeat_timeout_ms < now_ms
        ]
        for addr_info in silent:
            timeout_ms = self._live[addr_info].heartbeat_timeout_ms
            logger.warning(
                "broker %(broker)s is removed from all routes: no heartbeat for %(timeout_ms)d ms",
                {"broker": addr_info, "timeout_ms": timeout_ms},
            )
        return self._counted("silent", self.remove_brokers(silent))

    def _counted(self, reason: str, removal: Removal) -> Removal:
        self.removed[reason] += len(removal.brokers)
        return removal

    def remove_brokers(self, addr_infos: Iterable[BrokerAddrInfo]) -> Removal:
        """Remove brokers together, so that a group gets one notification of the result."""
        gone: list[BrokerAddrInfo] = []
        channels: list[object] = []
        offline: dict[str, str] = {}
        for addr_info in addr_infos:
            live = self._live.get(addr_info)
            if live is None:
                continue
            group = self._groups[live.broker_name]
            had_min_id = group.broker_addrs[min(group.broker_addrs)] == addr_info.broker_addr
            self._forget(addr_info)
            for broker_id in [i for i, a in group.broker_addrs.items() if a == addr_info[1]]:
                del group.broker_addrs[broker_id]
            gone.append(addr_info)
            channels.append(live.channel)
            logger.info(
                "broker %(broker_name)s removed: %(broker)s",
                {"broker_name": live.broker_name, "broker": addr_info},
            )
            if not group.broker_addrs:
                self._remove_group(group)
                continue
            if had_min_id:
                offline[group.broker_name] = addr_info.broker_addr
            if group.enable_acting_master and not group.has_master():
                at_once(self.topics.change_perm(group.broker_name, keep=~PERM_WRITE, add=0))
        left = [(self._groups[name], address) for name, address in offline.items()
                if name in self._groups]  # fmt: skip
        changes = tuple(
            min_broker_id_change(group, address, None)
            for group, address in left
            if group.enable_acting_master
        )
        return Removal(tuple(gone), tuple(channels), changes)

    def _forget(self, addr_info: BrokerAddrInfo) -> None:
        self.topics.answers.clear()
        self._live.remove(addr_info)
        self._filter_servers.pop(addr_info, None)

    def _remove_group(self, group: BrokerGroup) -> None:
        del self._groups[group.broker_name]
        names = self._clusters[group.cluster]
        names.discard(group.broker_name)
        if not names:
            del self._clusters[group.cluster]
        self.topics.remove_broker(group.broker_name)

    # Topics

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> bool:
        """Set the queues of one topic, for a broker that registers topics one by one.

        Returns: False: a broker is not registered; its queues and later ones are ignored.
        """
        for queue_data in queue_datas:
            if queue_data.broker_name not in self._groups:
                name = queue_data.broker_name[:80]
                logger.warning(
                    "topic %(topic)r registered for an unknown broker %(broker_name)r",
                    {"topic": topic[:80], "broker_name": name},
                )
                return False
            self.topics.put(topic, queue_data)
        return True

    def delete_topic(self, topic: str, cluster_name: str = "") -> None:
        """Remove a topic, until a broker that has it registers again.

        Args:
          topic: need not exist.
          cluster_name: need not exist; "": in all clusters.
        """
        if not cluster_name:
            self.topics.remove_topic(topic)
            return
        for broker_name in list(self.topics.queues(topic)):
            if self._groups[broker_name].cluster == cluster_name:
                self.topics.remove(topic, broker_name)

    def wipe_write_perm(self, broker_name: str) -> Steps[int]:
        """Make all queues of a broker read-only, until its topics change or it registers anew.

        Returns: steps that return the number of its topics; 0 for an unknown broker.
        """
        return self.topics.change_perm(broker_name, keep=~PERM_WRITE, add=0)

    def add_write_perm(self, broker_name: str) -> Steps[int]:
        """Make all queues of a broker readable and writable.

        As with RocketMQ this removes the inheritance bit, for instance that of TBW102.

        Returns: steps that return the number of its topics; 0 for an unknown broker.
        """
        return self.topics.change_perm(broker_name, keep=0, add=PERM_READ | PERM_WRITE)

    # Queries

    def pick_up_topic_route_data(
        self, topic: str, *, support_acting_master: bool = False
    ) -> TopicRouteData | None:
        """The route of a topic; None: no broker has it.

        Args:
          topic: any string from the wire.
          support_acting_master: `supportActingMaster`: a group without a master shows its slave
            with the smallest id as id 0, if the group allows it and its queues are read-only.
        """
        queues = self.topics.queues(topic)
        if not queues:
            return None
        acting = support_acting_master and not topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX)
        broker_datas: list[BrokerData] = []
        filter_servers: dict[str, list[str]] = {}
        for name, queue_data in queues.items():
            group = self._groups[name]
            data = group.data()
            for address in group.broker_addrs.values() if self._filter_servers else ():
                servers = self._filter_servers.get(BrokerAddrInfo(group.cluster, address))
                if servers is not None:
                    filter_servers[address] = list(servers)
            if acting and group.enable_acting_master and MASTER_ID not in data.broker_addrs:
                show_acting_master(data, queue_data)
            broker_datas.append(data)
        mappings = self.topics.mappings(topic)
        return TopicRouteData(
            queue_datas=list(queues.values()),
            broker_datas=broker_datas,
            filter_server_table=filter_servers,
            topic_queue_mapping_by_broker=None if mappings is None else dict(mappings),
        )

    def route_body(self, topic: str, form: Form) -> bytes | None:
        """The text of `pick_up_topic_route_data`, kept until it changes; None: no broker has it."""
        body = self.topics.answers.get(topic, form)
        if body is not None:
            return body
        route = self.pick_up_topic_route_data(topic, support_acting_master=form.shows_acting)
        if route is None:
            return None
        body = route.to_body(quote_int_keys=form.quotes_keys)
        self.topics.answers.keep(topic, form, body)
        return body

    def cluster_info(self) -> ClusterInfo:
        """All brokers, by name and by cluster."""
        return ClusterInfo(
            broker_addr_table={name: group.data() for name, group in self._groups.items()},
            cluster_addr_table={name: sorted(names) for name, names in self._clusters.items()},
        )

    def warnings(self) -> list[str]:
        """Names and ids that several connected brokers register, as sentences for operators."""
        return self._duplicates.warnings()

    def broker_addrs(self, broker_name: str) -> dict[int, str]:
        """The addresses of a broker group by broker id; empty for an unknown group."""
        group = self._groups.get(broker_name)
        return {} if group is None else dict(group.broker_addrs)

    def topics_of_cluster(self, cluster_name: str) -> Steps[list[str]]:
        """Steps that collect the topics of a cluster's brokers; empty for an unknown cluster."""
        return self.topics.topics_of_brokers(sorted(self._clusters.get(cluster_name, ())))

    def system_topics(self) -> tuple[list[str], str | None]:
        """The topics named after clusters and brokers, and the address of one broker."""
        names = list(self._clusters)
        for broker_names in self._clusters.values():
            names += sorted(broker_names)
        for group in self._groups.values():
            return names, group.broker_addrs[min(group.broker_addrs)]
        return names, None

    def silences_ms(self, now_ms: int) -> dict[BrokerAddrInfo, int]:
        """The time since each broker's last registration or heartbeat."""
        return {each: now_ms - live.last_update_ms for each, live in self._live.items()}

    def live_brokers(self) -> dict[BrokerAddrInfo, str]:
        """The live brokers with their names."""
        return {addr_info: live.broker_name for addr_info, live in self._live.items()}


def _log_renamed(broker: BrokerAddrInfo, before: str, name: str) -> None:
    logger.warning(
        "%(broker)s changes its broker name from %(before)s to %(broker_name)s",
        {"broker": broker, "before": before, "broker_name": name},
    )


def _log_registered(broker: BrokerAddrInfo, name: str, broker_id: int) -> None:
    logger.info(
        "broker %(broker_name)s id %(broker_id)d registered: %(broker)s",
        {"broker_name": name, "broker_id": broker_id, "broker": broker},
    )
