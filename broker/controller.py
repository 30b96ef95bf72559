"""BrokerController: one running broker.

The shell: it owns the sockets, the tasks and the files of configuration, and puts the pure parts
together. What a request does is in the processors' modules.

A turn of any connection ends in `SendMessageProcessor.end_turn`: one write for everything that
was sent, then the pulls that waited for it.

Java counterpart: broker/BrokerController.java of 5.3.3.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import PurePosixPath
from random import Random

import trio

from ..common.machine import local_address
from ..common.supervision import FailureLog, Supervisor, notify_each
from ..remoting.bodies import TopicConfig
from ..remoting.channel import Channel, Processor
from ..remoting.client import RemotingClient
from ..remoting.errors import LocalProtocolError
from ..remoting.hosts import host_bytes, join_address
from ..remoting.message_id import UniqueIdGenerator
from ..remoting.request_codes import RequestCode
from ..remoting.server import RemotingServer
from ..remoting.transport import format_address
from ..remoting.turn import Turn
from ..store.clock import Clock
from ..store.config import MessageStoreConfig
from ..store.disk.os_disk import Disk
from ..store.errors import StoreError
from ..store.ha.slave import Connect, HaSlave, connect_tcp
from ..store.message_store import MessageStore
from ..store.services import run_services
from ..store.state.state_files import StateFiles
from .attributes import BATCH_CQ, QUEUE_TYPE
from .bloom import BloomFilter
from .config import BrokerConfig
from .consumer_filter_manager import ConsumerFilterManager, warm_up
from .consumer_manager import ConsumerManager, notify_consumer_ids_changed, notify_nobody
from .consumer_offset_manager import ConsumerOffsetManager
from .delay_offset_manager import DelayOffsetManager
from .filter_bit_maps import FilterBitMaps
from .filter_server_keeper import FilterServerKeeper, OpenProcess, open_filter_server
from .filter_server_manager import FilterServerManager
from .inner_message import DelayLevels, InnerPuts
from .listening import connection_limits, ha_port, listen, listen_for_slaves
from .processors.client_admin import ClientAdminProcessor
from .processors.client_manage import ClientManageProcessor
from .processors.consumer_manage import ConsumerManageProcessor
from .processors.end_transaction import EndTransactionProcessor
from .processors.filter_server import FilterServerProcessor
from .processors.group_admin import GroupAdminProcessor
from .processors.lock import LockProcessor
from .processors.pull_message import PullMessageProcessor
from .processors.query_message import QueryMessageProcessor
from .processors.queue_offset import QueueOffsetProcessor
from .processors.recall_message import RecallMessageProcessor
from .processors.replication import ReplicationProcessor
from .processors.reply_message import ReplyMessageProcessor
from .processors.send_back import SendBackProcessor
from .processors.send_message import SendMessageProcessor
from .processors.slave import slave_refusals
from .processors.topic_admin import TopicAdminProcessor
from .producer_manager import ProducerManager
from .rebalance_lock_manager import RebalanceLockManager
from .registration import Registrar
from .replication import MasterSide, SlaveSide
from .schedule_message_service import ScheduleMessageService
from .slave_offsets import SlaveOffsets
from .slave_synchronize import SlaveSynchronize
from .subscription_group_manager import SubscriptionGroupManager
from .table_loading import TableLoader, note_made
from .table_saver import TableSaver
from .timer_message_service import TimerMessageService
from .topic_config_manager import TopicConfigManager
from .transaction_service import TransactionService

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

SCAN_CLIENTS_INTERVAL_S = 10.0
"""Between two looks for clients whose heartbeats stay away. RocketMQ: ClientHousekeepingService."""

SAVE_FILTERS_INTERVAL_S = 10.0
"""Between two looks for filters that changed. RocketMQ: BrokerController.initialize."""

GOODBYE_TIMEOUT_S = 5.0
"""A stopping broker does not wait longer for its name servers."""


class BrokerController:
    """One broker.

    Lifecycle: make it, start `run` in a nursery, cancel it to stop. Owner: that one task.

    Args:
      config: the broker's keys; broker_name, broker_ip1 and broker_ip2 are filled in.
      store_config: the store's keys.
      clock, disk: the seams of time and files.
      turn: shared with another server of the same process; None: its own.
      listeners: sockets to serve on, from `open_listener`; None: those that `config` says.
      random: picks queues for producers that leave it to the broker.
      client: calls the name servers, and a slave's master; shares the turn. None: one that
        connects by TCP.
      open_process: starts a filter server.
      ha_connect: connects a slave to its master's haListenPort.
      expects_slaves: slaves may come although nothing in `config` speaks of them; not to a broker
        in a test.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        *,
        clock: Clock,
        disk: Disk,
        turn: Turn | None = None,
        listeners: Sequence[socket.socket] | None = None,
        random: Random | None = None,
        client: RemotingClient | None = None,
        open_process: OpenProcess = open_filter_server,
        ha_connect: Connect = connect_tcp,
        expects_slaves: bool = True,
    ) -> None:
        self.config = config
        self._clock = clock
        self._turn = turn or Turn()
        self._listeners, self._expects_slaves = listeners, expects_slaves
        self._random = random or Random()
        self._addresses: tuple[str, ...] = ()
        self._broker_addr = ""
        self.store = MessageStore(store_config, clock=clock, disk=disk)
        config_folder = str(PurePosixPath(store_config.store_path_root_dir) / "config")
        self._files = files = StateFiles(disk, config_folder)
        later = files.later if files.may_put_off else None
        self.topics = TopicConfigManager(config, clock=clock, save=files.save, save_later=later)
        self.groups = SubscriptionGroupManager(
            config, clock=clock, save=files.save, save_later=later
        )
        self.offsets = ConsumerOffsetManager(clock=clock, save=files.save)
        self.delay_offsets = DelayOffsetManager(
            clock=clock, version_step=config.delay_offset_update_version_step, save=files.save
        )
        levels = DelayLevels(store_config.message_delay_level)
        self._puts = InnerPuts(self.store, levels, config.msg_trace_topic_name)
        self.producers = ProducerManager(expired_s=config.channel_expired_timeout / 1000)
        self.transactions = TransactionService(
            config,
            self.store,
            clock=clock,
            producers=self.producers,
            offsets=self.offsets,
            puts=self._puts,
            on_messages=self._on_messages,
        )
        self.schedule = ScheduleMessageService(
            self.store,
            clock=clock,
            levels=levels,
            offsets=self.delay_offsets,
            puts=self._puts,
            on_messages=self._on_messages,
        )
        self.timers = TimerMessageService(
            self.store, clock=clock, puts=self._puts, on_messages=self._on_messages
        )
        self.filters = self._filter_manager()
        self.consumers = self._consumer_manager()
        self._locks = RebalanceLockManager()
        self.filter_servers = FilterServerManager(on_change=self._on_filter_servers_changed)
        self._keeper = FilterServerKeeper(
            config, lambda: self._port, self.filter_servers, open_process=open_process
        )
        self.client = client or RemotingClient(turn=self._turn)
        self.replication = self._make_replication(ha_connect)
        self.registrar = self._make_registrar()
        self.topics.on_change = self._on_topics_changed
        self.pulls = self._pull_processor()
        self.server: RemotingServer | None = None

    @property
    def listen_addresses(self) -> tuple[str, ...]:
        """Where it listens, the VIP port last; known once it runs."""
        return self._addresses

    @property
    def broker_addr(self) -> str:
        """`host:port` that clients are told; known once it runs."""
        return self._broker_addr

    @property
    def sends_refused(self) -> str:
        """Why the store takes no message now, for people; "" when it does."""
        return self.store.read_only_reason or self.store.disk_full

    def wall_clock_set(self) -> None:
        """Whoever set the wall clock on says so: what is due now comes at once, not in a second."""
        for service in (self.schedule, self.timers, self.transactions):
            service.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started means bound, loaded and registered where it can be.

        Raises:
          OSError: an address is taken or not ours; the text names it.
          StoreError: the data folder is locked, damaged, not writable or full.
        """
        listeners = self._listeners
        if listeners is None:
            listeners = listen(self.config.bind_address, self.config.listen_port)
        self._addresses = tuple(format_address(sock.getsockname()) for sock in listeners)
        port = int(self._addresses[0].rpartition(":")[2]) if listeners else self.config.listen_port
        self._broker_addr = self.config.address(port)
        ha_listeners: list[socket.socket] = []
        try:
            if listeners:
                ha_listeners += listen_for_slaves(
                    self.store.config, port, expected=self._expects_slaves
                )
            if self.config.enable_property_filter:
                warm_up()
            tables = self._load_tables()
            self._tell_batch_topics(self.topics.topic_config_table.values())
            was_killed = self.store.disk.exists(f"{self.store.config.store_path_root_dir}/abort")
            self.store.load()
            tables.make_good(self.store)
            if was_killed:
                self.filters.bear_again()
            if not self.store.is_slave:
                self.transactions.load()
            self.timers.load()
        except BaseException:
            for listener in (*listeners, *ha_listeners):
                listener.close()
            self.store.close()
            raise
        send = self._send_processor(port)
        self._turn.on_end = send.end_turn
        self.server = RemotingServer(
            self._processors(send),
            turn=self._turn,
            on_channel_closed=self._on_channel_closed,
            limits=connection_limits(self.config),
        )
        # Outlive the cancellation: what stops still needs the store, and says goodbye.
        scopes = [trio.CancelScope(shield=True), trio.CancelScope(shield=True)]
        try:
            async with trio.open_nursery() as base:
                # Who is told to stop while he starts them would wait for services that never end.
                with trio.CancelScope(shield=True):
                    await base.start(_run_in, scopes[0], partial(run_services, self.store))
                    await base.start(_run_in, scopes[1], self.client.run)
                try:
                    await self._serve(self.server, listeners, ha_listeners, task_status)
                finally:
                    try:
                        with trio.move_on_after(GOODBYE_TIMEOUT_S, shield=True):
                            await self.registrar.unregister_all()
                    finally:  # nobody else ends these two
                        for scope in scopes:
                            scope.cancel()
        finally:
            self._close()

    async def _serve(
        self,
        server: RemotingServer,
        listeners: Sequence[socket.socket],
        ha_listeners: Sequence[socket.socket],
        task_status: trio.TaskStatus[None],
    ) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            await nursery.start(self.replication.run, ha_listeners)
            services = Supervisor(nursery, logger)
            await services.start("the registration", self.registrar.run)
            services.start_soon("the keeping of filter servers", self._keeper.run)
            services.start_soon("the waking of held pulls", self.pulls.hold_service.run)
            services.every("the look for lost clients", SCAN_CLIENTS_INTERVAL_S, self._scan_clients)
            offsets_s = self.config.flush_consumer_offset_interval / 1000
            delay_offsets_s = self.store.config.flush_delay_offset_interval / 1000
            saver = TableSaver(self._files, self.store)
            saver.start_lazy(services, self.offsets.file, offsets_s, saver.sync_log)
            saver.start_lazy(
                services, self.delay_offsets.file, delay_offsets_s, saver.sync_log_or_fail
            )
            filters = self.filters
            saver.start_lazy(services, filters.file, SAVE_FILTERS_INTERVAL_S, look=filters.clean)
            saver.start_eager(services, self.topics.file, self.groups.file)
            if not self.store.is_slave:
                await self._deliver(services)
            logger.info("the broker %s listens on %s", self.config.broker_name, self._addresses)
            task_status.started()
            await trio.sleep_forever()

    async def _deliver(self, services: Supervisor) -> None:
        """Start what delivers, and asks producers: a master's work."""
        await services.start("the delivery of delayed messages", self.schedule.run)
        await services.start("the checks of transactions", self.transactions.run)
        services.start_soon("the saving of transactions", self.transactions.save)
        if self.store.config.timer_wheel_enable:
            services.start_soon("the delivery of timer messages", self.timers.run)
            services.start_soon("the saving of timers", self.timers.save)

    def _close(self) -> None:
        for what, close in (
            ("the log", self.store.flush),  # what was delivered, before it is noted so
            ("the delay offsets", self._persist_delay_offsets),
            ("the transactions", self._note_transactions),
            ("the timers", self.timers.note_progress),
            ("the offsets", self.offsets.file.persist_changed),
            ("the filters", self._persist_filters),
            ("the topics", self.topics.file.persist),
            ("the groups", self.groups.file.persist),
        ):
            try:
                close()
            except StoreError as error:
                logger.error("%s could not be saved: %s", what, error)
            except Exception as error:  # noqa: BLE001 - our bug: the others are saved
                _failures.note(f"saving {what}", "What it says stays as it was", error)
        self.store.close()

    def _make_registrar(self) -> Registrar:
        return Registrar(
            self.config,
            self.client,
            self.topics,
            lambda: self._broker_addr,
            self._ha_server_addr,
            lambda: self.filter_servers.addresses,
            self.replication.on_master,
        )

    def _make_replication(self, connect: Connect) -> MasterSide | SlaveSide:
        store, config = self.store, self.config
        if not store.is_slave:
            return MasterSide(store)
        ha = HaSlave(store, connect=connect)
        synchronize = SlaveSynchronize(
            config,
            store,
            self.client,
            ha,
            topics=self.topics,
            groups=self.groups,
            offsets=SlaveOffsets(self.offsets, store.max_offset),
            delay_offsets=self.delay_offsets,
            timers=self.timers,
        )
        return SlaveSide(
            ha, synchronize, own_address=store.config.ha_master_address, clock=self._clock
        )

    def _consumer_manager(self) -> ConsumerManager:
        tells = self.config.notify_consumer_ids_changed_enable
        return ConsumerManager(
            notify=notify_consumer_ids_changed if tells else notify_nobody,
            expired_s=self.config.channel_expired_timeout / 1000,
            on_group_gone=self.filters.unregister,
        )

    def _filter_manager(self) -> ConsumerFilterManager:
        config = self.config
        filters = ConsumerFilterManager(
            clock=self._clock,
            save=self._files.save,
            newest_ms=lambda: self.store.now_ms,
            bloom=BloomFilter.create(
                config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
            ),
            kept_dead_ms=config.filter_data_clean_time_span,
        )
        self._bit_maps = FilterBitMaps(filters, monotonic_s=self._clock.monotonic_s)
        if config.enable_property_filter and config.enable_calc_filter_bit_map:
            self.store.queue_store.bitmap_of = self._bit_maps.bit_map_of
        return filters

    def _pull_processor(self) -> PullMessageProcessor:
        return PullMessageProcessor(
            self.config,
            self.store,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            offsets=self.offsets,
            now_s=trio.current_time,
            filters=self.filters if self.config.enable_property_filter else None,
            bit_maps=self._bit_maps,
            has_master=lambda: self.replication.has_master,
        )

    def _send_processor(self, port: int) -> SendMessageProcessor:
        ip = self.config.broker_ip1
        try:
            store_host = host_bytes(ip.strip("[]"), port)
        except LocalProtocolError:
            # A name is advertised: records need an address, the one that we listen on will do.
            listened = self._addresses[0].rpartition(":")[0].strip("[]")
            anywhere = listened in ("0.0.0.0", "::")
            store_host = host_bytes(local_address() if anywhere else listened, port)
        self.transactions.store_host = store_host
        unique_ids = UniqueIdGenerator(store_host[:-4], os.getpid(), self._random.getrandbits(32))
        return SendMessageProcessor(
            self.config,
            self.store,
            self.topics,
            store_host,
            self._on_messages,
            unique_ids,
            self._random,
            inner=self._puts,
            groups=self.groups,
            is_ordered=self._is_ordered,
            transactions=self.transactions,
        )

    def _processors(self, send: SendMessageProcessor) -> dict[int, Processor]:
        self.store.on_visible = self._on_copied if self.store.is_slave else self._on_messages
        register_topics = self.registrar.register_topics
        tables: list[dict[RequestCode, Processor]] = [
            send.processors,
            SendBackProcessor(
                self.config,
                self.store,
                send,
                groups=self.groups,
                topics=self.topics,
                random=self._random,
            ).processors,
            ReplyMessageProcessor(
                self.config,
                self.store,
                send,
                self._puts,
                producers=self.producers,
                on_messages=self._on_messages,
            ).processors,
            RecallMessageProcessor(self.config, self.store, send, self.topics).processors,
            EndTransactionProcessor(self.config, self.store, send, self.transactions).processors,
            self.pulls.processors,
            ClientManageProcessor(
                self.config,
                consumers=self.consumers,
                producers=self.producers,
                groups=self.groups,
                topics=self.topics,
                clock=self._clock,
                register_topics=register_topics,
                filters=self.filters if self.config.enable_property_filter else None,
            ).processors,
            ConsumerManageProcessor(
                consumers=self.consumers,
                offsets=self.offsets,
                groups=self.groups,
                topics=self.topics,
                store=self.store,
            ).processors,
            ClientAdminProcessor(
                self.config,
                self.store,
                consumers=self.consumers,
                producers=self.producers,
                offsets=self.offsets,
                topics=self.topics,
                groups=self.groups,
            ).processors,
            QueueOffsetProcessor(self.store).processors,
            QueryMessageProcessor(self.store).processors,
            LockProcessor(self._locks, clock=self._clock).processors,
            FilterServerProcessor(self.config, self.filter_servers, clock=self._clock).processors,
            TopicAdminProcessor(
                topics=self.topics,
                offsets=self.offsets,
                store=self.store,
                register_topics=register_topics,
            ).processors,
            GroupAdminProcessor(groups=self.groups, offsets=self.offsets).processors,
            self._replication_processor().processors,
            slave_refusals(self.config) if self.store.is_slave else {},
        ]
        return {code: process for table in tables for code, process in table.items()}

    def _replication_processor(self) -> ReplicationProcessor:
        return ReplicationProcessor(
            offsets=self.offsets,
            delay_offsets=self.delay_offsets,
            timers=self.timers if self.store.config.timer_wheel_enable else None,
            status=self.replication.status,
            clock=self._clock,
        )

    def _on_messages(self, queues: Collection[tuple[str, int]]) -> None:
        notify_each(
            (self.pulls.hold_service.notify_messages, self.schedule.arrived, self.timers.arrived),
            queues, _failures, "notifying of new messages", "They may be delivered late",
        )  # fmt: skip

    def _on_copied(self, queues: Collection[tuple[str, int]]) -> None:
        """Of a slave: its master's messages."""
        self._on_messages(queues)
        self.replication.arrived(queues)

    def _on_topics_changed(self, topics: Sequence[TopicConfig]) -> None:
        self._tell_batch_topics(topics)
        self.registrar.topics_changed(topics)
        note_made(self.store, topics)

    def _tell_batch_topics(self, topics: Iterable[TopicConfig]) -> None:
        for topic in topics:
            if topic.attributes.get(QUEUE_TYPE) == BATCH_CQ:
                self.store.batch_topics.add(topic.topic_name)

    def _on_filter_servers_changed(self) -> None:
        self.registrar.changed()
        self._keeper.wake()

    def _on_channel_closed(self, channel: Channel) -> None:
        clients = self.filter_servers, self.consumers, self.producers
        meaning = "Its group learns of that when its heartbeats stay away"
        forget = [table.channel_closed for table in clients]
        notify_each(forget, channel, _failures, "forgetting a client", meaning)

    # What runs from time to time

    def _scan_clients(self) -> None:
        now_s = self._clock.monotonic_s()
        self._locks.remove_expired(now_s=now_s)
        for channel in (*self.consumers.scan_inactive(now_s), *self.producers.scan_inactive(now_s)):
            channel.close("no heartbeat from its client")
        for channel in self.filter_servers.scan_inactive(now_s):
            channel.close("no heartbeat from its filter server")

    def _persist_delay_offsets(self) -> None:
        if self.store.flusher.failure is None:
            self.delay_offsets.file.persist_changed()

    def _persist_filters(self) -> None:
        self.filters.clean()
        self.filters.file.persist_changed()

    def _note_transactions(self) -> None:
        if not self.store.is_slave:
            self.transactions.note_through()

    def _is_ordered(self, group: str) -> bool:
        return not self._locks.is_all_expired(group, now_s=self._clock.monotonic_s())

    # Files and name servers

    def _load_tables(self) -> TableLoader:
        tables = TableLoader(
            self._files,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            delay_offsets=self.delay_offsets,
            filters=self.filters if self.config.enable_property_filter else None,
        )
        tables.load()
        return tables

    @property
    def _port(self) -> int:
        return int(self._broker_addr.rpartition(":")[2])

    def _ha_server_addr(self) -> str:
        host = self.config.broker_ip2 or self.config.broker_ip1
        return join_address(host, ha_port(self.store.config, self._port))


async def _run_in(
    scope: trio.CancelScope,
    run: Callable[..., Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Run a service until `scope` is cancelled."""
    with scope:
        await run(task_status=task_status)
