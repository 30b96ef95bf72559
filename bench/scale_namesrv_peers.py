"""Simulated brokers and clients of a name server, for `bench/scale_namesrv.py`."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, cast

import trio
from trio.testing import memory_stream_pair

from trocket.bench.kit import resident_mb
from trocket.bench.scale_curve import Point
from trocket.broker.cluster.registration_request import (
    BrokerIdentity,
    part_size,
    register_requests,
    unregister_request,
)
from trocket.broker.settings.config import BrokerConfig
from trocket.common.clock import SystemClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.bodies import DataVersion, TopicConfig
from trocket.remoting.channel import Channel, Deferred
from trocket.remoting.codec import RemotingCommand, decode_frame, encode
from trocket.remoting.errors import RequestRefused
from trocket.remoting.request_codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

CLUSTER: Final = "Bench"
DECADES: Final = 3
LEAST: Final = 2
"""A broker that registers a single topic first is refused."""
QUEUES: Final = 4
ROUNDS: Final = 5
ROUND_S: Final = 0.05
"""CPU time of one round, in which a request is repeated: many times its clock's steps."""
CONNECTIONS_MAX: Final = 1_000_000
"""The limit of the server is not what is measured."""
RECEIVE_SIZE: Final = 1024 * 1024
CLIENTS: Final = 100_000
VERSIONS: Final = 64
"""Different requests in a row; the first comes again after the last, and is another change."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
      most: brokers, topics of a broker, and clients are no more than this.
      round_s: CPU time of one round.
      idle_s: while clients are idle.
      requests: sent to a process for one point.
      is_apart: memory is measured in new processes, whose heaps have no holes.
    """

    most: int = CLIENTS
    round_s: float = ROUND_S
    idle_s: float = 10.0
    requests: int = 2_000
    is_apart: bool = True

    def decades(self, last: int) -> list[int]:
        """Sizes that grow tenfold, over three decades up to `last`, or as far as `most`."""
        sizes = [last // 10**each for each in range(DECADES, -1, -1)]
        return [each for each in sizes if 1 <= each <= self.most] or [LEAST]


class Peer:
    """What the processors of a name server use of a connection."""

    def __init__(self, remote_address: str = "127.0.0.1:50000") -> None:
        self.remote_address = remote_address


class Simulated:
    """A name server without sockets: requests are frames, and so are their answers.

    Attributes:
      controller: runs only where connections are measured.
    """

    def __init__(self) -> None:
        config = NamesrvConfig(
            allow_remote_administration=True,
            connections_max=CONNECTIONS_MAX,
            connections_per_address_max=CONNECTIONS_MAX,
        )
        self.controller = NamesrvController(
            config, clock=SystemClock(), disk=MemoryDisk(), listeners=()
        )
        self._processors = self.controller.server.processors

    async def ask(self, frame: bytes, peer: Peer) -> bytes:
        """The answer to a request. Raises: RuntimeError: it is refused."""
        request = decode_frame(frame)
        # A processor reads only what a `Peer` has.
        channel = cast("Channel", peer)
        try:
            answer = self._processors[request.code](request, channel)
            if isinstance(answer, Deferred):
                answer = await answer.run()
        except RequestRefused as refusal:
            raise RuntimeError(f"request {request.code}: {refusal.remark}") from refusal
        if not isinstance(answer, RemotingCommand) or answer.code:
            raise RuntimeError(f"request {request.code}: {answer!r}")
        return encode(answer)


class Broker:
    """A broker as far as a name server knows it, with the topics `prefix-0`, `prefix-1`, …

    Args:
      number: of the broker, for its name and address.
      topics: their number.
      prefix: the same for several brokers: they have the same topics.
    """

    def __init__(self, number: int, topics: int, prefix: str = "topic") -> None:
        name = f"broker-{number}"
        self._config = BrokerConfig(broker_name=name, broker_cluster_name=CLUSTER)
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:10911"
        self._identity = BrokerIdentity(self._config, address, "")
        self.peer = Peer(f"{address.partition(':')[0]}:50000")
        self.fields = {
            "brokerName": name, "brokerAddr": address, "clusterName": CLUSTER, "brokerId": "0",
        }  # fmt: skip
        self._names = [f"{prefix}-{each}" for each in range(topics)]

    def whole(self, counter: int = 1, *, is_one: bool = False) -> list[bytes]:
        """A registration of all topics, in parts as a broker sends it.

        Args:
          counter: that of the DataVersion, another one after each change.
          is_one: one part however many topics there are, as Apache's brokers send it.
        """
        size = len(self._names) if is_one else part_size(self._config, len(self._names))
        topics = [_topic(name, QUEUES) for name in self._names]
        return self._frames(topics, counter, size)

    def one_topic(self, counter: int) -> bytes:
        """A registration of one topic whose number of queues changes with each DataVersion."""
        (frame,) = self._frames([_topic(self._names[0], QUEUES + counter % 2)], counter, 1)
        return frame

    def _frames(self, topics: Sequence[TopicConfig], counter: int, size: int) -> list[bytes]:
        requests = register_requests(
            self._identity, topics, DataVersion(timestamp=1, counter=counter), size=max(size, 1)
        )
        return [encode(each) for each in requests]

    def version_query(self, counter: int = 1) -> bytes:
        """QUERY_DATA_VERSION 322, with the version of a registration."""
        body = DataVersion(timestamp=1, counter=counter).to_body()
        return encode(RemotingCommand(Code.QUERY_DATA_VERSION, self.fields, body))

    def heartbeat(self) -> bytes:
        """BROKER_HEARTBEAT 904."""
        return encode(RemotingCommand(Code.BROKER_HEARTBEAT, self.fields))

    def unregistration(self) -> bytes:
        """UNREGISTER_BROKER 104."""
        return encode(unregister_request(self._config, self._identity.broker_addr))


def _topic(name: str, queues: int) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)


