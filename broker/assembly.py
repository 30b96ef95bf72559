"""Assembly of a broker: creates its parts and connects them; nothing here runs.

Each function creates parts from earlier ones, so the order of the calls in `assemble` is the order
of dependencies. Where an earlier part has to notify a later one, `_connect` subscribes a callback
at the end.

`assemble` creates everything but the request processors: they need the broker's address, so
`request_table.py` creates them once that is known. `followed_settings.py` connects the parts to
changes of keys.

Java counterpart: the constructor and initialize of broker/BrokerController.java of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from random import Random
from typing import TYPE_CHECKING

import trio

from ..auth.accounts import ACCOUNTS_FILE
from ..auth.need_tables import NEEDS_OF_BROKER
from ..auth.needs import Places
from ..auth.server_access import ServerAccess
from ..common.live_config import LiveConfig
from ..common.supervision import FailureLog
from ..native import Extension, extension
from ..remoting.bodies import TopicConfig
from ..remoting.channel import Channel
from ..remoting.client import RemotingClient
from ..remoting.refusals import Refusals
from ..remoting.tls_settings import Tls
from ..remoting.turn import Turn
from ..store.clock import Clock, WallTimeMs
from ..store.config import MessageStoreConfig
from ..store.disk.os_disk import Disk
from ..store.ha.slave import Connect, HaSlave, connect_tcp
from ..store.message_store import MessageStore
from ..store.state.state_files import StateFiles
from .attributes import BATCH_CQ, QUEUE_TYPE
from .bloom import BloomFilter
from .broker_address import BrokerAddress
from .config import BrokerConfig, known_keys
from .config_checks import check_values
from .consumer_filter_manager import ConsumerFilterManager
from .consumer_manager import ConsumerManager
from .consumer_offset_manager import ConsumerOffsetManager
from .delay_offset_manager import DelayOffsetManager
from .fast_paths import fast_paths
from .filter_bit_maps import FilterBitMaps
from .filter_server_keeper import FilterServerKeeper, OpenProcess, open_filter_server
from .filter_server_manager import FilterServerManager
from .inner_message import DelayLevels, InnerPuts
from .member_notifier import MemberNotifier
from .notifier import Notifier
from .peer_brokers import PeerBrokers
from .pop.assembly import assemble_pop
from .pop.parts import Pop
from .pop.request_modes import MessageRequestModeManager
from .processors.pull_message import PullMessageProcessor
from .processors.static_topic import StaticTopicProcessor
from .producer_manager import ProducerManager
from .rebalance_lock_manager import RebalanceLockManager
from .registration import Registrar
from .registration_request import BrokerIdentity
from .replication import MasterSide, SlaveSide
from .runtime_info import RuntimeInfo
from .schedule_message_service import ScheduleMessageService
from .slave_offsets import SlaveOffsets
from .slave_synchronize import SlaveSynchronize
from .statistics.broker_stats_manager import BrokerStatsManager
from .statistics.pop_counts import PopCounts
from .stored_topic import topic_of_message
from .subscription_group_manager import SubscriptionGroupManager
from .table_loading import unmark_deleted
from .timer_message_service import TimerMessageService
from .topic_config_manager import TopicConfigManager
from .topic_queue_mapping_clean import TopicQueueMappingCleanService
from .topic_queue_mapping_manager import TopicQueueMappingManager
from .topic_routes import TopicRoutes
from .transaction_service import TransactionService

if TYPE_CHECKING:
    from .plain_acl import PlainAclAccess

_failures = FailureLog(logging.getLogger(__name__))

NewMessages = Notifier[Collection[tuple[str, int]]]
"""Notifies of queues (topic and queue id) that have new readable messages."""


@dataclass(frozen=True, slots=True)
class Seams:
    """A broker's dependencies on its environment; tests replace them.

    Attributes:
      clock, disk: time and files.
      turn: the server's; other servers of the process may share it.
      random: picks queues for producers that leave the choice to the broker.
      client: calls the name servers, and a slave's master; shares the turn.
      open_process: starts a filter server.
      ha_connect: connects a slave to its master's haListenPort.
      native: the C extension; None: pure Python.
      config_path: the file of the configuration; "": there is none.
      tls: of the broker's listeners; None: RocketMQ's defaults.
      clients_ms: the time of day of clients, ms since 1970; None: `clock`'s. A test that advances
        `clock` does not advance its clients.
    """

    clock: Clock
    disk: Disk
    turn: Turn
    random: Random
    client: RemotingClient
    open_process: OpenProcess = open_filter_server
    ha_connect: Connect = connect_tcp
    native: Extension | None = extension
    config_path: str = ""
    tls: Tls | None = None
    clients_ms: Callable[[], WallTimeMs] | None = None


@dataclass(frozen=True, slots=True)
class Foundation:
    """The configuration, environment, address and store that all parts of a broker use.

    Attributes:
      address: known once the broker listens.
      store: empty until it is loaded.
    """

    config: BrokerConfig
    seams: Seams
    address: BrokerAddress
    store: MessageStore


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that the broker saves under `config/`, and that folder's files.

    Attributes:
      access: the accounts, and the check of requests by them.
    """

    files: StateFiles
    access: ServerAccess
    topics: TopicConfigManager
    mappings: TopicQueueMappingManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    delay_offsets: DelayOffsetManager
    filters: ConsumerFilterManager
    request_modes: MessageRequestModeManager


