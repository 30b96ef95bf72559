"""The part `process` of `bench/scale_namesrv.py`: a name server process, and real sockets."""

from __future__ import annotations

import resource
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from trocket.bench.crowd_peer import Peer
from trocket.bench.kit import resident_mb
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_meter import Curves, Found, cpu_s
from trocket.bench.scale_namesrv_peers import (
    CLIENTS,
    CONNECTIONS_MAX,
    DECADES,
    VERSIONS,
    Broker,
    Size,
    route_question,
)
from trocket.common.machine import FILES_RESERVE
from trocket.interop.trocket_peer import TrocketPair
from trocket.remoting.codec import decode_frame

BROKERS: Final = 1_000
TOPICS: Final = 100
"""Of each broker."""
FEW_BROKERS: Final = 10
"""While the number of clients varies."""
SPARE: Final = 90
"""Places that the others leave to the clients that come and go; the server sees an end late."""
CONNECTING_MAX: Final = 32
"""Clients that connect at a time."""
REST_S: Final = 1.0
"""Before the process is watched: what follows from connecting is over."""
ROUNDS: Final = 3
"""For one point."""
KEYS: Final = {
    "connectionsMax": CONNECTIONS_MAX,
    "connectionsPerAddressMax": CONNECTIONS_MAX,
    "serverChannelMaxIdleTimeSeconds": 3_600,  # by default 120 s, which a size may take
}


def sockets_max() -> int:
    """Connections that this process may open, and a server with the same limit takes."""
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_RESERVE, 1)


@dataclass
class Crowd:
    """Connections of this process to a name server process."""

    address: str
    pid: int
    nursery: trio.Nursery
    peers: list[Peer] = field(default_factory=list)

    async def grow(self, number: int, frame: bytes) -> None:
        """Connect until there is this number of connections; a request is answered on each."""
        limit = trio.CapacityLimiter(CONNECTING_MAX)

        async def connect() -> None:
            async with limit:
                peer = await Peer.connect(self.address, self.nursery)
                await ask(peer, frame)
                self.peers.append(peer)

        async with trio.open_nursery() as connecting:
            for _ in range(number - len(self.peers)):
                connecting.start_soon(connect)

    async def cpu_us(self, frames: list[bytes], requests: int) -> float:
        """CPU time of the process for a request, in microseconds; they come one by one."""
        begin_s = cpu_s(self.pid)
        for number in range(requests):
            await ask(self.peers[0], frames[number % len(frames)])
        return (cpu_s(self.pid) - begin_s) / requests * 1e6

    async def come_and_go_us(self, frame: bytes, times: int) -> float:
        """CPU time of the process for a client that connects, asks and closes."""
        begin_s = cpu_s(self.pid)
        for _ in range(times):
            async with trio.open_nursery() as nursery:
                await ask(await Peer.connect(self.address, nursery), frame)
                nursery.cancel_scope.cancel()
        return (cpu_s(self.pid) - begin_s) / times * 1e6


async def ask(peer: Peer, frame: bytes) -> None:
    """Send a request. Raises: RuntimeError: it is refused."""
    request = decode_frame(frame)
    answer = await peer.ask(request.code, request.ext_fields, request.body)
    if answer.code:
        raise RuntimeError(f"request {request.code}: {answer.remark}")


async def process(size: Size, found: Found) -> list[Curve]:
    """A name server process with more and more clients, and one with more and more brokers."""
    curves: list[Curve] = []
    for per, measure in (("clients", _clients), ("brokers", _brokers)):
        of_one = Curves(per, found)
        with tempfile.TemporaryDirectory(prefix="trocket-scale-") as folder:
            servers = TrocketPair(Path(folder), namesrv_keys=KEYS)
            servers.start_namesrv()
            try:
                async with trio.open_nursery() as nursery:
                    crowd = Crowd(servers.namesrv_address, servers.pids[0], nursery)
                    await measure(crowd, size, of_one)
                    nursery.cancel_scope.cancel()
            finally:
                servers.close()
        curves += of_one.all()
    return curves


async def _clients(crowd: Crowd, size: Size, curves: Curves) -> None:
    brokers = [Broker(number, 2) for number in range(FEW_BROKERS)]
    peers = [await Peer.connect(crowd.address, crowd.nursery) for _ in brokers]

    async def register() -> None:
        for broker, peer in zip(brokers, peers, strict=True):
            for frame in broker.whole():
                await ask(peer, frame)

    await register()
    empty_mb = resident_mb(crowd.pid)
    route = route_question("topic-0")
    # Closed connections keep their ports for a while, of which Linux has 28,000 by default.
    times = max(size.requests // 4, 1)
    last = min(sockets_max() - FEW_BROKERS - SPARE, CLIENTS, size.most)
    for number in sorted({max(last // 10**each, 1) for each in range(DECADES + 1)}):
        await register()  # a broker that has been silent for 120 s is forgotten
        await crowd.grow(number, route)
        await trio.sleep(min(REST_S, size.idle_s))
        grown_mb = resident_mb(crowd.pid) - empty_mb
        curves.add("process: connections", "MB", 1, number, grown_mb)
        shares = []
        for _ in range(ROUNDS):  # one window may have the full collection after the growth
            begin_s = cpu_s(crowd.pid)
            await trio.sleep(size.idle_s)
            shares.append(100 * (cpu_s(crowd.pid) - begin_s) / size.idle_s)
        curves.add("process: all clients idle", "% of a core", 1, number, shares)
        costs = [await crowd.cpu_us([route], size.requests) for _ in range(ROUNDS)]
        curves.add("process: 105, of 10 brokers", "us", 0, number, costs)
        costs = [await crowd.come_and_go_us(route, times) for _ in range(ROUNDS)]
        curves.add("process: one more connects, asks, closes", "us", 0, number, costs)


async def _brokers(crowd: Crowd, size: Size, curves: Curves) -> None:
    topics = min(TOPICS, size.most)
    first = Broker(0, topics)
    empty_mb = resident_mb(crowd.pid)
    for number in size.decades(BROKERS):
        more, begin_s = range(len(crowd.peers), number), cpu_s(crowd.pid)
        for each in more:
            peer = await Peer.connect(crowd.address, crowd.nursery)
            for frame in Broker(each, topics).whole():
                await ask(peer, frame)
            crowd.peers.append(peer)
        joined_us = (cpu_s(crowd.pid) - begin_s) / len(more) * 1e6
        curves.add("process: a broker joins with 100 topics", "us", 0, number, joined_us)
        grown_mb = resident_mb(crowd.pid) - empty_mb
        curves.add("process: table and connections", "MB", 1, number, grown_mb)
        for what, frames in {
            "322, unchanged": [first.version_query()],
            "904": [first.heartbeat()],
            "103, all of 100 topics, again": first.whole(),
            "103, one topic of 100, changed": [first.one_topic(each) for each in range(VERSIONS)],
        }.items():
            costs = [await crowd.cpu_us(frames, size.requests) for _ in range(ROUNDS)]
            curves.add(f"process: {what}", "us", 0, number, costs)
