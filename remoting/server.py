"""The listening side: accepts connections and serves each by `Connection`.

Java counterpart: NettyRemotingServer.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Mapping, Sequence

import trio

from .channel import Channel, Processor
from .connection import SWEEP_INTERVAL_S, Connection, ConnectionLimits
from .poller import SocketPoller
from .transport import SocketTransport, StreamTransport, format_address
from .turn import Turn

logger = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that the kernel holds for us. RocketMQ: serverSocketBacklog 1024."""

CONNECTIONS_MAX = 10_000
"""Connections served at once; more are closed at once with a log line. RocketMQ has no limit and
fails when file descriptors run out, for its own files too."""

_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_ACCEPT_PAUSE_S = 0.1


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket.

    Args:
      host: an address of this machine, IPv4 or IPv6; "" or "0.0.0.0" for all of IPv4.
      port: 0 to 65,535; 0 takes a free one.

    Raises: OSError: the address is taken or not ours; the text names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        where = f"{host or '0.0.0.0'}:{port}"
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = ": another process listens there; choose another port, or stop that process"
        raise OSError(error.errno, f"cannot listen on {where} ({error.strerror}){hint}") from error
    return sock


class RemotingServer:
    """Serves a table of processors on sockets, or on streams in memory.

    Lifecycle: `serve` runs until cancelled; then every connection is closed.

    Args:
      processors: request code → processor. Read at every request; may be filled later.
      turn: shared with whoever else writes to the same connections; None: its own.
      on_channel_closed: called once for every connection that ended.
      limits: of each connection.
      connections_max: see CONNECTIONS_MAX.
    """

    def __init__(
        self,
        processors: Mapping[int, Processor],
        *,
        turn: Turn | None = None,
        on_channel_closed: Callable[[Channel], None] | None = None,
        limits: ConnectionLimits | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        # Plain ints: an IntEnum's hash is a Python call on some versions.
        self._processors = {int(code): process for code, process in processors.items()}
        self._turn = turn or Turn()
        self._poller = SocketPoller(self._turn)
        self._on_channel_closed = on_channel_closed
        self._limits = limits or ConnectionLimits()
        self._connections: set[Connection] = set()
        self._connections_max = connections_max

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that are served."""
        return frozenset(self._processors)

    @property
    def processors(self) -> dict[int, Processor]:
        """The table itself: what is put into it counts from the next request on."""
        return self._processors

    @property
    def channels(self) -> list[Channel]:
        """The connections that are open."""
        return [connection.channel for connection in self._connections]

    async def serve(
        self,
        listeners: Sequence[socket.socket],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept on every listener until cancelled; closes them in the end.

        Args:
          listeners: from `open_listener`.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._poller.run)
                nursery.start_soon(self._sweep)
                for listener in listeners:
                    nursery.start_soon(self._accept_loop, listener, nursery)
                task_status.started()
        finally:
            for listener in listeners:
                listener.close()

    async def serve_stream(
        self, stream: trio.abc.Stream, remote_address: str = "127.0.0.1:0"
    ) -> None:
        """Serve one stream, such as an end of a memory stream pair, until it ends."""
        await self._serve_transport(StreamTransport(stream, remote_address))

    async def _accept_loop(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                logger.error("cannot accept a connection: %s", error)
                await trio.sleep(_ACCEPT_PAUSE_S)
                continue
            if len(self._connections) >= self._connections_max:
                peer = format_address(address)
                logger.warning("%s: refused: %d connections", peer, self._connections_max)
                sock.close()
                continue
            try:
                transport = SocketTransport(sock, self._poller)
            except OSError:  # gone already
                sock.close()
                continue
            nursery.start_soon(self._serve_transport, transport)

    async def _serve_transport(self, transport: SocketTransport | StreamTransport) -> None:
        connection = Connection(
            transport, self._processors, self._turn, self._limits, self._on_channel_closed
        )
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_INTERVAL_S)
            now_s = trio.current_time()
            for connection in list(self._connections):
                connection.enforce_limits(now_s)
