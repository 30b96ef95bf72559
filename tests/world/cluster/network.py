"""The network of the simulated cluster: connections that carry bytes in virtual time.

A connection is a pair of `Endpoint`s; bytes on their way are events of one queue, which one task
works off. So there is no task for each connection's bytes, and one order for one seed. As with TCP,
bytes of one direction never overtake each other, bytes that cannot get through are kept and arrive
later, and a peer that is gone without a word goes unnoticed by a peer that only listens.

Brokers read an endpoint as they read a socket; the log's connections and their tests want a trio
stream, `EndpointStream`.
"""

from __future__ import annotations

import errno
import heapq
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import trio

from trocket.remoting.channel import Buffer
from trocket.remoting.client import RemotingClient
from trocket.remoting.opener import Opener
from trocket.remoting.poller import SocketPoller
from trocket.remoting.transport import SocketTransport
from trocket.remoting.turn import Turn

from .process import Process

REMOTING, LOG = "remoting", "log"
"""Kinds of connections: requests, and a master's log."""

HA_CONNECT_TIMEOUT_S = 3.0


class Endpoint(SocketTransport):
    """One end of a connection.

    Attributes:
      inbox: bytes that have come and were not read.
      is_closed, is_at_end, is_reset: by us; by the peer in good order; by the peer or the network.
    """

    def __init__(self, network: Network, process: Process, connection: Connection) -> None:
        self.process = process
        self.connection = connection
        self.peer: Endpoint
        self.remote_address = self.local_address = f"{process.host}:0"
        self.inbox = bytearray()
        self.is_closed = self.is_at_end = self.is_reset = False
        self.on_news: Callable[[], None] | None = None
        self.turn: Turn | None = None
        self.last_s = 0.0
        self.kept: list[bytes | None] = []
        self._network = network
        process.endpoints[self] = None

    # ---- what a broker calls -------------------------------------------------------------

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        self.on_news = on_readable
        if self.inbox or self.is_at_end or self.is_reset:
            self._network.after(0.0, self.notify)

    def stop_reading(self) -> None:
        self.on_news = None

    def receive_nowait(self) -> bytes:
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "reset by the peer")
        if not self.inbox and not self.is_at_end:
            raise BlockingIOError
        data = bytes(self.inbox)
        self.inbox.clear()
        return data

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        if self.is_reset or not self.process.is_alive:
            raise ConnectionResetError(errno.ECONNRESET, "reset by the peer")
        self._network.send(self, b"".join(buffers))
        return []

    def abort(self) -> None:
        self.close()

    # ---- what the network calls ----------------------------------------------------------

    def close(self) -> None:
        """Close this end; the peer reads what was sent, then the end."""
        if not self.is_closed:
            self.is_closed = True
            self.on_news = None
            self.process.endpoints.pop(self, None)
            self._network.send(self, None)

    def feed(self, data: bytes) -> None:
        """Bytes have come."""
        self.inbox += data
        self.notify()

    def reset(self) -> None:
        """The connection is broken."""
        if not self.is_reset and not self.is_closed:
            self.is_reset = True
            self.notify()

    def notify(self) -> None:
        """Have the process look, if it can."""
        if self.on_news is None or not self.process.is_alive or self.process.is_stopped:
            return
        if self.turn is None:
            self.on_news()
            return
        self.turn.active = True
        try:
            self.on_news()
        finally:
            self.turn.end()


