"""BrokerController: one running broker.

The shell: it owns the sockets and the tasks, loads the parts and closes them. `assembly.py` creates
the parts and the table of requests.

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
from typing import TYPE_CHECKING, Final

import trio

from ..auth.dangerous import BROKER
from ..auth.open_server import open_processors
from ..common.child import OpenProcess
from ..common.clock import Clock, SystemClock, WallTimeMs
from ..common.supervision import FailureLog, Supervisor
from ..disk.errors import StoreError
from ..disk.os_disk import Disk
from ..native import Extension, choice, extension
from ..remoting.address_limits import PeerAddress
from ..remoting.client import RemotingClient
from ..remoting.connection import ConnectionLimits
from ..remoting.metrics.listening import open_metrics_listener
from ..remoting.server import NotServedError, RemotingServer, ServedConnection, closed_at_end
from ..remoting.signature import Credentials
from ..remoting.tls_server import ServerTls
from ..remoting.tls_settings import Tls, new_tls
from ..remoting.transport import SocketTransport, StreamTransport
from ..remoting.turn import Turn
from ..store.config import MessageStoreConfig
from ..store.ha.member import SetMember
from ..store.ha.slave import Connect, connect_tcp
from ..store.message_store import MessageStore
from ..store.recovery.rocksdb import refuse_rocksdb
from ..store.services import run_services
from .assembly import MakePart, assemble, request_table
from .part import USUAL_TERMS, AtCut, SavedFile, Seams, StoreTerms
from .settings.config import PUSHED, BrokerConfig
from .settings.listening import listen_for_slaves, listeners_of
from .tables.table_saver import TableSaver

if TYPE_CHECKING:
    from ..grpc_server.server import GrpcServer
    from .metrics.service import MetricsService

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

GOODBYE_TIMEOUT_S = 5.0
"""How long a stopping broker tries to unregister from its name servers."""


NO_GRPC: Final = (
    "it speaks HTTP/2, as RocketMQ's 5.x clients (gRPC) do, and the packages for it are not "
    "installed: pip install 'trocket[grpc]'"
)
"""Why a gRPC client is not served."""


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
      open_process: starts a filter server; None: as a child process.
      ha_connect: connects a slave to its master's haListenPort.
      expects_slaves: listen for slaves although nothing in `config` mentions them; false for
        brokers in tests.
      native: the C extension; None: pure Python.
      metrics_listener: a socket that answers for metrics and health; None: opened if `config` says
        so.
      config_path: the file that `config` is from, where changed settings are saved; "": none.
      tls: of the listeners and of `client`; None: RocketMQ's defaults.
      clients_ms: the time of day of clients, ms since 1970; None: `clock`'s.
      more_parts: create parts from outside of the package.
      member: the place in a set that a controller leads; None: the broker is in none.
      terms: of the store, in controller mode.
      on_loaded: called with the broker once its data is loaded, before it serves; may raise
        StoreError.

    Attributes:
      says_goodbye: at its end it unregisters from the name servers.
      config: as above.
      parts: all parts that `assembly.py` created.
      store, topics, groups, offsets, filters, producers, consumers, locks, filter_servers,
        transactions, schedule, timers, replication, registrar, pulls: shortcuts to some of them.
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
        open_process: OpenProcess | None = None,
        ha_connect: Connect = connect_tcp,
        expects_slaves: bool = True,
        native: Extension | None = extension,
        metrics_listener: socket.socket | None = None,
        config_path: str = "",
        tls: Tls | None = None,
        clients_ms: Callable[[], WallTimeMs] | None = None,
        more_parts: Sequence[MakePart] = (),
        member: SetMember | None = None,
        terms: StoreTerms = USUAL_TERMS,
        on_loaded: Callable[[BrokerController], None] = lambda broker: None,
    ) -> None:
        self.config = config
        self.member = member
        self.says_goodbye = True
        self._on_loaded = on_loaded
        self.turn = turn or Turn()
        self._tls = tls or new_tls()
        self.client = client or RemotingClient(turn=self.turn, tls=self._tls.client)
        self.server: RemotingServer | None = None
        self._grpc: GrpcServer | None = None
        self._listeners, self._expects_slaves = listeners, expects_slaves
        self._metrics_listener = metrics_listener
        seams = Seams(
            clock=clock,
            disk=disk,
            turn=self.turn,
            random=random or Random(),
            client=self.client,
            open_process=open_process,
            ha_connect=ha_connect,
            native=native,
            config_path=config_path,
            tls=self._tls,
            clients_ms=clients_ms,
            member=member,
            terms=terms,
        )
        self._terms = terms
        self.parts = parts = assemble(config, store_config, seams, more_parts)
        self._saver = TableSaver(parts.foundation.files, parts.store)
        self.client.credentials = parts.access.users.credentials
        self.store = parts.store
        self.topics = parts.tables.topics
        self.groups = parts.tables.groups
        self.offsets = parts.tables.offsets
        self.filters = parts.filters.table
        self.producers = parts.clients.producers
        self.consumers = parts.clients.consumers
        self.locks = parts.clients.locks
        self.filter_servers = parts.filter_servers.registered
        self.transactions = parts.transactions.service
        self.schedule = parts.delivering.schedule
        self.timers = parts.delivering.timers
        self.replication = parts.replication.side
        self.registrar = parts.cluster.registrar
        self.pulls = parts.pulling.processor

    @property
    def listen_addresses(self) -> tuple[str, ...]:
        """The addresses it listens on: the port, the VIP port, and that of grpcServerPort; known
        once it runs."""
        return self.parts.foundation.address.listened

    @property
    def broker_addr(self) -> str:
        """The `host:port` advertised to clients; known once it runs."""
        return self.parts.foundation.address.broker_addr

    @property
    def sends_refused(self) -> str:
        """The reason why the store accepts no messages now, in words; "" when it accepts them."""
        return self.store.trouble

    @property
    def has_access_control(self) -> bool:
        """Whether requests need an account."""
        return self.parts.access.control is not None

    @property
    def super_account(self) -> Credentials | None:
        """An account that may do everything, for this process's requests to its own broker; None:
        the broker checks nothing, or has no such account."""
        return self.parts.access.super_account

    def wall_clock_set(self) -> None:
        """Deliver due messages at once after a test moved the wall clock, not within a second."""
        for part in self.parts.all:
            part.wall_clock_set()

    @property
    def owes(self) -> bool:
        """Whether something that is due by the wall clock is not done yet, as `Part.owes`."""
        return any(part.owes() for part in self.parts.all)

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
            listeners = listeners_of(self.config)
        address = self.parts.foundation.address
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
            with closed_at_end((*listeners, *ha_listeners, self._metrics_listener)):
                self.store.close()
            raise
        self.server = self._made_server()
        with closed_at_end((*listeners, *ha_listeners)):
            await self._run(self.server, listeners, ha_listeners, task_status)

    async def _run(
        self,
        server: RemotingServer,
        listeners: Sequence[socket.socket],
        ha_listeners: Sequence[socket.socket],
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Serve what is loaded until cancelled, and save it."""
        try:
            async with trio.open_nursery() as base:
                # Connections and processors stop first; the store's services and the client stop
                # last, because a request that is being served may still need them.
                last = _LastServices(base)
                await last.start(partial(run_services, self.store))
                await last.start(self.client.run)
                try:
                    await self._serve(server, listeners, ha_listeners, task_status)
                finally:
                    try:
                        if self.says_goodbye:
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
            on_channel_closed=self.parts.foundation.closed_channels.notify,
            limits=ConnectionLimits(
                idle_s=self.config.server_channel_max_idle_time_seconds, policy=self.config
            ),
            runs=serving.runs,
            refusals=self.parts.foundation.refusals,
            tls=self._tls.server,
            http2=self._http2,
        )

    def _http2(
        self, transport: SocketTransport | StreamTransport, address: PeerAddress
    ) -> ServedConnection:
        """The connection of a gRPC client. Raises: NotServedError: packages are missing."""
        if self.server is None:
            raise NotServedError("the broker is not ready")
        try:
            if self._grpc is None:
                from .grpc_clients import new_grpc_server  # 40 ms that the start need not wait for

                self._grpc = new_grpc_server(self.parts)
            return self._grpc.connection(self.server, transport, address)
        except ImportError as error:
            raise NotServedError(NO_GRPC) from error

    def load(self) -> None:
        """Read the files, tables first, because the store needs to know topics with batch queues.

        Raises: StoreError, ConfigError: see `run`.
        """
        root = self.store.config.store_path_root_dir
        refuse_rocksdb(self.store.disk, root)
        for part in self.parts.all:
            part.load_tables()
        was_killed = self.store.disk.exists(f"{root}/abort")
        self.store.load(self._terms.cut_at, self._terms.confirmed)
        for part in self.parts.all:
            part.load(was_killed=was_killed)
        self._on_loaded(self)

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
            if self._metrics_listener is not None:
                services.start_soon("the metrics", self._serve_metrics, self._metrics_listener)
            elif self.config.metrics_exporter_type in PUSHED:
                services.start_soon("the metrics", self._push_metrics)
            self._saver.start(services, self._saved())
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
            for part in self.parts.all:
                await part.start(services)
            task_status.started()
            await trio.sleep_forever()

    def _saved(self) -> list[SavedFile]:
        """The files of all tables."""
        return [saved for part in self.parts.all for saved in part.saved]

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
        live = self.parts.foundation.live
        live.subscribe(metrics.start, "enableRemotingMetrics", "enableRequestMetrics")
        return metrics

    def _close(self) -> None:
        """Save what is in memory only. Messages come first, then what refers to them."""
        if self._metrics_listener is not None:
            self._metrics_listener.close()
        parts, store = self.parts.all, self.store
        for part in parts:
            _save(part.name or "what is in memory only", part.close)
        _save("the log", store.flusher.flush)
        # A slave's progress is its master's, which it takes once that is confirmed.
        if store.is_slave or store.durability.is_confirmed(store.max_physical_offset):
            for part in parts:
                _save(part.name or "what is done", part.note_progress)
            saved = self._saved()
        else:
            # What was done with a tail that may be cut, such as deliveries of delayed messages, is
            # done again by the next master.
            saved = [each for each in self._saved() if each.at_cut is not AtCut.ENDS]
        for each in saved:
            _save(each.file.name, partial(self._saver.save_at_end, each))
        store.close()


def _save(what: str, save: Callable[[], object]) -> None:
    """Save one thing at a stop; where it cannot be saved, the others are all the same."""
    try:
        save()
    except StoreError as error:
        logger.error("%(what)s could not be saved: %(error)s", {"what": what, "error": error})
    except Exception as error:  # noqa: BLE001 - our bug
        _failures.note(f"saving {what}", "The file on disk stays as it was", error)


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


def open_as_broker(config: MessageStoreConfig, disk: Disk) -> MessageStore:
    """Load store and tables as a broker's start does, without ports and services, for tools.

    It corrects what a start corrects.

    The broker's own settings are the default ones.

    Returns: the loaded store; the caller closes it.

    Raises:
      StoreError: a broker would not start.
    """
    broker = BrokerController(BrokerConfig(), config, clock=SystemClock(), disk=disk, listeners=[])
    broker.load()
    return broker.store
