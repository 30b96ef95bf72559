"""ControllerServer: one running controller.

The shell around the rules: it owns the listening sockets, the store of the state, the connections
to brokers, and the clock by which heartbeats expire.

Java counterpart: RocketMQ 5.5.0 controller/ControllerManager.java.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from ..auth.accounts import ACCOUNTS_FILE
from ..auth.dangerous import CONTROLLER
from ..auth.need_tables import NEEDS_OF_CONTROLLER
from ..auth.needs import Places
from ..auth.open_server import open_processors
from ..auth.server_access import ServerAccess
from ..common.clock import Clock
from ..common.config import ConfigError
from ..common.live_config import LiveConfig
from ..common.log_levels import apply_levels, parse_levels
from ..common.metrics_keys import MetricsExporterType
from ..common.supervision import FailureLog, Supervisor, contained
from ..disk.config_changes import ConfigChanges
from ..disk.errors import StoreError
from ..disk.json_config import save_json
from ..disk.os_disk import Disk
from ..disk.state_files import StateFiles
from ..remoting.channel import Channel, Processor
from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.connection import ConnectionLimits
from ..remoting.errors import RemotingError
from ..remoting.metrics.listening import open_metrics_listener, serve_metrics
from ..remoting.metrics.request_counts import counted
from ..remoting.server import RemotingServer, closed_at_end, open_listener
from ..remoting.tls_settings import Tls, new_tls
from ..remoting.transport import format_address
from ..remoting.turn import Turn
from .broker_set import BrokerSet
from .config import ControllerConfig, check_values, known_keys
from .etcd_gateway import Account, EtcdGateway
from .etcd_store import EtcdStore
from .file_store import FileStore
from .leader import Leader
from .leadership import Leadership
from .probe import is_refused
from .processors import ControllerProcessors, ControllerServices, is_own_election
from .state_machine import role_change
from .state_store import Candidate, Lease, StateStore, Stored

logger = logging.getLogger(__name__)

NOTIFY_TIMEOUT_S: Final = 3.0
"""For connecting to one broker to notify it."""

FIRST_ANSWER_S: Final = 5.0
"""The longest wait at the start for the store to say who leads; the controller serves then even if
it cannot know, and answers that it does not lead."""


def etcd_tls(config: ControllerConfig) -> ssl.SSLContext | None:
    """The TLS of the connections to etcd; None: they are plain.

    Raises: ConfigError: a certificate or key cannot be used.
    """
    if not config.endpoints[0].startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cafile=config.etcd_trust_cert_path or None)
        if config.etcd_cert_path:
            context.load_cert_chain(config.etcd_cert_path, config.etcd_key_path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"etcdTrustCertPath, etcdCertPath or etcdKeyPath cannot be used: {error}"
        ) from error
    return context


class ControllerServer:
    """One controller.

    Lifecycle: create it, start `run` in a nursery, cancel it to stop. Owner: that one task.

    Raises: ConfigError: the files of the keys of etcd cannot be used.

    Args:
      config: its keys; changed by UPDATE_CONTROLLER_CONFIG.
      clock: its elapsed time drives expiry and the lease: the machine's sleep counts.
      disk: stores accounts, changed settings, and the state if it is in a file.
      store: of the state; None: as `config` says.
      turn: shared with other servers of the same process; None: a new one.
      listeners: sockets to serve on, from `open_listener`; None: opened as `config` says.
      metrics_listener: a socket that answers for metrics and health; None: opened if `config` says
        so.
      tls: of the listeners and of the connections to brokers; None: RocketMQ's defaults.
      client: connects to brokers; None: a new one.
      is_gone: dials a broker; see `probe.py`.
    """

    def __init__(
        self,
        config: ControllerConfig,
        *,
        clock: Clock,
        disk: Disk,
        store: StateStore | None = None,
        turn: Turn | None = None,
        listeners: Sequence[socket.socket] | None = None,
        metrics_listener: socket.socket | None = None,
        tls: Tls | None = None,
        client: RemotingClient | None = None,
        is_gone: Callable[[str], Awaitable[bool]] = is_refused,
    ) -> None:
        self.config = config
        tls = tls or new_tls()
        self._clock = clock
        self._is_gone = is_gone
        self._listeners = listeners
        self._metrics_listener = metrics_listener
        self._addresses: tuple[str, ...] = ()
        self._failures = FailureLog(logger)
        self._nursery: trio.Nursery | None = None
        # Absolute, so that both have a parent folder and do not depend on the working directory.
        folder = Path(config.controller_store_path).absolute()
        config_path = Path(config.config_store_path).absolute()
        self._files = StateFiles(disk, str(folder), save_json, secret=(ACCOUNTS_FILE,))
        self.access = ServerAccess(
            config, self._files, NEEDS_OF_CONTROLLER, Places(config.broker_cluster_name)
        )
        self.store: StateStore = store or self._new_store(disk, str(folder))
        live = LiveConfig((config,), known_keys, check=check_values, server="the controller")
        live.subscribe(self._set_log_levels, "logLevel", "logLevels")
        live.subscribe(self._check_sets, "enableElectUncleanMaster")
        self._client = client or RemotingClient(
            turn=turn, tls=tls.client, credentials=self.access.credentials
        )
        peer = config.own_peer
        name = config.controller_d_leger_self_id
        candidate = Candidate(name, "" if peer is None else peer.address)
        self.leadership = Leadership(
            self.store, candidate, now_s=clock.elapsed_s, new_leader=self._new_leader
        )
        services = ControllerServices(
            config=config,
            leader=lambda: self.leadership.leader,
            known_leader=lambda: self.leadership.known_leader,
            change_config=ConfigChanges(live, disk, str(config_path)).change,
        )
        self.requests: Counter[int] = Counter()
        self._metrics_tls = tls.server if config.metrics_tls_enable else None
        self.server = RemotingServer(
            self._processors(services),
            turn=turn,
            on_channel_closed=self._on_channel_closed,
            limits=ConnectionLimits(
                idle_s=config.server_channel_max_idle_time_seconds, policy=config
            ),
            tls=tls.server,
        )

    def _processors(self, services: ControllerServices) -> dict[int, Processor]:
        """What it serves, by request code, with the checks of who may ask."""
        config = self.config
        processors = ControllerProcessors(services).processors
        if self.access.control is not None:
            # Apache's controller has no accounts, and does not know their requests.
            processors |= self.access.admin().processors
        opened = open_processors(
            self.access.guard({int(code): each for code, each in processors.items()}),
            CONTROLLER,
            allows_remote=config.allow_remote_administration or config.has_accounts,
            is_own=is_own_election,
        )
        if config.metrics_exporter_type is MetricsExporterType.PROM:
            return counted(opened, self.requests)
        return opened

    def _new_store(self, disk: Disk, folder: str) -> StateStore:
        """Raises: ConfigError: a file of the keys of etcd cannot be used."""
        config = self.config
        if not config.endpoints:
            return FileStore(disk, folder)
        gateway = EtcdGateway(
            config.endpoints,
            account=Account(config.etcd_user, config.etcd_password),
            tls=etcd_tls(config),
        )
        prefix = f"{config.etcd_prefix}{config.controller_d_leger_group}/"
        return EtcdStore(gateway, prefix, now_s=self._clock.elapsed_s)

    def _new_leader(self, lease: Lease, sets: Mapping[str, Stored]) -> Leader:
        return Leader(
            self.config,
            self.store,
            lease,
            sets,
            now_s=self._clock.elapsed_s,
            notify=self._notify,
            is_refused=self._is_gone,
        )

    @property
    def listen_addresses(self) -> tuple[str, ...]:
        """The addresses it listens on, as `ip:port` with the actual port; known once it runs."""
        return self._addresses

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; it reports "started" once the sockets listen.

        Raises:
          OSError: an address is in use or not of this machine; the message names it.
          StoreError, StateError: the state or the accounts cannot be read, or are damaged.
        """
        async with trio.open_nursery() as outer:
            await outer.start(self.store.run)
            self.access.load()
            listeners = self._listeners
            if listeners is None:
                listeners = [open_listener(self.config.bind_address, self.config.own_port)]
            self._addresses = tuple(format_address(sock.getsockname()) for sock in listeners)
            with closed_at_end(listeners):
                metrics_listener = self._metrics_listener or open_metrics_listener(self.config)
                with closed_at_end([metrics_listener]):
                    try:
                        await self._serve(listeners, metrics_listener, task_status)
                    finally:
                        self._save_the_rest()
            outer.cancel_scope.cancel()

    async def _serve(
        self,
        listeners: Sequence[socket.socket],
        metrics_listener: socket.socket | None,
        task_status: trio.TaskStatus[None],
    ) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await nursery.start(self._client.run)
                services = Supervisor(nursery, logger)
                services.start_soon("the leadership", self.leadership.run)
                with trio.move_on_after(FIRST_ANSWER_S):
                    await self.leadership.has_asked.wait()
                await nursery.start(self.server.serve, listeners)
                services.start_soon(
                    "the saving of changes", self._files.run, (self.access.accounts.file,)
                )
                if metrics_listener is not None:
                    services.start_soon("the metrics", self._serve_metrics, metrics_listener)
                logger.info(
                    "the controller listens on %(addresses)s",
                    {"addresses": ", ".join(self._addresses) or "-"},
                )
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def _serve_metrics(self, listener: socket.socket) -> None:
        """Answer for metrics and health until cancelled."""
        from .metrics import ControllerMetrics

        metrics = ControllerMetrics(
            self.config,
            self.leadership,
            self.server,
            self.requests,
            node_id=self._addresses[0] if self._addresses else "",
        )
        await serve_metrics(listener, metrics.answer, self.server.refusals, self._metrics_tls)

    def _on_channel_closed(self, channel: Channel) -> None:
        if self.leadership.leader is not None:
            self.leadership.leader.connection_closed(channel)

    def _check_sets(self) -> None:
        if self.leadership.leader is not None:
            self.leadership.leader.wake()

    # Notifications of a new master

    def _notify(self, elected: BrokerSet, addresses: Iterable[str]) -> None:
        """Send NOTIFY_BROKER_ROLE_CHANGED to brokers, each in a task: none waits for another."""
        if not self.config.notify_broker_role_changed or self._nursery is None:
            return
        command = role_change(elected)
        for address in addresses:
            self._nursery.start_soon(self._send_notification, address, command)

    async def _send_notification(self, address: str, command: RemotingCommand) -> None:
        meaning = "The broker asks for its role every few seconds anyway"
        with contained(self._failures, f"notifying the broker {address}", meaning):
            try:
                with trio.fail_after(NOTIFY_TIMEOUT_S):
                    # Each connection numbers and signs its own.
                    fields = dict(command.ext_fields)
                    copy = RemotingCommand(command.code, fields, command.body)
                    await self._client.send_oneway(address, copy)
            except (RemotingError, OSError, ValueError, trio.TooSlowError) as error:
                logger.warning(
                    "the broker %(broker)s could not be notified of the new master: %(error)s. It "
                    "asks for its role every few seconds anyway",
                    {"broker": address, "error": str(error) or "no answer"},
                )

    # Files

    def _set_log_levels(self) -> None:
        apply_levels(self.config.log_level, parse_levels(self.config.log_levels))

    def _save_the_rest(self) -> None:
        """Save changes of cancelled requests."""
        try:
            self.access.accounts.file.persist_changed()
        except StoreError as error:
            logger.error("a change could not be saved and is lost: %(error)s", {"error": error})
        except Exception as error:  # noqa: BLE001 - our bug: the process ends in order
            self._failures.note("saving at the stop", "A changed file stays as it was", error)
