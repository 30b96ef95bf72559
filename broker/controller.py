"""BrokerController: one running broker.

The shell: it owns the sockets and the tasks, loads the parts and closes them. `assembly.py` creates
the parts, `request_table.py` the request processors.

A turn of the connections ends in `SendTurn.end_turn`: one write for all messages of the turn, then
the pulls that waited for them.

Java counterpart: broker/BrokerController.java of 5.3.3.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

from ..auth.dangerous import BROKER
from ..auth.open_server import open_processors
from ..common.clock import Clock, WallTimeMs
from ..common.steps import in_steps
from ..common.supervision import FailureLog, Supervisor
from ..disk.errors import StoreError
from ..disk.os_disk import Disk
from ..native import Extension, choice, extension
from ..remoting.client import RemotingClient
from ..remoting.metrics.listening import open_metrics_listener
from ..remoting.server import RemotingServer
from ..remoting.signature import Credentials
from ..remoting.tls_server import ServerTls
from ..remoting.tls_settings import Tls, new_tls
from ..remoting.turn import Turn
from ..store.config import MessageStoreConfig
from ..store.ha.slave import Connect, connect_tcp
from ..store.recovery.rocksdb import refuse_rocksdb
from ..store.services import run_services
from .assembly import Seams, assemble, note_batch_topics
from .filter_servers.filter_server_keeper import OpenProcess, open_filter_server
from .filters.consumer_filter_manager import warm_up
from .followed_settings import follow_settings
from .pop.kv_state import refuse_kv_state
from .request_table import request_table
from .settings.config import PUSHED, BrokerConfig
from .settings.listening import connection_limits, listen, listen_for_slaves
from .static_topics.topic_queue_mapping_clean import CLEAN_INTERVAL_S
from .stats.stats_item import SAMPLE_INTERVAL_MS
from .table_loading import TableLoader
from .tables.table_saver import TableSaver

if TYPE_CHECKING:
    from ..auth.accounts import Accounts
    from .metrics.service import MetricsService

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

SCAN_CLIENTS_INTERVAL_S = 10.0
"""Between two scans for clients without heartbeats. RocketMQ: ClientHousekeepingService."""

SAVE_FILTERS_INTERVAL_S = 10.0
"""Between two saves of changed filters. RocketMQ: BrokerController.initialize."""

SAVE_ORDERS_INTERVAL_S = 10.0
"""Between two saves of the messages in order. RocketMQ: BrokerController.initialize."""

GOODBYE_TIMEOUT_S = 5.0
"""How long a stopping broker tries to unregister from its name servers."""


class BrokerController:
    """One broker.

    Lifecycle: create it, start `run` in a nursery, cancel it to stop. Owner: that one task.

    Args:
      config: the broker's keys, including broker_name, broker_ip1 and broker_ip2.
      store_config: the store's keys.
      clock, disk: time and files; tests replace them.
      turn: shared with another server of the same process; None: a new one.
      listeners: sockets to serve on, from `open_listener`; None: opened as `config` says.
      random: picks queues for producers that leave the choice to the broker.
      client: calls the name servers, and a slave's master; shares the turn. None: one that
        connects by TCP.
      open_process: starts a filter server.
      ha_connect: connects a slave to its master's haListenPort.
      expects_slaves: listen for slaves although nothing in `config` mentions them; false for
        brokers in tests.
      native: the C extension; None: pure Python.
      metrics_listener: a socket that answers for metrics and health; None: opened if `config` says
        so.
      config_path: the file that `config` is from, where changed settings are saved; "": none.
      tls: of the listeners and of `client`; None: RocketMQ's defaults.
      clients_ms: the time of day of clients, ms since 1970; None: `clock`'s.

    Attributes:
      config: as above.
      parts: all parts that `assembly.py` created.
      store, topics, groups, offsets, delay_offsets, filters, producers, consumers, locks,
        filter_servers, transactions, schedule, timers, replication, registrar, pulls: shortcuts to
        some of them.
      client, turn: as above.
      server: None before it listens.
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
        native: Extension | None = extension,
        metrics_listener: socket.socket | None = None,
        config_path: str = "",
        tls: Tls | None = None,
        clients_ms: Callable[[], WallTimeMs] | None = None,
    ) -> None:
        self.config = config
        self.turn = turn or Turn()
        self._tls = tls or new_tls()
        self.client = client or RemotingClient(turn=self.turn, tls=self._tls.client)
        self.server: RemotingServer | None = None
        self._clock = clock
        self._listeners, self._expects_slaves = listeners, expects_slaves
        self._metrics_listener = metrics_listener
        random = random or Random()
        seams = Seams(
            clock,
            disk,
            self.turn,
            random,
            self.client,
            open_process,
            ha_connect,
            native,
            config_path,
            self._tls,
            clients_ms,
        )
        self.parts = parts = assemble(config, store_config, seams)
        follow_settings(parts)
        self.client.credentials = parts.tables.access.credentials
        self.store = parts.store
        self.topics = parts.tables.topics
        self.groups = parts.tables.groups
        self.offsets = parts.tables.offsets
        self.delay_offsets = parts.tables.delay_offsets
        self.filters = parts.tables.filters
        self.producers = parts.clients.producers
        self.consumers = parts.clients.consumers
        self.locks = parts.clients.locks
        self.filter_servers = parts.clients.filter_servers
        self.transactions = parts.deliveries.transactions
        self.schedule = parts.deliveries.schedule
        self.timers = parts.deliveries.timers
        self.replication = parts.replication
        self.registrar = parts.registrar
        self.pulls = parts.pulls

    @property
    def listen_addresses(self) -> tuple[str, ...]:
        """The addresses it listens on, the VIP port last; known once it runs."""
        return self.parts.address.listened

    @property
    def broker_addr(self) -> str:
        """The `host:port` advertised to clients; known once it runs."""
        return self.parts.address.broker_addr

    @property
    def sends_refused(self) -> str:
        """The reason why the store accepts no messages now, in words; "" when it accepts them."""
        return self.store.trouble

    @property
    def has_access_control(self) -> bool:
        """Whether requests need an account."""
        return self.parts.has_access_control

    @property
    def super_account(self) -> Credentials | None:
        """An account that may do everything, for this process's requests to its own broker; None:
        the broker checks nothing, or has no such account."""
        plain_acl = self.parts.plain_acl
        if plain_acl is not None:
            return plain_acl.super_account
        return self.parts.tables.access.super_account

    def wall_clock_set(self) -> None:
        """Deliver due messages at once after a test moved the wall clock, not within a second."""
        pop = self.parts.pop
        for service in (self.schedule, self.timers, self.transactions, pop.storing, pop.revive):
            service.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        It reports "started" once the sockets are bound, the data is loaded, and the broker is
        registered with the name servers that answer. It serves before that: clients that know its
        address wait for no name server.

        Raises:
          OSError: an address is in use or not of this machine; the text names it.
          StoreError: the data folder is locked, damaged, not writable or full.
          ConfigError: plain_acl.yml cannot be used.
        """
        listeners = self._listeners
        if listeners is None:
            listeners = listen(self.config.bind_address, self.config.listen_port)
        address = self.parts.address
        address.listens(listeners)
        ha_listeners: list[socket.socket] = []
        # The ports come before the data, so that a port in use costs no recovery of the store.
        try:
            if listeners:
                ha_listeners += listen_for_slaves(
                    self.store.config, address.port(), expected=self._expects_slaves
                )
            if self._metrics_listener is None:
                self._metrics_listener = open_metrics_listener(self.config)
            if self._metrics_listener is None:
                self.load()
            else:
                from .metrics.while_opening import answered_while_opening

                with answered_while_opening(self._metrics_listener, self._metrics_tls):
                    self.load()
        except BaseException:
            for listener in (*listeners, *ha_listeners, self._metrics_listener):
                if listener is not None:
                    listener.close()
            self.store.close()
            raise
        self.server = self._made_server()
        try:
            async with trio.open_nursery() as base:
                # Connections and processors stop first; the store's services and the client stop
                # last, because a request that is being served may still need them.
                last = _LastServices(base)
                await last.start(partial(run_services, self.store))
                await last.start(self.client.run)
                try:
                    await self._serve(self.server, listeners, ha_listeners, task_status)
                finally:
                    try:
                        with trio.move_on_after(GOODBYE_TIMEOUT_S, shield=True):
                            await self.registrar.unregister_all()
                    finally:
                        last.stop()
        finally:
            self._close()

    def _made_server(self) -> RemotingServer:
        """The server of requests; the data is loaded."""
        serving = request_table(self.parts)
        self.turn.on_end = serving.turn.end_turn
        return RemotingServer(
            open_processors(
                serving.processors,
                BROKER,
                allows_remote=(self.config.allow_remote_administration or self.config.has_accounts),
            ),
            turn=self.turn,
            on_channel_closed=self.parts.closed_channels.notify,
            limits=connection_limits(self.config),
            runs=serving.runs,
            refusals=self.parts.refusals,
            tls=self._tls.server,
        )

    def load(self) -> None:
        """Read the files, tables first, because the store needs to know topics with batch queues.

        Raises: StoreError, ConfigError: see `run`.
        """
        refuse_rocksdb(self.store.disk, self.store.config.store_path_root_dir)
        refuse_kv_state(self.store.disk, self.store.config.store_path_root_dir)
        if self.config.enable_property_filter:
            warm_up()
        migrates = self.config.migrate_auth_from_v1_enabled
        self.parts.tables.access.load(self._migrate_accounts if migrates else None)
        if self.parts.plain_acl is not None:
            self.parts.plain_acl.files.load()
        tables = TableLoader(
            self.parts.tables.files,
            topics=self.topics,
            mappings=self.parts.tables.mappings,
            groups=self.groups,
            offsets=self.offsets,
            delay_offsets=self.delay_offsets,
            request_modes=self.parts.tables.request_modes,
            filters=self.parts.sql_filters,
        )
        tables.load()
        note_batch_topics(self.store, self.topics.topic_config_table.values())
        was_killed = self.store.disk.exists(f"{self.store.config.store_path_root_dir}/abort")
        self.store.load()
        self.parts.stats.start()
        tables.repair(self.store)
        if was_killed:
            self.filters.reset_birth_times()
        if not self.store.is_slave:
            self.transactions.load()
        self.timers.load(was_killed=was_killed)
        self.parts.pop.load()

    def _migrate_accounts(self, accounts: Accounts) -> None:
        from .admin.plain_acl import migrate_files  # needs PyYAML

        migrate_files(self.config.acl_config_path, accounts, self._clock)

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
            services.start_soon("the refreshing of routes", self.parts.routes.run)
            services.start_soon("the supervision of filter servers", self.parts.keeper.run)
            if self.parts.plain_acl is not None:
                services.start_soon(
                    "the watch of access control files", self.parts.plain_acl.files.run
                )
            services.start_soon("the waking of held pulls", self.pulls.hold_service.run, self.turn)
            services.start_soon("the notification of groups", self.parts.clients.notifier.run)
            services.every(
                "the scan for expired clients", SCAN_CLIENTS_INTERVAL_S, self._scan_clients
            )
            services.every("the statistics", SAMPLE_INTERVAL_MS / 1000, self._sample_statistics)
            if self._metrics_listener is not None:
                services.start_soon("the metrics", self._serve_metrics, self._metrics_listener)
            elif self.config.metrics_exporter_type in PUSHED:
                services.start_soon("the metrics", self._push_metrics)
            self._start_savers(services)
            if not self.store.is_slave:
                await self._deliver(services)
                if not self.config.enable_property_filter and self.store.disk.threaded:
                    # Pops may filter all the same; the start does not wait for the parser. A
                    # simulated broker has no threads, and reads it when it is needed.
                    in_thread = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
                    nursery.start_soon(in_thread, warm_up)
            logger.info(
                "the broker %(broker_name)s listens on %(addresses)s, in %(implementation)s",
                {
                    "broker_name": self.config.broker_name,
                    "addresses": self.listen_addresses,
                    "implementation": choice.description,
                },
            )
            if choice.is_stale:
                logger.warning(
                    "the broker is slower than it could be: %(implementation)s",
                    {"implementation": choice.description},
                )
            # Last, because it waits for other machines: all of the above is served meanwhile.
            await services.start("the registration", self.registrar.run)
            task_status.started()
            await trio.sleep_forever()

    def _start_savers(self, services: Supervisor) -> None:
        """Start the services that save the tables."""
        saver = TableSaver(self.parts.tables.files, self.store)
        config, store_config, filters = self.config, self.store.config, self.filters
        saver.start_lazy(
            services,
            self.offsets.file,
            lambda: config.flush_consumer_offset_interval / 1000,
            saver.sync_log,
        )
        saver.start_lazy(
            services,
            self.delay_offsets.file,
            lambda: store_config.flush_delay_offset_interval / 1000,
            saver.sync_log_or_fail,
        )
        saver.start_lazy(
            services,
            filters.file,
            lambda: SAVE_FILTERS_INTERVAL_S,
            before_save=filters.clean,
        )
        saver.start_lazy(
            services,
            self.parts.pop.orders.table.file,
            lambda: SAVE_ORDERS_INTERVAL_S,
            saver.sync_log,
        )
        tables = self.parts.tables
        saver.start_eager(
            services,
            self.topics.file,
            tables.mappings.file,
            self.groups.file,
            tables.access.accounts.file,
            tables.request_modes.file,
        )

    async def _serve_metrics(self, listener: socket.socket) -> None:
        """Answer for metrics and health until cancelled."""
        await self._metrics().run(listener, self._metrics_tls)

    @property
    def _metrics_tls(self) -> ServerTls | None:
        return self._tls.server if self.config.metrics_tls_enable else None

    async def _push_metrics(self) -> None:
        """Push metrics until cancelled."""
        await self._metrics().push()

    def _metrics(self) -> MetricsService:
        """The metrics, which count from now on."""
        from .metrics.service import MetricsService  # 12 ms that the start need not wait for

        metrics = MetricsService(self.parts, lambda: self.server)
        metrics.start()
        self.parts.live.subscribe(metrics.start, "enableRemotingMetrics", "enableRequestMetrics")
        return metrics

    async def _deliver(self, services: Supervisor) -> None:
        """Start the deliveries and the transaction checks, which only a master runs."""
        await services.start("the delivery of delayed messages", self.schedule.run)
        await services.start("the checks of transactions", self.transactions.run)
        services.start_soon("the saving of transactions", self.transactions.save)
        services.every(
            "the cleaning of queue mappings",
            CLEAN_INTERVAL_S,
            self.parts.mapping_cleaner.clean_when_due,
        )
        self.parts.pop.start(services, self.turn)
        if self.store.config.timer_wheel_enable:
            services.start_soon("the delivery of timer messages", self.timers.run)
            services.start_soon("the saving of timers", self.timers.save)

    def _close(self) -> None:
        if self._metrics_listener is not None:
            self._metrics_listener.close()
        for what, close in (
            ("the check points of pops", self.parts.pop.close),  # appends to the log
            ("the log", self.store.flusher.flush),  # before offsets that refer to it
            ("the delay offsets", self._persist_delay_offsets),
            ("the transactions", self._note_transactions),
            ("the timers", self.timers.note_progress),
            ("the progress of pops", self._note_pops),
            ("the offsets", self.offsets.file.persist_changed),
            ("the messages in order", self.parts.pop.orders.table.file.persist_changed),
            ("the filters", self._persist_filters),
            ("the accounts", self.parts.tables.access.accounts.file.persist_changed),
            (
                "the modes of message requests",
                self.parts.tables.request_modes.file.persist_changed,
            ),
            ("the topics", self.topics.file.persist),
            ("the groups", self.groups.file.persist),
        ):
            try:
                close()
            except StoreError as error:
                logger.error(
                    "%(what)s could not be saved: %(error)s", {"what": what, "error": error}
                )
            except Exception as error:  # noqa: BLE001 - our bug: the others are saved
                _failures.note(f"saving {what}", "The file on disk stays as it was", error)
        self.store.close()

    # Periodic work

    def _scan_clients(self) -> None:
        now_s = self._clock.monotonic_s()
        self.locks.remove_expired(now_s=now_s)
        kept_ms = self.config.subscription_expired_timeout
        self.consumers.compensated.expire(self._clock.wall_ms() - kept_ms)
        for channel in (*self.consumers.scan_inactive(now_s), *self.producers.scan_inactive(now_s)):
            channel.close("no heartbeat from its client")
        for channel in self.filter_servers.scan_inactive(now_s):
            channel.close("no heartbeat from its filter server")

    async def _sample_statistics(self) -> None:
        try:
            await in_steps(self.parts.stats.sample())
        except StoreError as error:
            logger.warning(
                "the sizes of new messages cannot be read, so rates stay as they were: "
                "%(error)s. The next attempt follows in %(interval_s)d s",
                {"error": error, "interval_s": SAMPLE_INTERVAL_MS // 1000},
            )

    def _persist_delay_offsets(self) -> None:
        if self.store.flusher.failure is None:
            self.delay_offsets.file.persist_changed()

    def _persist_filters(self) -> None:
        self.filters.clean()
        self.filters.file.persist_changed()

    def _note_transactions(self) -> None:
        if not self.store.is_slave:
            self.transactions.note_progress()

    def _note_pops(self) -> None:
        if not self.store.is_slave:
            self.parts.pop.note_progress()


class _LastServices:
    """Services that keep running while the others are being cancelled.

    Stopping services still need the store, and the registrar uses the client to unregister.

    Args:
      nursery: runs them; it cannot end before `stop` was called.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._scopes: list[trio.CancelScope] = []

    async def start(self, run: Callable[..., Awaitable[None]]) -> None:
        """Run a service until `stop`; returns when it has started."""
        scope = trio.CancelScope(shield=True)
        self._scopes.append(scope)
        # A cancellation while the service starts must not leave it running without an owner.
        with trio.CancelScope(shield=True):
            await self._nursery.start(_run_in, scope, run)

    def stop(self) -> None:
        """End them all."""
        for scope in self._scopes:
            scope.cancel()


async def _run_in(
    scope: trio.CancelScope,
    run: Callable[..., Awaitable[None]],
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Run a service until `scope` is cancelled."""
    with scope:
        await run(task_status=task_status)