def route_question(topic: str) -> bytes:
    """GET_ROUTEINFO_BY_TOPIC 105."""
    return encode(RemotingCommand(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))


def question(code: Code) -> bytes:
    """A request without fields."""
    return encode(RemotingCommand(code))


async def registered(server: Simulated, brokers: Sequence[Broker]) -> None:
    """Register all topics of some brokers."""
    for broker in brokers:
        for frame in broker.whole():
            await server.ask(frame, broker.peer)


async def grown_mb(brokers: int, topics: Sequence[int], *, is_shared: bool) -> list[float]:
    """The growth of this process's memory in MB while brokers register more and more topics.

    Args:
      topics: the numbers of topics of each broker, growing.
      is_shared: all brokers have the same topics.
    Raises: RuntimeError: the name server did not take all of them.
    """
    server = Simulated()
    await registered(server, [Broker(brokers, 2, "first")])  # what any first request costs
    gc.collect()
    table, before_mb = server.controller.routes.topics, resident_mb(os.getpid())
    grown: list[float] = []
    for each in topics:
        for number in range(brokers):
            prefix = "topic" if is_shared else f"topic-of-{number}"
            await registered(server, [Broker(number, each, prefix)])
        gc.collect()
        grown.append(resident_mb(os.getpid()) - before_mb)
        taken = {len(table.topics_of_broker(f"broker-{number}")) for number in range(brokers)}
        if taken != {each}:
            raise RuntimeError(f"not all of {each:,} topics of each broker were taken: {taken}")
    return grown


Work = Callable[[], Awaitable[object]]


async def cpu_us(
    size: int, work: Work, *, before: Work | None = None, round_s: float = ROUND_S
) -> Point:
    """The CPU time of some work in microseconds, each of ROUNDS rounds the mean of many times.

    Args:
      before: done before each time, and not measured.
    """
    costs = []
    for _ in range(ROUNDS):
        times, spent_s = 0, 0.0
        while spent_s < round_s:
            if before is not None:
                await before()
            begin_s = time.process_time()
            await work()
            spent_s += time.process_time() - begin_s
            times += 1
        costs.append(spent_s / times * 1e6)
    return Point.of(size, costs)


def asking(server: Simulated, peer: Peer, frames: Sequence[bytes]) -> Work:
    """Work that sends one of these requests each time, one after the other."""
    numbers = count()

    async def ask() -> None:
        await server.ask(frames[next(numbers) % len(frames)], peer)

    return ask


class MemoryClients:
    """Clients of a running name server, over connections in memory."""

    def __init__(self, server: Simulated, nursery: trio.Nursery) -> None:
        self._server = server.controller.server
        self._nursery = nursery
        self._numbers: Iterator[int] = count()
        self.streams: list[trio.abc.Stream] = []

    async def connect(self, frame: bytes, ended: trio.Event | None = None) -> trio.abc.Stream:
        """A connection on which one request was answered.

        Args:
          ended: set when the server has forgotten the connection.
        """
        number = next(self._numbers)
        ours, theirs = memory_stream_pair()
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:40000"
        self._nursery.start_soon(self._serve, theirs, address, ended)
        await self.ask(ours, frame)
        return ours

    async def _serve(self, stream: trio.abc.Stream, address: str, ended: trio.Event | None) -> None:
        await self._server.serve_stream(stream, address)
        if ended is not None:
            ended.set()

    async def ask(self, stream: trio.abc.Stream, frame: bytes) -> None:
        """Send a request whose answer is received at once."""
        await stream.send_all(frame)
        await stream.receive_some(RECEIVE_SIZE)

    async def grow(self, clients: int, frame: bytes) -> None:
        """Connect until there is this number of clients."""
        while len(self.streams) < clients:
            self.streams.append(await self.connect(frame))

    async def come_and_go(self, frame: bytes) -> None:
        """One more client: it connects, asks, and closes; until the server has closed, too."""
        ended = trio.Event()
        stream = await self.connect(frame, ended)
        await stream.aclose()
        await ended.wait()


class LongestStep(trio.abc.Instrument):
    """The CPU time of the longest step of a task, during which no other one is served."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began_s = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began_s = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seconds = max(self.seconds, time.thread_time() - self._began_s)


@asynccontextmanager
async def running(server: Simulated) -> AsyncIterator[MemoryClients]:
    """Run a name server until the end of the block."""
    async with trio.open_nursery() as nursery:
        await nursery.start(server.controller.run)
        yield MemoryClients(server, nursery)
        nursery.cancel_scope.cancel()