@dataclass(frozen=True, slots=True)
class Clients:
    """Connected clients and filter servers, the consumers' locks of queues, and the notifications
    of their groups."""

    producers: ProducerManager
    consumers: ConsumerManager
    locks: RebalanceLockManager
    filter_servers: FilterServerManager
    notifier: MemberNotifier


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The services that store messages without a client's send: delayed, timed, transactional."""

    puts: InnerPuts
    transactions: TransactionService
    schedule: ScheduleMessageService
    timers: TimerMessageService


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """A complete broker without its sockets and request processors.

    Attributes:
      address, store: see `Foundation`.
      new_messages: notified of every message that can be read.
      closed_channels: notified of every connection that is closed.
      keeper: starts and restarts filter servers.
      replication: the broker's role in its group.
      registrar: keeps the broker registered with the name servers.
      routes: what the name servers know of topics that clients have assigned to them.
      static: rewrites requests for static topics.
      mapping_cleaner: cleans their mappings.
      pulls: serves pulls, and holds those that wait for messages.
      pop: the parts of pop consumption.
      stats: the counters.
      refusals: what the limits refuse, of the connections and of the tables.
      runtime_info: what the broker tells of itself.
      live: changes `config` and the store's while the broker runs.
      plain_acl: the accounts of ACL 1.0; None: aclEnable is false.
    """

    config: BrokerConfig
    seams: Seams
    address: BrokerAddress
    store: MessageStore
    tables: Tables
    clients: Clients
    new_messages: NewMessages
    closed_channels: Notifier[Channel]
    deliveries: Deliveries
    keeper: FilterServerKeeper
    replication: MasterSide | SlaveSide
    registrar: Registrar
    routes: TopicRoutes
    static: StaticTopicProcessor
    mapping_cleaner: TopicQueueMappingCleanService
    pulls: PullMessageProcessor
    pop: Pop
    stats: BrokerStatsManager
    refusals: Refusals
    runtime_info: RuntimeInfo
    live: LiveConfig
    plain_acl: PlainAclAccess | None

    @property
    def has_access_control(self) -> bool:
        """Whether requests need an account, of whichever generation."""
        return self.plain_acl is not None or self.tables.access.control is not None

    @property
    def sql_filters(self) -> ConsumerFilterManager | None:
        """The table of filters; None: enablePropertyFilter is false."""
        return self.tables.filters if self.config.enable_property_filter else None