class EndpointStream(trio.abc.Stream):
    """An endpoint as a trio stream."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._news = trio.Event()
        endpoint.on_news = self._on_news

    def _on_news(self) -> None:
        self._news.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        endpoint = self._endpoint
        await trio.lowlevel.checkpoint()
        while True:
            if endpoint.is_closed:
                raise trio.ClosedResourceError
            if endpoint.inbox:
                size = 1 if endpoint.connection.is_bytewise else max_bytes or len(endpoint.inbox)
                data = bytes(endpoint.inbox[:size])
                del endpoint.inbox[:size]
                return data
            if endpoint.is_reset:
                raise trio.BrokenResourceError
            if endpoint.is_at_end:
                return b""
            self._news = trio.Event()
            await self._news.wait()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._endpoint.is_closed:
            raise trio.ClosedResourceError
        if self._endpoint.is_reset:
            raise trio.BrokenResourceError
        self._endpoint._network.send(self._endpoint, bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self._endpoint.close()
        self._news.set()
        await trio.lowlevel.checkpoint()


class Connection:
    """What both ends share.

    Attributes:
      delay_s: from one end to the other.
      is_bytewise: each byte comes alone.
      is_lost: nothing arrives any more, and neither end learns it.
      reset_after: this many more bytes arrive, then both ends learn that it is broken.
    """

    def __init__(self, kind: str, delay_s: float) -> None:
        self.kind = kind
        self.delay_s = delay_s
        self.is_bytewise = False
        self.is_lost = False
        self.reset_after: int | None = None
        self.ends: tuple[Endpoint, Endpoint]


class Block(NamedTuple):
    """What does not get through: from these machines to those, of one kind or (None) all."""

    sources: frozenset[str]
    targets: frozenset[str]
    kind: str | None


class Listener(NamedTuple):
    """Who takes connections to an address."""

    process: Process
    turn: Turn | None
    kind: str
    serve: Callable[[Endpoint], None]


class Network:
    """All connections there are.

    Args:
      random: how long bytes take.

    Attributes:
      listeners: by (host, port).
      dark: hosts without power: nothing answers there.
      redirects: (machine, port) to the (host, port) that it reaches instead.
      slow: machines to the longest delay, s, of the connections that they open now.
    """

    def __init__(self, random: Random) -> None:
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.dark: set[str] = set()
        self.redirects: dict[tuple[str, int], tuple[str, int]] = {}
        self.connections: list[Connection] = []
        self._blocks: list[Block] = []
        self._unblocked = trio.Event()
        self._random = random
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0
        self._wanted = trio.Event()

    # ---- events --------------------------------------------------------------------------

    def after(self, delay_s: float, act: Callable[..., None], *arguments: Any) -> None:
        """Do something later."""
        self._at(trio.current_time() + delay_s, act, *arguments)

    def _at(self, time_s: float, act: Callable[..., None], *arguments: Any) -> None:
        self._number += 1
        heapq.heappush(self._events, (time_s, self._number, act, arguments))
        if self._events[0][1] == self._number:
            self._wanted.set()

    async def run(self) -> None:
        """Carry bytes until cancelled."""
        events = self._events
        while True:
            self._wanted = trio.Event()
            if events and events[0][0] > trio.current_time():
                with trio.move_on_at(events[0][0]):
                    await self._wanted.wait()
            elif not events:
                await self._wanted.wait()
            while events and events[0][0] <= trio.current_time():
                _, _, act, arguments = heapq.heappop(events)
                act(*arguments)

    # ---- connections ---------------------------------------------------------------------

    async def connect(
        self, process: Process, host: str, port: int, kind: str = REMOTING
    ) -> Endpoint:
        """A connection; waits as long as nothing answers.

        Args:
          kind: of the expected server, for an address where none listens.

        Raises: OSError: no server listens.
        """
        host, port = self.redirects.get((process.machine, port), (host, port))
        await trio.sleep(self._delay_s())
        while True:
            if not process.is_alive:
                raise OSError("this process is gone")
            listener = self.listeners.get((host, port))
            found = kind if listener is None else listener.kind
            target = self._machine_of(host)
            if host in self.dark or self._is_blocked(process.machine, target, found):
                await self._unblocked.wait()
                continue
            if listener is None or not listener.process.is_alive:
                raise ConnectionRefusedError(f"no server listens on {host}:{port}")
            return self._connect(process, listener, f"{host}:{port}")

    def _connect(self, process: Process, listener: Listener, address: str) -> Endpoint:
        connection = Connection(listener.kind, self._delay_s())
        ours = Endpoint(self, process, connection)
        theirs = Endpoint(self, listener.process, connection)
        ours.peer, theirs.peer = theirs, ours
        ours.remote_address = theirs.local_address = address
        theirs.remote_address = f"{process.host}:{40000 + self._number % 20000}"
        theirs.turn = listener.turn
        connection.ends = (ours, theirs)
        self.connections = [
            each for each in self.connections if not all(end.is_closed for end in each.ends)
        ]
        self.connections.append(connection)
        listener.serve(theirs)
        return ours

    async def connect_log(self, process: Process, address: str) -> trio.abc.Stream:
        """Connect a slave to its master's haListenPort, as `connect_tcp` does."""
        host, _, port = address.rpartition(":")
        with trio.move_on_after(HA_CONNECT_TIMEOUT_S):
            return EndpointStream(await self.connect(process, host, int(port), LOG))
        raise TimeoutError("no connection within 3 s")

    def _delay_s(self) -> float:
        return self._random.choice((0.0, 0.0, 0.001, 0.002))

    def _machine_of(self, host: str) -> str:
        for (each, _), listener in self.listeners.items():
            if each == host:
                return listener.process.machine
        return ""

    # ---- bytes ---------------------------------------------------------------------------

    def send(self, source: Endpoint, data: bytes | None) -> None:
        """Send bytes, or (None) the end, to the other end."""
        if data == b"" or not source.process.is_alive:
            return
        target, connection = source.peer, source.connection
        blocked = self._is_blocked(source.process.machine, target.process.machine, connection.kind)
        if source.kept or blocked:
            source.kept.append(data)
            return
        source.last_s = max(trio.current_time() + connection.delay_s, source.last_s)
        self._at(source.last_s, self._arrive, source, data)

    def _arrive(self, source: Endpoint, data: bytes | None) -> None:
        target, connection = source.peer, source.connection
        if connection.is_lost or target.is_reset:
            return
        if not target.process.is_alive or target.is_closed:
            # The machine says so, if there is one and anybody to hear it.
            if target.process.host not in self.dark and data is not None:
                self.after(connection.delay_s, source.reset)
            return
        if data is None:
            target.is_at_end = True
            target.notify()
        elif connection.reset_after is not None and len(data) > connection.reset_after:
            target.feed(data[: connection.reset_after])
            self.break_off(connection)
        elif connection.is_bytewise and connection.kind == REMOTING:
            for byte in data:
                target.feed(bytes((byte,)))
        else:
            if connection.reset_after is not None:
                connection.reset_after -= len(data)
            target.feed(data)

    def break_off(self, connection: Connection) -> None:
        """Break a connection; both ends learn it."""
        for end in connection.ends:
            end.reset()

    def process_ended(self, process: Process, *, silently: bool) -> None:
        """Close what a process had open.

        Args:
          silently: with the power; a peer learns it when it sends something to a machine that is
            there again.
        """
        for endpoint in list(process.endpoints):
            if not silently and not endpoint.connection.is_lost:
                self.after(endpoint.connection.delay_s, endpoint.peer.reset)
            endpoint.is_closed = True
            endpoint.on_news = None
        process.endpoints.clear()

    # ---- partitions ----------------------------------------------------------------------

    def _is_blocked(self, source: str, target: str, kind: str) -> bool:
        for block in self._blocks:
            if source in block.sources and target in block.targets and block.kind in (None, kind):
                return True
        return False

    def block(self, *blocks: Block) -> None:
        """Let nothing through there."""
        self._blocks += blocks

    def unblock(self, *blocks: Block) -> None:
        """Let it through again; what was sent meanwhile arrives now."""
        for block in blocks:
            if block in self._blocks:
                self._blocks.remove(block)
        self.look_again()

    def look_again(self) -> None:
        """Try what could not get through."""
        unblocked, self._unblocked = self._unblocked, trio.Event()
        unblocked.set()
        for connection in self.connections:
            for end in connection.ends:
                kept, end.kept = end.kept, []
                for data in kept:
                    self.send(end, data)

    def heal(self) -> None:
        """All is well, but for connections that are lost."""
        self._blocks.clear()
        self.redirects.clear()
        for connection in self.connections:
            connection.is_bytewise = False
            connection.reset_after = None
            connection.delay_s = min(connection.delay_s, 0.002)
        self.look_again()


class NetworkOpener(Opener):
    """Opens connections in this network."""

    def __init__(
        self, network: Network, process: Process, turn: Turn, poller: SocketPoller
    ) -> None:
        super().__init__(poller)
        self._network = network
        self._process = process
        self._turn = turn

    async def _open(self, address: str, host: str, port: int) -> SocketTransport:
        endpoint = await self._network.connect(self._process, host, port)
        endpoint.turn = self._turn
        endpoint.remote_address = address
        return endpoint


class NetworkClient(RemotingClient):
    """Our client in this network."""

    def __init__(self, network: Network, process: Process, turn: Turn | None = None) -> None:
        turn = turn or Turn()
        super().__init__(turn=turn)
        self._opener = NetworkOpener(network, process, turn, self._poller)
