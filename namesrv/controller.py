"""NamesrvController: one running name server.

The shell around the route table: it owns the listening sockets, the clock that drives expiry, and
the files of KV configuration and settings. The state is in pure modules.

Java counterpart: RocketMQ 5.3.3 namesrv/NamesrvController.java, BrokerHousekeepingService.java.
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import trio

from ..auth.accounts import ACCOUNTS_FILE
from ..auth.dangerous import NAME_SERVER
from ..auth.need_tables import NEEDS_OF_NAMESRV
from ..auth.needs import Places
from ..auth.open_server import open_processors
from ..auth.server_access import ServerAccess
from ..common.clock import Clock
from ..common.live_config import LiveConfig
from ..common.log_levels import apply_levels, parse_levels
from ..common.metrics_keys import MetricsExporterType
from ..common.steps import one_step
from ..common.supervision import FailureLog, Supervisor
from ..disk.config_changes import ConfigChanges
from ..disk.errors import StoreError
from ..disk.json_config import save_json
from ..disk.os_disk import Disk
from ..disk.state_file import StateFile
from ..disk.state_files import StateFiles
from ..remoting.channel import Channel, Processor
from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.connection import ConnectionLimits
from ..remoting.errors import RemotingError
from ..remoting.headers import NotifyMinBrokerIdChangeRequestHeader, encode_header
from ..remoting.metrics.listening import open_metrics_listener, serve_metrics
from ..remoting.metrics.request_counts import counted
from ..remoting.request_codes import RequestCode
from ..remoting.server import RemotingServer, closed_at_end, open_listener
from ..remoting.tls_settings import Tls, new_tls
from ..remoting.transport import format_address
from ..remoting.turn import Turn
from .config import NamesrvConfig, check_values, known_keys
from .kv_config import KVConfigManager
from .processors import NamesrvServices, is_own_broker, name_server_processors
from .registration import MinBrokerIdChange, Removal
from .route_info_manager import RouteInfoManager

logger = logging.getLogger(__name__)

SCAN_INTERVAL_MS_MIN = 100
"""The lower bound of `scanNotActiveBrokerInterval`: scans without a pause would block the loop."""

NOTIFICATIONS_MAX = 1_024
"""Changes of the smallest broker id that wait to be sent; more are dropped with a log line. Brokers
ask for their group (901) from time to time anyway."""

LOST_WITH_A_RESTART = (
    "they are in force, and a restart forgets them unless a later change can be saved"
)
"""The meaning of an unsaved change, for the log."""

NOTIFY_TIMEOUT_S = 3.0
"""For connecting to one broker to notify it. RocketMQ waits 300 ms."""


class NamesrvController:
    """One name server.

    Lifecycle: create it, start `run` in a nursery, cancel it to stop. Owner: that one task.

    Args:
      config: its keys; changed by UPDATE_NAMESRV_CONFIG.
      clock: its monotonic time drives expiry.
      disk: stores the KV table and changed settings.
      turn: shared with a broker of the same process; None: a new one.
      listeners: sockets to serve on, from `open_listener`; None: opened as `config` says.
      metrics_listener: a socket that answers for metrics and health; None: opened if `config` says
        so.
      tls: of the listeners and of the connections to brokers; None: RocketMQ's defaults.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        clock: Clock,
        disk: Disk,
        turn: Turn | None = None,
        listeners: Sequence[socket.socket] | None = None,
        metrics_listener: socket.socket | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.config = config
        tls = tls or new_tls()
        self.routes = RouteInfoManager()
        self.kv = KVConfigManager()
        self._clock = clock
        self._disk = disk
        self._listeners = listeners
        self._metrics_listener = metrics_listener
        self._addresses: tuple[str, ...] = ()
        self._failures = FailureLog(logger)
        # Absolute, so that both have a parent folder and do not depend on the working directory.
        kv_path = Path(config.kv_config_path).absolute()
        config_path = Path(config.config_store_path).absolute()
        self._kv_files = StateFiles(disk, str(kv_path.parent), save_json, secret=(ACCOUNTS_FILE,))
        self.access = ServerAccess(
            config, self._kv_files, NEEDS_OF_NAMESRV, Places(config.broker_cluster_name)
        )
        self._kv_file = StateFile(
            kv_path.name,
            "KV items",
            self._kv_files.save,
            one_step(self.kv.to_json),
            self._kv_files.later if self._kv_files.may_put_off else None,
            means=LOST_WITH_A_RESTART,
        )
        live = LiveConfig((config,), known_keys, check=check_values, server="the name server")
        live.subscribe(self._set_log_levels, "logLevel", "logLevels")
        account = self.access.credentials
        self._client = RemotingClient(turn=turn, tls=tls.client, credentials=account)
        self._to_notify, self._notifications = trio.open_memory_channel[MinBrokerIdChange](
            NOTIFICATIONS_MAX
        )
        self._started_ms = self._now_ms()
        services = NamesrvServices(
            config=config,
            routes=self.routes,
            kv=self.kv,
            now_ms=self._now_ms,
            started_ms=self._started_ms,
            save_kv=self._save_kv,
            change_config=ConfigChanges(live, disk, str(config_path)).change,
            notify=self._notify,
            call=self._client.call,
        )
        self._requests: Counter[int] = Counter()
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

    def _processors(self, services: NamesrvServices) -> dict[int, Processor]:
        """What it serves, by request code, with the checks of who may ask."""
        config = self.config
        processors = name_server_processors(services)
        if self.access.control is not None:
            # Apache's name server has no accounts, and does not know their requests.
            processors |= self.access.admin().processors
        opened = open_processors(
            self.access.guard({int(code): each for code, each in processors.items()}),
            NAME_SERVER,
            allows_remote=config.allow_remote_administration or config.has_accounts,
            is_own=partial(is_own_broker, self.routes),
        )
        if config.metrics_exporter_type is MetricsExporterType.PROM:
            return counted(opened, self._requests)
        return opened

    @property
    def listen_addresses(self) -> tuple[str, ...]:
        """The addresses it listens on, as `ip:port` with the actual port; known once it runs."""
        return self._addresses

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; it reports "started" once the sockets listen.

        Raises:
          OSError: an address is in use or not of this machine; the message names it.
          StoreError: the KV table cannot be read, or is damaged.
        """
        self._kv_files.load(self._kv_file.name, self.kv.decode)
        self.access.load()
        listeners = self._listeners
        if listeners is None:
            listeners = [open_listener(self.config.bind_address, self.config.listen_port)]
        self._addresses = tuple(format_address(sock.getsockname()) for sock in listeners)
        with closed_at_end(listeners):
            metrics_listener = self._metrics_listener or open_metrics_listener(self.config)
            with closed_at_end([metrics_listener]):
                try:
                    await self._serve(listeners, metrics_listener, task_status)
                finally:
                    # Also when cancelled: requests may have changed the table after its last save.
                    self._save_the_rest()

    async def _serve(
        self,
        listeners: Sequence[socket.socket],
        metrics_listener: socket.socket | None,
        task_status: trio.TaskStatus[None],
    ) -> None:
        async with trio.open_nursery() as nursery:
            # The client first: an early registration may have it notify brokers.
            await nursery.start(self._client.run)
            await nursery.start(self.server.serve, listeners)
            services = Supervisor(nursery, logger)
            services.start_soon("the scan for silent brokers", self._expire_silent_brokers)
            services.start_soon("the notifications of brokers", self._send_notifications)
            services.start_soon(
                "the saving of changes", self._kv_files.run, (self.access.accounts.file,)
            )
            if metrics_listener is not None:
                services.start_soon("the metrics", self._serve_metrics, metrics_listener)
            logger.info(
                "the name server listens on %(addresses)s",
                {"addresses": ", ".join(self._addresses) or "-"},
            )
            task_status.started()

    async def _serve_metrics(self, listener: socket.socket) -> None:
        """Answer for metrics and health until cancelled."""
        from .metrics import NamesrvMetrics

        metrics = NamesrvMetrics(
            self.config,
            self.routes,
            self.server,
            self._requests,
            node_id=self._addresses[0] if self._addresses else "",
            now_ms=self._now_ms,
            started_ms=self._started_ms,
        )
        await serve_metrics(listener, metrics.answer, self.server.refusals, self._metrics_tls)

    # Removal of brokers

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1_000)

    def _on_channel_closed(self, channel: Channel) -> None:
        self._after(self.routes.channel_closed(channel))

    async def _expire_silent_brokers(self) -> None:
        while True:
            self._after(self.routes.expire(now_ms=self._now_ms()))
            interval_ms = max(self.config.scan_not_active_broker_interval, SCAN_INTERVAL_MS_MIN)
            await trio.sleep(interval_ms / 1_000)

    def _after(self, removal: Removal) -> None:
        for channel in removal.channels:
            if isinstance(channel, Channel):
                channel.close("its broker was removed")
        self._notify(removal.changes)

    # Notifications of a changed smallest id

    def _notify(self, changes: Iterable[MinBrokerIdChange]) -> None:
        if not self.config.notify_min_broker_id_changed:
            return
        for change in changes:
            try:
                self._to_notify.send_nowait(change)
            except trio.WouldBlock:
                logger.warning(
                    "too many notifications wait to be sent; dropped: %(change)s. The brokers "
                    "learn of it at their next query",
                    {"change": change},
                )

    async def _send_notifications(self) -> None:
        async for change in self._notifications:
            async with trio.open_nursery() as nursery:
                for address in change.notify_addrs:
                    nursery.start_soon(self._send_notification, address, change)

    async def _send_notification(self, address: str, change: MinBrokerIdChange) -> None:
        header = NotifyMinBrokerIdChangeRequestHeader(
            min_broker_id=change.min_broker_id,
            min_broker_addr=change.min_broker_addr,
            offline_broker_addr=change.offline_broker_addr,
            ha_broker_addr=change.ha_broker_addr,
        )
        command = RemotingCommand(
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext_fields=encode_header(header)
        )
        try:
            with trio.fail_after(NOTIFY_TIMEOUT_S):
                await self._client.send_oneway(address, command)
        except (RemotingError, OSError, ValueError, trio.TooSlowError) as error:
            logger.warning(
                "broker %(broker)s could not be notified of %(change)s, it learns of it at its "
                "next query: %(error)s",
                {"broker": address, "change": change, "error": error},
            )
        except Exception as error:  # noqa: BLE001 - our bug: the others are notified
            meaning = "The broker queries its group periodically anyway"
            self._failures.note(f"notifying the broker {address}", meaning, error)

    # Files

    async def _save_kv(self) -> None:
        self._kv_file.changed()
        await self._kv_file.saved()

    def _set_log_levels(self) -> None:
        apply_levels(self.config.log_level, parse_levels(self.config.log_levels))

    def _save_the_rest(self) -> None:
        """Save changes of cancelled requests."""
        try:
            for file in (self._kv_file, self.access.accounts.file):
                file.persist_changed()
        except StoreError as error:
            logger.error("a change could not be saved and is lost: %(error)s", {"error": error})
        except Exception as error:  # noqa: BLE001 - our bug: the process ends in order
            self._failures.note("saving at the stop", "A changed file stays as it was", error)