def assemble(config: BrokerConfig, store_config: MessageStoreConfig, seams: Seams) -> BrokerParts:
    """Create the parts of a broker and connect them.

    Args:
      config: the broker's keys.
      store_config: the store's keys.
      seams: its dependencies on the environment.
    """
    # From the store upwards: each part gets those before it as arguments. What would be a circle
    # (new messages wake pulls, closed connections leave groups) is connected last, by `_connect`.
    address, peers = BrokerAddress(config, store_config), PeerBrokers(config, seams.client)
    store = MessageStore(store_config, clock=seams.clock, disk=seams.disk, native=seams.native)
    foundation = Foundation(config, seams, address, store)
    refusals = Refusals()
    tables = _tables(foundation, refusals)
    clients = _clients(config, tables)
    new_messages = NewMessages(_failures, "notifying of new messages", "They may be delivered late")
    closed_channels = Notifier[Channel](
        _failures,
        "forgetting a client",
        "Its group learns that it left when its heartbeats have expired",
    )
    deliveries = _deliveries(foundation, tables, clients, new_messages)
    keeper = _keeper(foundation, clients.filter_servers)
    replication = _replication(foundation, tables, deliveries)
    identity = partial(_identity, config, address, clients.filter_servers, tables.mappings)
    registrar = Registrar(config, seams.client, tables.topics, identity, replication.on_master)
    static = StaticTopicProcessor(config, tables.mappings, peers, now_s=trio.current_time)
    cleaner = TopicQueueMappingCleanService(tables.mappings, store, peers)
    stats = BrokerStatsManager(
        config.broker_cluster_name,
        store.queue_store.queues,
        counts_puts=not store.is_slave,
        clock=seams.clock,
        has_details=config.enable_detail_stat,
    )
    bit_maps = FilterBitMaps(tables.filters, monotonic_s=seams.clock.monotonic_s)
    pulls = PullMessageProcessor(
        config,
        store,
        topics=tables.topics,
        groups=tables.groups,
        consumers=clients.consumers,
        offsets=tables.offsets,
        now_s=trio.current_time,
        filters=tables.filters if config.enable_property_filter else None,
        bit_maps=bit_maps,
        replication=replication,
        stats=stats,
        static=static,
    )
    runtime_info = RuntimeInfo(
        config,
        store,
        stats,
        delay_offsets=tables.delay_offsets,
        timers=deliveries.timers if store.config.timer_wheel_enable else None,
        is_active=lambda: not store.is_slave,
        paths=partial(fast_paths, store, pulls),
    )
    pop = _pop(foundation, tables, deliveries, new_messages, stats.pop)
    parts = BrokerParts(
        config, seams, address, store, tables, clients, new_messages, closed_channels, deliveries,
        keeper, replication, registrar, TopicRoutes(config, seams.client), static, cleaner, pulls,
        pop, stats, refusals, runtime_info,
        LiveConfig((config, store_config), known_keys, check=check_values, server="the broker"),
        _plain_acl(foundation, tables.access.places),
    )  # fmt: skip
    _connect(parts, bit_maps)
    return parts


def _plain_acl(foundation: Foundation, places: Places) -> PlainAclAccess | None:
    if not foundation.config.acl_enable:
        return None
    from .plain_acl import PlainAclAccess  # needs PyYAML

    config, clock = foundation.config, foundation.seams.clock
    return PlainAclAccess(config, foundation.address, places, clock=clock)


def _places(
    foundation: Foundation, topics: TopicConfigManager, groups: SubscriptionGroupManager
) -> Places:
    return Places(
        foundation.config.broker_cluster_name,
        partial(topic_of_message, foundation.store),
        groups.contains,
        topics.topic_config_table.__contains__,
    )


def _keeper(foundation: Foundation, servers: FilterServerManager) -> FilterServerKeeper:
    seams = foundation.seams
    return FilterServerKeeper(
        foundation.config,
        foundation.address.port,
        servers,
        open_process=seams.open_process,
        tls=seams.tls.config if seams.tls is not None else None,
    )


def _tables(foundation: Foundation, refusals: Refusals) -> Tables:
    config, store, clock = foundation.config, foundation.store, foundation.seams.clock
    files = StateFiles(
        foundation.seams.disk,
        str(PurePosixPath(store.config.store_path_root_dir) / "config"),
        secret=(ACCOUNTS_FILE,),
    )
    later = files.later if files.may_put_off else None
    topics = TopicConfigManager(
        config, clock=clock, save=files.save, save_later=later, refusals=refusals
    )
    groups = SubscriptionGroupManager(
        config, clock=clock, save=files.save, save_later=later, refusals=refusals
    )
    return Tables(
        files,
        ServerAccess(config, files, NEEDS_OF_BROKER, _places(foundation, topics, groups)),
        topics,
        TopicQueueMappingManager(
            config.broker_name, clock=clock, save=files.save, save_later=later
        ),
        groups,
        ConsumerOffsetManager(clock=clock, save=files.save),
        DelayOffsetManager(
            clock=clock, version_step=config.delay_offset_update_version_step, save=files.save
        ),
        ConsumerFilterManager(
            clock=clock,
            save=files.save,
            newest_ms=lambda: store.store_time_ms,
            bloom=BloomFilter.create(
                config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
            ),
            kept_dead_ms=config.filter_data_clean_time_span,
        ),
        MessageRequestModeManager(save=files.save, save_later=later),
    )


def _clients(config: BrokerConfig, tables: Tables) -> Clients:
    expired_s = config.channel_expired_timeout / 1000
    notifier = MemberNotifier(lambda: config.notify_consumer_ids_changed_enable)
    return Clients(
        ProducerManager(expired_s=expired_s),
        ConsumerManager(
            notify=notifier.notify,
            expired_s=expired_s,
            on_group_gone=tables.filters.unregister,
        ),
        RebalanceLockManager(),
        FilterServerManager(),
        notifier,
    )


