"""A cluster and a proxy in memory, in virtual time: two name servers and two masters.

Any server can die, or hang: what is sent to it and what it sends is kept back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.proxy.config import ProxyConfig
from trocket.proxy.controller import ProxyController
from trocket.remoting.bodies import TopicConfig
from trocket.remoting.client import RemotingClient
from trocket.remoting.server import RemotingServer

from ..kit import Broker, embedded_broker
from ..kit.clock import TrioClock

NAME_SERVERS: Final = ("127.0.0.1:9876", "127.0.0.1:9877")
BROKERS: Final = {"broker-a": 10911, "broker-b": 10921}


class Net:
    """Connects to servers by their ports.

    Attributes:
      servers: by port.
      connected: connections now, by port.
      opened: connections so far, by port.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.servers: dict[int, RemotingServer] = {}
        self.connected: Counter[int] = Counter()
        self.opened: Counter[int] = Counter()
        self._nursery = nursery
        self._gates: dict[int, trio.Event] = {}
        self._scopes: dict[int, list[trio.CancelScope]] = {}
        self._client_port = 50_000

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Connect. Raises: ConnectionRefusedError: the server has died."""
        await trio.lowlevel.checkpoint()
        server = self.servers.get(port)
        if server is None:
            raise ConnectionRefusedError(f"nothing listens on {port}")
        self._client_port += 1
        ours, near = trio.testing.memory_stream_pair()
        far, theirs = trio.testing.memory_stream_pair()
        address = f"127.0.0.1:{self._client_port}"
        self._nursery.start_soon(self._run, port, server, (near, far, theirs), address)
        return ours

    async def _run(
        self,
        port: int,
        server: RemotingServer,
        streams: tuple[trio.abc.Stream, trio.abc.Stream, trio.abc.Stream],
        address: str,
    ) -> None:
        near, far, theirs = streams
        self.connected[port] += 1
        self.opened[port] += 1
        with trio.CancelScope() as scope:
            self._scopes.setdefault(port, []).append(scope)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.serve_stream, theirs, address)
                nursery.start_soon(self._pump, port, near, far)
                nursery.start_soon(self._pump, port, far, near)
        self.connected[port] -= 1
        with trio.CancelScope(shield=True):
            for stream in streams:
                await stream.aclose()

    async def _pump(self, port: int, source: trio.abc.Stream, sink: trio.abc.Stream) -> None:
        try:
            while data := await source.receive_some(65_536):
                if port in self._gates:
                    await self._gates[port].wait()
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await sink.aclose()

    def die(self, port: int) -> None:
        """Close all connections to a server, and refuse new ones."""
        self.servers.pop(port, None)
        for scope in self._scopes.pop(port, []):
            scope.cancel()

    def hang(self, port: int) -> None:
        """Keep back what a server sends and is sent; connections can still be opened."""
        self._gates[port] = trio.Event()

    def release(self, port: int) -> None:
        """Let it through again."""
        self._gates.pop(port).set()


class VirtualCluster:
    """See the module.

    Attributes:
      brokers: by name.
      proxy: running.
    """

    def __init__(self, net: Net, brokers: dict[str, Broker], proxy: ProxyController) -> None:
        self.net = net
        self.brokers = brokers
        self.proxy = proxy

    @property
    def server(self) -> RemotingServer:
        """The proxy's."""
        return self.proxy.server

    async def create_topic(self, name: str, *, only: str = "", **settings: Any) -> None:
        """Create a topic on both brokers, or on one."""
        for broker, each in self.brokers.items():
            if only in ("", broker):
                each.controller.topics.update([TopicConfig(topic_name=name, **settings)])
        await trio.sleep(2)  # until the name servers know it, and it is no longer "there is none"

    def clients(self, broker: str) -> set[str]:
        """The ids of the producers and consumers that a broker knows."""
        wing = self.brokers[broker].controller.parts.clients
        producers = [
            each for group in wing.producers.group_table.values() for each in group.values()
        ]
        consumers = [
            each
            for group in wing.consumers.consumer_table.values()
            for each in group.channel_info_table.values()
        ]
        return {each.client_id for each in [*producers, *consumers]}

    def stored(self, broker: str, topic: str, queues: int = 4) -> int:
        """The number of messages that a broker has of a topic."""
        store = self.brokers[broker].controller.store
        return sum(store.max_offset(topic, queue_id) for queue_id in range(queues))


@asynccontextmanager
async def virtual_cluster(
    *, broker_options: dict[str, Any] | None = None, **proxy_options: Any
) -> AsyncIterator[VirtualCluster]:
    """Run one until the block ends."""
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        net = Net(nursery)
        for address in NAME_SERVERS:
            name_server = NamesrvController(
                NamesrvConfig(), clock=TrioClock(), disk=MemoryDisk(), listeners=[]
            )
            await nursery.start(name_server.run)
            net.servers[int(address.rpartition(":")[2])] = name_server.server
        brokers: dict[str, Broker] = {}
        for name, port in BROKERS.items():
            broker = embedded_broker(
                client=RemotingClient(open_stream=net.open_stream),
                broker_name=name,
                listen_port=port,
                namesrv_addr=";".join(NAME_SERVERS),
                **(broker_options or {}),
            )
            brokers[name] = await stack.enter_async_context(broker)
            server = brokers[name].controller.server
            assert server is not None
            net.servers[port] = server
        config = ProxyConfig(namesrv_addr=";".join(NAME_SERVERS), **proxy_options)
        proxy = ProxyController(
            config, now_ms=TrioClock().wall_ms, open_stream=net.open_stream, listeners=[]
        )
        await nursery.start(proxy.run)
        yield VirtualCluster(net, brokers, proxy)
        nursery.cancel_scope.cancel()
