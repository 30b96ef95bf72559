"""The controller of the filter server: listener, connection to the broker, registration, filters.

Java counterpart: filtersrv/FiltersrvController.java of 4.2.0, which ends its process when the
broker cannot be reached; this one retries.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from ..auth.access_control import AccessControl
from ..auth.accounts import Accounts
from ..auth.accounts_copy import AccountsCopy
from ..auth.config import read_access
from ..auth.dangerous import FILTER_SERVER
from ..auth.gate import guarded
from ..auth.need_tables import NEEDS_OF_FILTERSRV
from ..auth.needs import Places
from ..auth.open_server import open_processors
from ..common.supervision import Supervisor
from ..remoting.bodies import ConsumerConnection
from ..remoting.channel import Channel
from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.connection import ConnectionLimits
from ..remoting.errors import RemoteProtocolError, RemotingError, RequestRefused
from ..remoting.headers import (
    GetConsumerConnectionListRequestHeader,
    RegisterFilterServerRequestHeader,
    encode_header,
)
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.server import RemotingServer, closed_at_end, open_listener
from ..remoting.tls_settings import Tls, new_tls
from ..remoting.transport import format_address
from ..remoting.turn import Turn
from .config import REGISTER_INTERVAL_S, FiltersrvConfig
from .filter_class_manager import REFRESH_INTERVAL_S, FilterClassManager
from .filters import Filter
from .processors import FiltersrvProcessors
from .repository import Repository
from .workers import FilterLanguage, WorkerFilter, WorkerLimits
from .workers.limits import SOURCE_BYTES_MAX

logger = logging.getLogger(__name__)

BROKER_TIMEOUT_S = 3.0
"""Time limit of requests to the broker, except pulls. RocketMQ: 3,000 ms."""
RETRY_INTERVAL_S = 1.0
"""Interval of attempts to reach the broker after the connection was lost."""


class UnknownToBrokerError(Exception):
    """The broker does not support filter servers: trocket's does, and Apache's until about 4.8."""


class FiltersrvController:
    """A filter server.

    Args:
      config: the configuration, with `filter_server_ip`.
      configured: filters that the operator configured, by class name.
      open_stream: connects to a broker in the same loop, see `RemotingClient`; None: over TCP.
      listeners: sockets to serve on, from `open_listener`; None: according to `config`.
      tls: of the listeners and of the connection to the broker; None: RocketMQ's defaults.
    """

    def __init__(
        self,
        config: FiltersrvConfig,
        configured: Mapping[str, Filter],
        *,
        open_stream: Callable[[str, int], Awaitable[trio.abc.Stream]] | None = None,
        listeners: Sequence[socket.socket] | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.config = config
        access = read_access(config)
        tls = tls or new_tls()
        self._listeners = listeners
        self._addresses: tuple[str, ...] = ()
        self._turn = Turn()
        self._lost = trio.Event()
        self._client = RemotingClient(
            turn=self._turn,
            on_channel_closed=self._on_lost,
            open_stream=open_stream,
            tls=tls.client,
            credentials=access.inner,
        )
        languages = [FilterLanguage.JAVA] * config.java_filter_enable
        languages += [FilterLanguage.PYTHON] * config.python_filter_enable
        repository = Repository(
            config.filter_class_repertory_url, languages, size_max=SOURCE_BYTES_MAX
        )
        self.classes = FilterClassManager(
            config,
            configured,
            make_worker=self._make_worker,
            fetch_source=repository.fetch,
            ask_class_name=self._ask_class_name,
        )
        processors = FiltersrvProcessors(config, self.classes, self._ask_broker)
        table = {int(code): process for code, process in processors.processors.items()}
        self._accounts_copy: AccountsCopy | None = None
        if access.is_enabled:
            # In memory only: without its broker a filter server has nothing to serve.
            accounts = Accounts()
            self._accounts_copy = AccountsCopy(accounts, "the broker")
            places = Places(config.broker_cluster_name)
            control = AccessControl(accounts, NEEDS_OF_FILTERSRV, access.rules, places)
            table = guarded(table, control.check)
        self.server = RemotingServer(
            open_processors(
                table,
                FILTER_SERVER,
                allows_remote=config.allow_remote_administration or config.has_accounts,
            ),
            turn=self._turn,
            limits=ConnectionLimits(
                idle_s=config.server_channel_max_idle_time_seconds, policy=config
            ),
            tls=tls.server,
        )

    @property
    def address(self) -> str:
        """The address that is announced to consumers, `host:port`; final once it is running."""
        port = self._addresses[0].rpartition(":")[2] if self._addresses else self.config.listen_port
        return self.config.address(int(port))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        It is started once it listens, and is registered if the broker can be reached.

        Raises:
          OSError: the address is in use, or does not belong to this machine.
          UnknownToBrokerError: the broker does not support filter servers.
        """
        listeners = self._listeners
        if listeners is None:
            listeners = [open_listener(self.config.bind_address, self.config.listen_port)]
        self._addresses = tuple(format_address(sock.getsockname()) for sock in listeners)
        with closed_at_end(listeners):
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._client.run)
                    await nursery.start(self.server.serve, listeners)
                    services = Supervisor(nursery, logger, ends=(UnknownToBrokerError,))
                    await services.start("the registration at the broker", self._register)
                    what = "the refreshing of filter classes"
                    services.every(what, REFRESH_INTERVAL_S, self.classes.refresh)
                    task_status.started()
            finally:
                with trio.CancelScope(shield=True):
                    await self.classes.aclose()

    # The broker

    def _on_lost(self, channel: Channel) -> None:
        self._lost.set()

    async def _register(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Copy accounts and register every 10 s, and soon after a lost connection.

        That ends the registration.
        """
        was_reached: bool | None = None
        while True:
            self._lost = trio.Event()
            problem = await self._copy_accounts() or await self._send_registration()
            is_reached = problem is None
            if is_reached != was_reached:
                broker = self.config.connect_which_broker
                if is_reached:
                    logger.info(
                        "registered with the broker %(broker)s as %(address)s",
                        {"broker": broker, "address": self.address},
                    )
                else:
                    logger.warning(
                        "not registered with the broker %(broker)s, retrying every "
                        "%(retry_interval_s)g s: %(problem)s",
                        {
                            "broker": broker,
                            "retry_interval_s": RETRY_INTERVAL_S,
                            "problem": problem,
                        },
                    )
            if was_reached is None:
                task_status.started()
            was_reached = is_reached
            with trio.move_on_after(REGISTER_INTERVAL_S if is_reached else RETRY_INTERVAL_S):
                await self._lost.wait()
                await trio.sleep(RETRY_INTERVAL_S)

    async def _copy_accounts(self) -> str | None:
        """Copy the broker's accounts, if requests are checked by them.

        Returns: why it failed; None: it succeeded. The accounts of the last copy stay in force, and
        before the first one every request is refused.
        """
        if self._accounts_copy is None:
            return None
        try:
            if await self._accounts_copy.update(self._ask_for_accounts):
                return None
        except (RemotingError, RequestRefused, ValueError) as error:
            return f"its accounts cannot be copied: {error}"
        return "it has no accounts; set authenticationEnabled=true there, or nowhere"

    async def _ask_for_accounts(self, command: RemotingCommand) -> RemotingCommand:
        answer = await self._ask_broker(command, BROKER_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            name = RequestCode(command.code).name
            raise RequestRefused(answer.code, f"{name} is refused: {answer.remark}")
        return answer

    async def _send_registration(self) -> str | None:
        """Send REGISTER_FILTER_SERVER (301). Returns: why it failed; None: it succeeded."""
        header = RegisterFilterServerRequestHeader(filter_server_addr=self.address)
        command = RemotingCommand(RequestCode.REGISTER_FILTER_SERVER, encode_header(header))
        try:
            answer = await self._ask_broker(command, BROKER_TIMEOUT_S)
        except RemotingError as error:
            return str(error)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise UnknownToBrokerError(
                f"the broker {self.config.connect_which_broker} does not support filter servers "
                f"(301): {answer.remark}"
            )
        if answer.code != ResponseCode.SUCCESS:
            return f"code {answer.code}: {answer.remark}"
        return None

    async def _ask_broker(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        return await self._client.call(self.config.connect_which_broker, command, timeout_s)

    async def _ask_class_name(self, topic: str, group: str) -> str | None:
        """The class in the group's last heartbeat; None if it has none, or cannot be queried."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        command = RemotingCommand(RequestCode.GET_CONSUMER_CONNECTION_LIST, encode_header(header))
        try:
            answer = await self._ask_broker(command, BROKER_TIMEOUT_S)
            if answer.code != ResponseCode.SUCCESS:
                return None
            table = ConsumerConnection.from_body(answer.body).subscription_table
        except (RemotingError, RemoteProtocolError) as error:
            logger.warning(
                "the filter class of group %(group)s for %(topic)s cannot be queried: %(error)s",
                {"group": group, "topic": topic, "error": error},
            )
            return None
        subscription = table.get(topic)
        if subscription is None or not subscription.class_filter_mode:
            return None
        return subscription.sub_string

    # Filters

    async def _make_worker(
        self, language: FilterLanguage, class_name: str, source: bytes
    ) -> Filter:
        limits = WorkerLimits(
            memory_max_mib=self.config.filter_worker_memory_max,
            batch_timeout_s=self.config.filter_batch_timeout_millis / 1000,
            strikes_max=self.config.filter_strikes_max,
        )
        worker = WorkerFilter(language, class_name, source, limits)
        try:
            await worker.compile()
        except BaseException:
            with trio.CancelScope(shield=True):
                await worker.aclose()
            raise
        return worker
