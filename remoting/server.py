"""RemotingServer: accepts connections and serves each by a `Connection`.

Java counterpart: NettyRemotingServer.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import trio

from ..common.allocator import Trimmer
from ..common.supervision import FailureLog, Supervisor, contained
from .acceptor import Acceptor, open_listener
from .channel import Channel, Processor, RunProcessor
from .connection import SWEEP_INTERVAL_S, Connection, ConnectionLimits
from .loop_monitor import LoopMonitor
from .memory_budget import MemoryBudget
from .memory_limit import default_budget
from .poller import SocketPoller
from .tls_server import ServerTls
from .transport import SocketTransport, StreamTransport, format_address
from .turn import Turn

__all__ = ["RemotingServer", "open_listener"]

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 10_000
"""Connections served at a time; further ones are closed with a log line. RocketMQ has no limit, and
fails when file descriptors run out, also for its files."""


class RemotingServer:
    """Serves a table of processors on sockets, or on streams in memory.

    Lifecycle: `serve` runs until cancelled; then every connection is closed.

    Args:
      processors: request code → processor. Read at every request; may be filled later.
      turn: shared with other servers and clients of the process; None: a new one.
      on_channel_closed: called once for every connection that ended.
      limits: of each connection, and the memory of all.
      connections_max: see CONNECTIONS_MAX.
      runs: serves runs of usual requests before they are decoded; None: there are none.
      tls: decides which connections are encrypted; None: none is.

    Attributes:
      memory: the memory budget of the connections.
    """

    def __init__(
        self,
        processors: Mapping[int, Processor],
        *,
        turn: Turn | None = None,
        on_channel_closed: Callable[[Channel], None] | None = None,
        limits: ConnectionLimits | None = None,
        connections_max: int = CONNECTIONS_MAX,
        runs: RunProcessor | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        # Plain ints, because an IntEnum's hash is a Python call in some versions.
        self._processors = {int(code): process for code, process in processors.items()}
        self._turn = turn or Turn()
        self._poller = SocketPoller(self._turn)
        self._on_channel_closed = on_channel_closed
        self._limits = limits or ConnectionLimits()
        self.memory = MemoryBudget(self._limits.memory_max or default_budget())
        self._connections: set[Connection] = set()
        self._connections_max = connections_max
        self._arriving = 0  # connections without a first byte, or with an unfinished handshake
        self._tls = tls
        self._runs = runs
        self._failures = FailureLog(logger)
        self._trimmer = Trimmer()

    @property
    def codes(self) -> frozenset[int]:
        """The served request codes."""
        return frozenset(self._processors)

    @property
    def processors(self) -> dict[int, Processor]:
        """The table itself; a change takes effect from the next request on."""
        return self._processors

    @property
    def channels(self) -> list[Channel]:
        """The open connections."""
        return [connection.channel for connection in self._connections]

    @property
    def monitor(self) -> LoopMonitor:
        """Slow requests and lag of this server's event loop."""
        return self._turn.monitor

    async def serve(
        self,
        listeners: Sequence[socket.socket],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept on every listener until cancelled; closes them at the end.

        Args:
          listeners: from `open_listener`.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._poller.run)
                services = Supervisor(nursery, logger)
                services.every("the check of connection limits", SWEEP_INTERVAL_S, self._sweep)
                services.start_soon("the monitor of the event loop", self._turn.monitor.run)
                if self._tls is not None:
                    services.start_soon("the check of certificates", self._tls.watch)
                for listener in listeners:
                    acceptor = Acceptor(listener, partial(self._take, nursery))
                    services.start_soon("the acceptance of connections", acceptor.run)
                task_status.started()
        finally:
            for listener in listeners:
                listener.close()

    async def serve_stream(
        self,
        stream: trio.abc.Stream,
        remote_address: str = "127.0.0.1:0",
        local_address: str = "",
    ) -> None:
        """Serve one stream, such as an end of a memory stream pair, until it ends.

        Args:
          remote_address, local_address: for the server, `ip:port`; "": the same as the peer's.
        """
        await self._serve_transport(StreamTransport(stream, remote_address, local_address))

    def _take(self, nursery: trio.Nursery, sock: socket.socket, address: object) -> None:
        """Serve an accepted connection."""
        if len(self._connections) + self._arriving >= self._connections_max:
            peer = format_address(address)
            logger.warning(
                "%(peer)s: the connection is refused, because %(limit)d are open, which is the "
                "limit",
                {"peer": peer, "limit": self._connections_max},
            )
            sock.close()
            return
        try:
            transport = SocketTransport(sock, self._poller)
        except OSError:  # the peer has closed it already
            sock.close()
            return
        if self._tls is None:
            nursery.start_soon(self._serve_transport, transport)
        else:
            self._arriving += 1
            nursery.start_soon(self._admit, self._tls, transport)

    async def _admit(self, tls: ServerTls, transport: SocketTransport) -> None:
        """Serve an accepted connection, encrypted or not."""
        admitted: SocketTransport | None = None
        meaning = "That connection is closed; others are still served"
        try:
            with contained(self._failures, "a new connection", meaning):
                admitted = await tls.admit(transport, self._limits.idle_s)
        finally:
            self._arriving -= 1
            if admitted is None:
                transport.abort()
        if admitted is not None:
            await self._serve_transport(admitted)

    async def _serve_transport(self, transport: SocketTransport | StreamTransport) -> None:
        meaning = "That connection is closed; others are still served"
        with contained(self._failures, "a connection", meaning):
            try:
                connection = Connection(
                    transport,
                    self._processors,
                    self._turn,
                    self._limits,
                    self._on_channel_closed,
                    self.memory,
                    self._runs,
                )
                self._connections.add(connection)
                try:
                    await connection.run()
                finally:
                    self._connections.discard(connection)
            finally:
                transport.abort()

    def _sweep(self) -> None:
        now_s = trio.current_time()
        self._trimmer.note(self.memory.used, self.memory.take_used_max(), now_s)
        for connection in list(self._connections):
            try:
                connection.enforce_limits(now_s)
            except Exception as error:  # noqa: BLE001 - our bug: other connections are served
                meaning = "That connection is closed"
                self._failures.note("checking a connection's limits", meaning, error)
                connection.channel.close("its limits could not be checked")