def _deliveries(
    foundation: Foundation,
    tables: Tables,
    clients: Clients,
    new_messages: NewMessages,
) -> Deliveries:
    config, store, clock = foundation.config, foundation.store, foundation.seams.clock
    levels = DelayLevels(store.config.message_delay_level)
    puts = InnerPuts(store, levels, config.msg_trace_topic_name)
    return Deliveries(
        puts,
        TransactionService(
            config,
            store,
            address=foundation.address,
            clock=clock,
            producers=clients.producers,
            offsets=tables.offsets,
            puts=puts,
            on_messages=new_messages.notify,
        ),
        ScheduleMessageService(
            store,
            clock=clock,
            levels=levels,
            offsets=tables.delay_offsets,
            puts=puts,
            on_messages=new_messages.notify,
        ),
        TimerMessageService(store, clock=clock, puts=puts, on_messages=new_messages.notify),
    )


def _pop(
    foundation: Foundation,
    tables: Tables,
    deliveries: Deliveries,
    new_messages: NewMessages,
    counts: PopCounts,
) -> Pop:
    return assemble_pop(
        foundation.config,
        foundation.store,
        foundation.address,
        clock=foundation.seams.clock,
        clients_ms=foundation.seams.clients_ms,
        files=tables.files,
        topics=tables.topics,
        groups=tables.groups,
        offsets=tables.offsets,
        puts=deliveries.puts,
        timers=deliveries.timers,
        on_messages=new_messages.notify,
        counts=counts,
    )


def _replication(
    foundation: Foundation, tables: Tables, deliveries: Deliveries
) -> MasterSide | SlaveSide:
    config, store, seams = foundation.config, foundation.store, foundation.seams
    if not store.is_slave:
        return MasterSide(store)
    ha = HaSlave(store, connect=seams.ha_connect)
    synchronize = SlaveSynchronize(
        config,
        store,
        seams.client,
        ha,
        topics=tables.topics,
        mappings=tables.mappings,
        groups=tables.groups,
        offsets=SlaveOffsets(tables.offsets, store.max_offset),
        delay_offsets=tables.delay_offsets,
        timers=deliveries.timers,
        request_modes=tables.request_modes,
        accounts=tables.access.copied_accounts,
    )
    return SlaveSide(ha, synchronize, own_address=store.config.ha_master_address, clock=seams.clock)


def _identity(
    config: BrokerConfig,
    address: BrokerAddress,
    filter_servers: FilterServerManager,
    mappings: TopicQueueMappingManager,
) -> BrokerIdentity:
    return BrokerIdentity(
        config,
        address.broker_addr,
        address.ha_server_addr(),
        filter_servers.addresses,
        mappings.topic_queue_mapping_table,
    )


def _connect(parts: BrokerParts, bit_maps: FilterBitMaps) -> None:
    """Subscribe parts to the events of others."""
    config, store, deliveries = parts.config, parts.store, parts.deliveries
    parts.new_messages.subscribe(
        parts.pulls.hold_service.notify_messages,
        parts.pop.hold.arrived,
        parts.static.arrived,
        deliveries.schedule.arrived,
        deliveries.timers.arrived,
        parts.pop.revive.arrived,
    )
    parts.closed_channels.subscribe(
        parts.clients.filter_servers.channel_closed,
        parts.clients.consumers.channel_closed,
        parts.clients.producers.channel_closed,
        parts.pop.hold.channel_closed,
    )
    if store.is_slave:
        parts.new_messages.subscribe(parts.replication.arrived)
    control = parts.plain_acl or parts.tables.access.control
    if control is not None:
        deliveries.transactions.may_ask = control.may_publish
        parts.clients.producers.may_send = control.may_send
        parts.pulls.follow(control)
        parts.pop.hold.rights = control
    # Messages that become visible outside of a turn: after an fsync, or copied from a master.
    store.on_visible = parts.new_messages.notify
    if config.enable_property_filter and config.enable_calc_filter_bit_map:
        store.queue_store.bitmap_of = bit_maps.bit_map_of

    def on_topics_changed(topics: Sequence[TopicConfig]) -> None:
        note_batch_topics(store, topics)
        parts.registrar.topics_changed(topics)
        unmark_deleted(store, topics)

    def on_filter_servers_changed() -> None:
        parts.registrar.changed()
        parts.keeper.wake()

    parts.tables.topics.on_change = on_topics_changed
    parts.tables.mappings.changes.subscribe(parts.tables.topics.mapping_changed)
    parts.clients.filter_servers.on_change = on_filter_servers_changed


def note_batch_topics(store: MessageStore, topics: Iterable[TopicConfig]) -> None:
    """Register with a store those of these topics that have queues of batches."""
    for topic in topics:
        if topic.attributes.get(QUEUE_TYPE) == BATCH_CQ:
            store.queue_store.batch_topics.add(topic.topic_name)
