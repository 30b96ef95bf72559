"""A controller in memory, brokers that speak to it, and what it notifies them of."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import memory_stream_pair

from trocket.controller.config import ControllerConfig
from trocket.controller.server import ControllerServer
from trocket.controller.state_store import StateStore
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode

from ..kit.client import Client
from ..kit.clock import TrioClock

CLUSTER, SET = "C", "a"


def address_of(broker_id: int) -> str:
    return f"10.0.0.{broker_id}:10911"


class JumpingClock(TrioClock):
    """A clock that goes on while the process stands still."""

    jumped_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.jumped_s

    def elapsed_s(self) -> float:
        return self.monotonic_s()


class FakeBroker:
    """A broker as the controller sees it: one connection."""

    def __init__(self, stream: trio.abc.Stream, broker_id: int, name: str = SET) -> None:
        self.stream = stream
        self.id = broker_id
        self.name = name
        self._client = Client(stream)

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        return await self._client.ask(code, texts, body)

    def identity(self, **fields: object) -> dict[str, Any]:
        return {"clusterName": CLUSTER, "brokerName": self.name, "brokerId": self.id, **fields}

    async def apply(self, **fields: object) -> RemotingCommand:
        said = {"appliedBrokerId": self.id, "registerCheckCode": f"code {self.id}", **fields}
        return await self.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, **self.identity(**said))

    async def register(self, **fields: object) -> RemotingCommand:
        said = {"brokerAddress": address_of(self.id), **fields}
        return await self.ask(RequestCode.CONTROLLER_REGISTER_BROKER, **self.identity(**said))

    async def beat(self, **fields: object) -> RemotingCommand:
        said = {"brokerAddr": address_of(self.id), "epoch": 1, "maxOffset": 100, **fields}
        return await self.ask(RequestCode.BROKER_HEARTBEAT, **self.identity(**said))

    async def elect(self, **fields: object) -> RemotingCommand:
        said = {"designateElect": "false", **fields}
        return await self.ask(RequestCode.CONTROLLER_ELECT_MASTER, **self.identity(**said))

    async def alter(self, ids: list[int], known: int, epoch: int = 1, **more: object) -> int:
        body = json.dumps({"syncStateSet": ids, "syncStateSetEpoch": known}).encode()
        said = {"brokerName": self.name, "masterBrokerId": self.id, "masterEpoch": epoch, **more}
        return (await self.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, body, **said)).code

    async def info(self) -> tuple[str | None, str | None, list[int], int]:
        """Master, its epoch, the in-sync set and its epoch."""
        answer = await self.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=self.name)
        body = json.loads(answer.body)
        fields = answer.ext_fields
        return (
            fields.get("masterBrokerId"),
            fields.get("masterEpoch"),
            sorted(body["syncStateSet"]),
            body["syncStateSetEpoch"],
        )

    async def join(self) -> None:
        assert (await self.apply()).code == 0
        assert (await self.register()).code == 0
        assert (await self.beat()).code == 0


class World:
    """A running controller with its brokers.

    Attributes:
      notified: the requests that it sent, by the address of the broker.
      refusing: addresses that refuse connections.
      dialled: addresses that it dialled after a connection had ended.
    """

    def __init__(
        self, server: ControllerServer, nursery: trio.Nursery, clock: JumpingClock
    ) -> None:
        self.clock = clock
        self.server = server
        self.nursery = nursery
        self.notified: defaultdict[str, list[RemotingCommand]] = defaultdict(list)
        self.refusing: set[str] = set()
        self.dialled: list[str] = []

    async def stand_still(self, seconds: float) -> None:
        """Have the controller's process stand still: time goes on, and nothing is read."""
        self.clock.jumped_s += seconds
        await trio.sleep(0.6)

    def connect(self, broker_id: int = 0, name: str = SET, peer: str = "127.0.0.1:0") -> FakeBroker:
        ours, theirs = memory_stream_pair()
        serve = self.server.server.serve_stream
        self.nursery.start_soon(serve, theirs, peer, "192.0.2.1:19876")
        return FakeBroker(ours, broker_id, name)

    async def pair(self, name: str = SET) -> tuple[FakeBroker, FakeBroker]:
        """A set with the master 1 and the in-sync slave 2."""
        first, second = self.connect(1, name), self.connect(2, name)
        await first.join()
        assert (await first.elect()).code == 0
        await second.join()
        assert await first.alter([1, 2], 1) == 0
        await until(lambda: bool(self.notified))  # of the first election
        self.notified.clear()
        return first, second

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        address = f"{host}:{port}"
        if address in self.refusing:
            raise ConnectionRefusedError(address)
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self._receive, theirs, address)
        return ours

    async def _receive(self, stream: trio.abc.Stream, address: str) -> None:
        client = Client(stream)
        while data := await stream.receive_some(4096):
            client.receive_data(bytes(data))
            self.notified[address] += client.pushed
            client.pushed.clear()

    async def is_gone(self, address: str) -> bool:
        self.dialled.append(address)
        return address in self.refusing


def config_of(**keys: Any) -> ControllerConfig:
    return ControllerConfig(
        controller_store_path="/c", config_store_path="/c/controller.conf", **keys
    )


@asynccontextmanager
async def running(
    disk: MemoryDisk | None = None,
    store: StateStore | None = None,
    **keys: Any,
) -> AsyncIterator[World]:
    """A controller; it ends like one that was stopped."""
    world: World
    async with trio.open_nursery() as nursery:
        clock = JumpingClock()
        client = RemotingClient(open_stream=lambda host, port: world.open_stream(host, port))
        server = ControllerServer(
            config_of(**keys),
            clock=clock,
            disk=disk or MemoryDisk(),
            store=store,
            listeners=[],
            client=client,
            is_gone=lambda address: world.is_gone(address),
        )
        world = World(server, nursery, clock)
        await nursery.start(server.run)
        yield world
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Wait, in virtual time, until something holds."""
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - any condition
            await trio.sleep(0.01)
