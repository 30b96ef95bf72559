"""ProxyController: one running proxy.

Java counterpart: proxy/ProxyStartup.java of RocketMQ 5.5.0 in cluster mode.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Final

import trio

from ..common.clock import WallTimeMs
from ..grpc_server.server import GrpcServer
from ..grpc_server.service import Service
from ..remoting.address_limits import PeerAddress
from ..remoting.client import RemotingClient
from ..remoting.connection import ConnectionLimits
from ..remoting.memory_budget import MemoryBudget
from ..remoting.memory_limit import default_budget
from ..remoting.opener import Opener, OpenStream
from ..remoting.poller import SocketPoller
from ..remoting.server import RemotingServer, ServedConnection, closed_at_end, open_listener
from ..remoting.tls_settings import Tls, new_tls
from ..remoting.transport import SocketTransport, StreamTransport, format_address
from ..remoting.turn import Turn
from .backend import ClusterBackend
from .cluster import Cluster
from .config import ProxyConfig
from .links import Network

logger = logging.getLogger(__name__)

CONNECT_S: Final = 2.0
"""For a connection to a broker: the usual call of 3 s has time for another broker then."""

STOP_S: Final = 1.0
"""At a stop: for what ended clients still ask, such as giving messages back."""


class ProxyController:
    """One proxy.

    Lifecycle: create it, start `run` in a nursery, cancel it to stop. Owner: that one task.

    Args:
      now_ms: the time of day.
      open_stream: connects to servers in the same loop; None: over TCP.
      listeners: sockets to serve on, from `open_listener`; None: opened as `config` says.
      tls: of the listeners and of the connections to other servers; None: RocketMQ's defaults.
    Raises: ImportError: protobuf is not installed. ConfigError: see `ProxyConfig.access`.

    Attributes:
      server: accepts connections.
      cluster: what is known of the brokers.
    """

    def __init__(
        self,
        config: ProxyConfig,
        *,
        now_ms: Callable[[], WallTimeMs],
        open_stream: OpenStream | None = None,
        listeners: Sequence[socket.socket] | None = None,
        tls: Tls | None = None,
    ) -> None:
        tls = tls or new_tls()
        access = config.access
        self.config = config
        self._listeners = listeners
        self._addresses: tuple[str, ...] = ()
        self._turn = Turn()
        self._client = RemotingClient(
            turn=self._turn,
            open_stream=open_stream,
            tls=tls.client,
            credentials=access.inner,
            connect_timeout_s=CONNECT_S,
        )
        self._poller = SocketPoller(self._turn)
        self.cluster = Cluster(config, self._client, turn=self._turn, start_soon=self._start_soon)
        self._network = Network(
            Opener(
                self._poller, open_stream=open_stream, tls=tls.client, connect_timeout_s=CONNECT_S
            ),
            self.cluster.address,
            turn=self._turn,
            start_soon=self._start_soon,
            memory=MemoryBudget(config.remoting_bytes_max or default_budget()),
            links_max=config.links_max,
        )
        backend = ClusterBackend(self.cluster, self._network, has_accounts=access.is_enabled)
        self._grpc = GrpcServer(Service(backend, now_ms, rules=config.rules))
        self.server = RemotingServer(
            {},
            turn=self._turn,
            limits=ConnectionLimits(
                idle_s=config.grpc_client_idle_time_mills / 1000, policy=config
            ),
            tls=tls.server,
            http2=self._http2,
        )
        self._behind: trio.Nursery | None = None

    @property
    def listen_addresses(self) -> tuple[str, ...]:
        """The addresses it listens on, as `ip:port` with the actual port; known once it runs."""
        return self._addresses

    def _http2(
        self, transport: SocketTransport | StreamTransport, address: PeerAddress
    ) -> ServedConnection:
        return self._grpc.connection(self.server, transport, address)

    def _start_soon(self, function: Callable[..., object], *args: object) -> None:
        """Run a connection or a question. Raises: RuntimeError: the proxy does not run."""
        if self._behind is None:
            raise RuntimeError("the proxy does not run")
        self._behind.start_soon(function, *args)  # type: ignore[arg-type]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; it reports "started" once the sockets listen.

        Raises: OSError: an address is in use or not of this machine; the message names it.
        """
        listeners = self._listeners
        if listeners is None:
            listeners = [open_listener(self.config.bind_address, self.config.grpc_server_port)]
        self._addresses = tuple(format_address(sock.getsockname()) for sock in listeners)
        with closed_at_end(listeners):
            async with trio.open_nursery() as nursery:
                # A cancellation while it starts must not leave it running without an owner.
                with trio.CancelScope(shield=True):
                    await nursery.start(self._run_behind)
                try:
                    async with trio.open_nursery() as front:
                        await front.start(self.server.serve, listeners)
                        logger.info(
                            "the proxy listens on %(addresses)s",
                            {"addresses": ", ".join(self._addresses) or "-"},
                        )
                        task_status.started()
                finally:
                    with trio.CancelScope(shield=True), trio.move_on_after(STOP_S):
                        await self._network.wait_closed()
                    if self._behind is not None:
                        self._behind.cancel_scope.cancel()

    async def _run_behind(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run what asks brokers; it ends after the clients' connections."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                self._behind = nursery
                nursery.start_soon(self._poller.run)
                await nursery.start(self._client.run)
                task_status.started()
                await trio.sleep_forever()
