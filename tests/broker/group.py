"""Brokers of one name, master and slaves, with a name server: memory disks and streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import trio
import trio.testing

from trocket.broker.controller import BrokerController
from trocket.broker.filter_servers.filter_server_keeper import open_filter_server
from trocket.broker.replication.replication import MasterSide
from trocket.broker.settings.config import BrokerConfig
from trocket.common.child import OpenProcess
from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.bodies import TopicRouteData
from trocket.remoting.client import RemotingClient
from trocket.remoting.turn import Turn
from trocket.store.config import BrokerRole, MessageStoreConfig

from ..kit import Client, TrioClock

HOST = "192.0.2.1"
NAMESRV_PORT = 9876
FIRST_PORT, PORT_STEP = 10911, 100
ROUTE = 105

CLOCK = TrioClock()

Pipe = trio.StapledStream[Any, Any]


def _close(stream: Pipe) -> None:
    stream.send_stream.close()
    stream.receive_stream.close()


class Node:
    """One broker; it may die and come back.

    Attributes:
      disk: what it has, or has left.
      vip_refused: nothing listens on its VIP port.
      is_ending: it takes no connection any more.
    """

    def __init__(self, group: Group, number: int, options: dict[str, Any]) -> None:
        self.disk = MemoryDisk(journalled=True)
        self.port = FIRST_PORT + number * PORT_STEP
        self.options = options
        self.vip_refused = self.is_ending = False
        self.controller: BrokerController | None = None
        self._group = group
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> BrokerController:
        assert self.controller is not None
        return self.controller

    async def start(self, **options: Any) -> BrokerController:
        """Start it; `options` are changes that stay."""
        self.options |= options
        await self._group.nursery.start(self._run)
        return self.running

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        broker_options: dict[str, Any] = {
            "broker_name": "b",
            "broker_ip1": HOST,
            "broker_ip2": HOST,
            "listen_port": self.port,
            "namesrv_addr": f"{HOST}:{NAMESRV_PORT}",
        }
        store_options: dict[str, Any] = {
            "mapped_file_size_commit_log": 256 * 1024,
            "max_hash_slot_num": 100,
            "max_index_num": 400,
            "store_path_root_dir": "/store",
        }
        for name, value in self.options.items():
            known = name in BrokerConfig.__dataclass_fields__
            (broker_options if known else store_options)[name] = value
        turn = Turn()
        self.controller = BrokerController(
            BrokerConfig(**broker_options),
            MessageStoreConfig(**store_options),
            clock=CLOCK,
            disk=self.disk,
            turn=turn,
            listeners=[],
            client=RemotingClient(turn=turn, open_stream=self._group.open_stream),
            ha_connect=self._group.connect_ha,
            open_process=self._group.open_process,
        )
        self._ended = trio.Event()
        self.is_ending = False
        try:
            with trio.CancelScope() as self._scope:
                await self.controller.run(task_status=task_status)
        finally:
            self.controller = None
            self._ended.set()

    async def connect(self) -> Client:
        """A client of this broker."""
        return Client(await self._group.open_stream(HOST, self.port))

    async def stop(self) -> None:
        """End it in good order."""
        self.is_ending = True
        self._scope.cancel()
        await self._ended.wait()
        self._group.cut(self)

    async def kill(self) -> None:
        """As kill -9: the disk keeps its content, and peers notice the closed connections only."""
        left = self.disk.copy()
        self.is_ending = True
        self._group.cut(self)
        self._scope.cancel()
        await self._ended.wait()
        self.disk = left


class Group:
    """The network between them.

    Attributes:
      ha_refused: slaves do not reach haListenPort.
      asked: port of every connection that was wanted.
      nodes: all brokers, in the order in which they were made.
      open_process: starts the filter servers of those that have some.
    """

    def __init__(self, nursery: trio.Nursery, namesrv: NamesrvController) -> None:
        self.nursery = nursery
        self.ha_refused = False
        self.open_process: OpenProcess = open_filter_server
        self.asked: list[int] = []
        self._namesrv = namesrv
        self.nodes: list[Node] = []
        self._ha_streams: list[Pipe] = []
        self._streams: list[tuple[Node, Pipe]] = []

    def node(self, **options: Any) -> Node:
        """Another broker, not started."""
        made = Node(self, len(self.nodes), options)
        self.nodes.append(made)
        return made

    async def master(self, **options: Any) -> Node:
        made = self.node(**options)
        await made.start()
        return made

    async def slave(self, broker_id: int = 1, **options: Any) -> Node:
        made = self.node(broker_id=broker_id, broker_role=BrokerRole.SLAVE, **options)
        await made.start()
        return made

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Connect to a server by its port or VIP port."""
        self.asked.append(port)
        await trio.lowlevel.checkpoint()
        if port == NAMESRV_PORT:
            near, far = trio.testing.memory_stream_pair()
            self.nursery.start_soon(self._namesrv.server.serve_stream, near)
            return far
        node = self._behind(port, 0) or self._behind(port, -2)
        if node is None or (node.vip_refused and port != node.port):
            raise ConnectionRefusedError(f"nothing listens on {port}")
        assert node.running.server is not None
        return self._wire(node, node.running.server.serve_stream)

    async def connect_ha(self, address: str) -> trio.abc.Stream:
        """Connect to a master's haListenPort."""
        await trio.lowlevel.checkpoint()
        port = int(address.rpartition(":")[2])
        self.asked.append(port)
        node = self._behind(port, 1)
        if node is None or self.ha_refused:
            raise ConnectionRefusedError(f"nothing listens on {port}")
        side = node.running.replication
        assert isinstance(side, MasterSide)
        stream = self._wire(node, side.ha.serve_stream, f"{HOST}:40000")
        self._ha_streams.append(stream)
        return stream

    def _behind(self, port: int, step: int) -> Node | None:
        for node in self.nodes:
            is_up = node.controller is not None and not node.is_ending
            if is_up and node.port + step == port:
                return node
        return None

    def _wire(self, node: Node, serve: Any, *arguments: object) -> Pipe:
        near, far = trio.testing.memory_stream_pair()
        self.nursery.start_soon(serve, near, *arguments)
        self._streams.append((node, near))
        return far

    def cut(self, node: Node) -> None:
        """Break all connections to a broker."""
        for owner, stream in self._streams:
            if owner is node:
                _close(stream)
        self._streams = [pair for pair in self._streams if pair[0] is not node]

    def cut_ha(self) -> None:
        """Break all connections by which the log goes."""
        for stream in self._ha_streams:
            _close(stream)
        self._ha_streams.clear()

    async def route(self, topic: str) -> TopicRouteData:
        """What the name server answers."""
        client = Client(await self.open_stream(HOST, NAMESRV_PORT))
        answer = await client.ask(ROUTE, {"topic": topic})
        assert answer.code == 0, answer.remark
        return TopicRouteData.from_body(answer.body)

    async def has_log(self, slave: Node, master: Node, within_s: float = 60) -> None:
        """Wait until a slave shows all of its master's log."""
        theirs = master.running.store
        ours = slave.running.store
        with trio.fail_after(within_s):
            while ours.dispatched_offset < theirs.max_physical_offset:
                await ours.activity.wait_for_more()


GroupT = TypeVar("GroupT", bound=Group)


@asynccontextmanager
async def group_of(kind: type[GroupT], **namesrv_options: Any) -> AsyncIterator[GroupT]:
    """A name server, and brokers that the test starts.

    Args:
      kind: the class of the network.
      namesrv_options: fields of NamesrvConfig.
    """
    async with trio.open_nursery() as nursery:
        config = NamesrvConfig(**namesrv_options)
        namesrv = NamesrvController(config, clock=CLOCK, disk=MemoryDisk(), listeners=[])
        await nursery.start(namesrv.run)
        yield kind(nursery, namesrv)
        nursery.cancel_scope.cancel()


def group(**namesrv_options: Any) -> AbstractAsyncContextManager[Group]:
    """A name server, and brokers that the test starts; see `group_of`."""
    return group_of(Group, **namesrv_options)
