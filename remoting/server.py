"""RemotingServer: accepts connections and serves each by a `Connection`.

Java counterpart: NettyRemotingServer.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import trio

from ..common.allocator import Trimmer
from ..common.machine import FILES_RESERVE, connection_places
from ..common.steps import in_parts
from ..common.supervision import FailureLog, Supervisor, contained
from .acceptor import Acceptor, closed_at_end, open_listener
from .address_limits import AddressLimits, PeerAddress
from .burst_reader import RunProcessor
from .channel import Channel, Processor
from .connection import (
    CROWDED_FIRST_FRAME_S,
    SWEEP_INTERVAL_S,
    Connection,
    ConnectionLimits,
)
from .loop_monitor import LoopMonitor
from .loop_transport import LoopTransport
from .memory_budget import MemoryBudget
from .memory_limit import default_budget
from .poller import SocketPoller
from .refusals import Refusals
from .tls_server import ServerTls
from .transport import SocketTransport, StreamTransport, format_address
from .turn import Turn

__all__ = ["RemotingServer", "closed_at_end", "open_listener"]

logger = logging.getLogger(__name__)


CONNECTION_SIZE: Final = 9 * 1024
HANDSHAKE_SIZE: Final = 48 * 1024
"""Bytes of a connection and of an unfinished TLS handshake, as measured with a thousand of them.
They are in no share of the budget, but the heap is trimmed when they are gone."""


SWEEP_COUNT: Final = 1_000
"""Connections whose limits are checked without a pause for other tasks: 0.2 ms if they are silent,
1.3 ms if all have sent something since the last check."""

CONNECTION_LOST = "That connection is closed; others are still served"
"""What an unexpected error of one connection means, for the log."""


class ServedConnection(Protocol):
    """A connection of any protocol, as the server runs it."""

    channel: Channel

    async def run(self) -> None:
        """Serve until either side closes, a limit is exceeded, or the task is cancelled."""

    def enforce_limits(self, now_s: float, *, is_crowded: bool = False) -> None:
        """Close the connection if it has exceeded a time limit."""


MakeConnection = Callable[[SocketTransport | StreamTransport, PeerAddress], ServedConnection]
"""Makes the connection that serves a transport. Raises NotServedError."""


class NotServedError(Exception):
    """A protocol is not served here; the text says why, and what to do."""


HTTP2: Final = "http2"
"""The kind of refusals in metrics: a connection with HTTP/2 where there is none."""


def _no_http2(transport: SocketTransport | StreamTransport, place: PeerAddress) -> ServedConnection:
    raise NotServedError(
        "it speaks HTTP/2, as RocketMQ's 5.x clients (gRPC) do. Brokers serve them, name servers "
        "do not: let the client connect to a broker's address"
    )


class RemotingServer:
    """Serves a table of processors on sockets, or on streams in memory.

    Lifecycle: `serve` runs until cancelled; then every connection is closed.

    Args:
      processors: request code → processor. Read at every request; may be filled later.
      turn: shared with other servers and clients of the process; None: a new one.
      on_channel_closed: called once for every connection that ended.
      limits: of each connection, their number, and the memory of all.
      runs: serves runs of usual requests before they are decoded; None if there are none.
      tls: decides which connections are encrypted; None: none is.
      refusals: counts what the limits refuse; None: new ones.
      http2: makes the connections of peers that speak HTTP/2; None: they are refused.

    Attributes:
      memory: the memory budget of the connections.
    Raises: ValueError: limitExemptAddresses is not a list of addresses and networks.
    """

    def __init__(
        self,
        processors: Mapping[int, Processor],
        *,
        turn: Turn | None = None,
        on_channel_closed: Callable[[Channel], None] | None = None,
        limits: ConnectionLimits | None = None,
        runs: RunProcessor | None = None,
        refusals: Refusals | None = None,
        tls: ServerTls | None = None,
        http2: MakeConnection | None = None,
    ) -> None:
        self._http2 = http2 or _no_http2
        # Plain ints, because an IntEnum's hash is a Python call in some versions.
        self._processors = {int(code): process for code, process in processors.items()}
        self._turn = turn or Turn()
        self._poller = SocketPoller(self._turn)
        self._on_channel_closed = on_channel_closed
        self._limits = limits or ConnectionLimits()
        self.refusals = refusals or Refusals()
        self.memory = MemoryBudget(
            self._limits.policy.remoting_bytes_max or default_budget(), self.refusals
        )
        self._addresses = AddressLimits(self._limits.policy, self.refusals)
        self._connections: set[ServedConnection] = set()
        # Connections without a first byte, or with an unfinished handshake: since when they are.
        self._arriving: dict[trio.CancelScope, float] = {}
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
    def served(self) -> list[ServedConnection]:
        """The open connections, of whatever protocol."""
        return list(self._connections)

    @property
    def turn(self) -> Turn:
        """The turn of its connections."""
        return self._turn

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of each connection."""
        return self._limits

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
        if listeners:
            self._limit_to_descriptors()
        try:
            async with trio.open_nursery() as nursery:
                # Not under the supervisor: it restarts itself, and without it no request would be
                # read.
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

    def _limit_to_descriptors(self) -> None:
        self._addresses.places = connection_places()
        wanted, places = self._limits.policy.connections_max, self._addresses.connections_max
        # Without descriptors left, the store could not open its files.
        if places < wanted:
            logger.warning(
                "at most %(places)d connections are served at a time, not connectionsMax=%(wanted)d"
                ", because this process may open few files, and some are kept for the store: raise "
                "the limit (ulimit -n, LimitNOFILE of systemd) above %(least)d",
                {"places": places, "wanted": wanted, "least": wanted + FILES_RESERVE},
            )

    async def serve_stream(
        self,
        stream: trio.abc.Stream,
        remote_address: str = "127.0.0.1:0",
        local_address: str = "",
        *,
        speaks_http2: bool = False,
    ) -> None:
        """Serve one stream, such as an end of a memory stream pair, until it ends.

        Args:
          remote_address, local_address: for the server, `ip:port`; "": the same as the peer's.
          speaks_http2: as gRPC's clients do; of a stream it is not found out.
        """
        transport = StreamTransport(stream, remote_address, local_address)
        await self.serve_transport(transport, speaks_http2=speaks_http2)

    async def serve_transport(
        self, transport: SocketTransport | StreamTransport, *, speaks_http2: bool = False
    ) -> None:
        """Serve one connection, of whatever kind, until it ends."""
        place = self._place_of(transport.remote_address)
        if place is not None:
            await self._serve(transport, place, self._http2 if speaks_http2 else None)
            return
        transport.abort()
        if isinstance(transport, StreamTransport):
            await transport.aclose()

    def _take(self, nursery: trio.Nursery, sock: socket.socket, address: object) -> None:
        """Serve an accepted connection."""
        place = self._place_of(format_address(address))
        if place is None:
            sock.close()
            return
        try:
            transport = SocketTransport(sock, self._poller)
        except OSError:  # the peer has closed it already
            self._addresses.leave(place)
            sock.close()
            return
        if self._tls is None:
            nursery.start_soon(self._serve, transport, place)
        else:
            nursery.start_soon(self._admit, self._tls, transport, place)

    def _place_of(self, address: str) -> PeerAddress | None:
        """The place of a new connection; None: it is refused, or its admission failed."""
        with contained(self._failures, "a new connection", CONNECTION_LOST):
            return self._addresses.admit(address)
        return None

    async def _admit(self, tls: ServerTls, transport: SocketTransport, place: PeerAddress) -> None:
        """Serve an accepted connection, encrypted or not."""
        admitted: SocketTransport | None = None
        scope = trio.CancelScope()
        self._arriving[scope] = trio.current_time()
        try:
            with contained(self._failures, "a new connection", CONNECTION_LOST), scope:
                admitted = await tls.admit(transport, self._limits.idle_s, self.refusals)
        finally:
            del self._arriving[scope]
            # Every way out but admission gives the place back, cancellation included.
            if admitted is None:
                transport.abort()
                self._addresses.leave(place)
        if scope.cancelled_caught:
            reason = "it sent no request, and nine tenths of all connections are taken"
            self.refusals.note("connectionsMax", transport.remote_address, f"closed: {reason}")
        if admitted is not None:
            make = self._http2 if admitted.speaks_http2 else self._made
            await self._serve(admitted, place, make)

    def _made(
        self, transport: SocketTransport | StreamTransport | LoopTransport, place: PeerAddress
    ) -> Connection:
        return Connection(
            transport,
            self._processors,
            self._turn,
            self._limits,
            self._on_channel_closed,
            self.memory,
            self._runs,
            address=place,
        )

    async def _serve(
        self,
        transport: SocketTransport | StreamTransport,
        place: PeerAddress,
        make: MakeConnection | None = None,
    ) -> None:
        """Serve a connection that was admitted."""
        with contained(self._failures, "a connection", CONNECTION_LOST):
            try:
                await self.run_connection((make or self._made)(transport, place))
            except NotServedError as error:
                peer, text = transport.remote_address, f"closed: {error}"
                self.refusals.note_problem(HTTP2, peer, text)
            finally:
                self._addresses.leave(place)
                transport.abort()

    def loop_connection(self, transport: LoopTransport, place: PeerAddress) -> Connection:
        """A connection whose client is in this process; what waits for an answer is counted with
        that of an address. Its caller runs it, and limits it."""
        return self._made(transport, place)

    async def run_connection(self, connection: ServedConnection) -> None:
        """Run a connection as one of this server's."""
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _sweep(self) -> None:
        """Check the limits of all connections, in parts between which other tasks run."""
        now_s = trio.current_time()
        objects = len(self._connections) * CONNECTION_SIZE
        if self._tls is not None:
            objects += self._tls.handshakes * HANDSHAKE_SIZE
        used, used_max = self.memory.used, self.memory.take_used_max()
        self._trimmer.note(used + objects, used_max + objects, now_s)
        self._addresses.forget_finished()
        # With few places left, connections that send nothing must not keep others out.
        if self._addresses.is_crowded:
            for scope, began_s in self._arriving.items():
                if now_s - began_s > CROWDED_FIRST_FRAME_S:
                    scope.cancel()
        for part in in_parts(self.served, SWEEP_COUNT):
            self._enforce_limits(part)
            await trio.lowlevel.checkpoint()

    def _enforce_limits(self, connections: Sequence[ServedConnection]) -> None:
        now_s, is_crowded = trio.current_time(), self._addresses.is_crowded
        for connection in connections:
            if connection not in self._connections:  # it has ended since the check began
                continue
            try:
                connection.enforce_limits(now_s, is_crowded=is_crowded)
            except Exception as error:  # noqa: BLE001 - our bug: other connections are served
                meaning = "That connection is closed"
                self._failures.note("checking a connection's limits", meaning, error)
                connection.channel.close("its limits could not be checked")
