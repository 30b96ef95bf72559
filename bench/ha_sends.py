"""Cost of a slave for sends (a master without one, with one, waiting for one), and gain of a second
broker process.

Compares trocket with Apache in one run, each with a fresh pair of processes on empty folders. The
load is that of `trocket.bench.wire`: 128 bytes, plain sockets, prepared frames, in this process.
Brokers and load share the machine's cores, so the full cost or gain shows only with a core for each
process.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trocket.bench.frames import SendTemplate
from trocket.bench.kit import socket_address
from trocket.bench.load import Case
from trocket.bench.wire import Side, load_of, measure
from trocket.interop.apache import ApacheCluster
from trocket.interop.peer import Cluster
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import TrocketBroker, TrocketPair
from trocket.interop.usage import cpu_seconds
from trocket.interop.wire import WireClient
from trocket.remoting import fastjson
from trocket.remoting.request_codes import RequestCode

APACHE_HEAP = ("-Xms1g", "-Xmx1g")
TOPIC = "HaBench"
SLAVE_CONNECTS_S = 60.0
POLL_S = 0.1
CASES = (Case("1 in flight", 1, 1), Case("64 in flight", 1, 64))

NO_SLAVE, ASYNC, SYNC = "no slave", "ASYNC_MASTER", "SYNC_MASTER"
MODES = (NO_SLAVE, ASYNC, SYNC)


class Slave(Protocol):
    """A broker that replicates from a master."""

    def start_broker(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Figures:
    """Medians over the rounds."""

    peer: str
    mode: str
    case: str
    messages_per_s: float
    p50_us: float
    p99_us: float
    broker_cpu_us: float


def master_keys(peer: str, mode: str) -> dict[str, object]:
    """The master's settings for slaves."""
    if mode != SYNC:
        return {}
    # Apache's 5.x answers without waiting for any slave unless two replicas are asked for.
    return {"brokerRole": SYNC} | ({} if peer == "trocket" else {"inSyncReplicas": 2})


def make_master(peer: str, mode: str, folder: Path) -> Cluster:
    """A stopped name server and master."""
    keys = master_keys(peer, mode)
    if peer == "trocket":
        return TrocketPair(folder, broker_keys=keys)
    version = peer.removeprefix("apache-")
    return ApacheCluster(
        version, folder, broker_java=APACHE_HEAP, broker_keys=keys, is_measured=True
    )


def make_slave(peer: str, master: Cluster, folder: Path) -> Slave:
    """A stopped slave for a running master."""
    keys: dict[str, object] = {
        "namesrvAddr": master.namesrv_address,
        "brokerId": 1,
        "brokerRole": "SLAVE",
    }
    if peer == "trocket":
        return TrocketBroker(folder, store=folder / "store", broker_keys=keys)
    version = peer.removeprefix("apache-")
    return ApacheCluster(
        version, folder, broker_java=APACHE_HEAP, broker_keys=keys, is_measured=True
    )


@contextlib.contextmanager
def running(peer: str, mode: str, folder: Path) -> Iterator[Cluster]:
    """A master, and its slave where the mode has one; when this is entered, the slave follows.

    Raises: PeerError: one did not start, or the slave did not find its master in 60 s.
    """
    with contextlib.ExitStack() as stack:
        master = make_master(peer, mode, folder / "master")
        stack.callback(master.close)
        master.start()
        if mode != NO_SLAVE:
            slave = make_slave(peer, master, folder / "slave")
            stack.callback(slave.close)
            slave.start_broker()
            _wait_for_slave(master)
        yield master


def _wait_for_slave(master: Cluster) -> None:
    deadline_s = time.monotonic() + SLAVE_CONNECTS_S
    with WireClient(master.broker_address) as client:
        while True:
            answer = client.call(RequestCode.GET_BROKER_HA_STATUS, {}).checked()
            status = fastjson.loads(answer.body)
            if isinstance(status, dict) and status.get("inSyncSlaveNums", 0):
                return
            if time.monotonic() > deadline_s:
                raise PeerError(
                    f"no slave connected to {master.broker_address} in {SLAVE_CONNECTS_S:g} s"
                )
            time.sleep(POLL_S)


def measure_all(
    peers: Iterable[str], folder: Path, *, rounds: int, seconds: float, warm_up_s: float
) -> list[Figures]:
    """Measure every mode with every peer, alternating, and return the medians of the rounds."""
    peers = tuple(peers)
    found: dict[tuple[str, str, str], list[tuple[float, float, float, float]]] = {}
    for number in range(rounds):
        for mode in MODES:
            for peer in peers:
                place = folder / f"{number}-{mode}-{peer}".replace(" ", "-")
                with running(peer, mode, place) as master:
                    for case in CASES:
                        side = Side(master, SendTemplate.for_topic(TOPIC))
                        one = measure(side, case, warm_up_s=warm_up_s, seconds=seconds)
                        found.setdefault((peer, mode, case.name), []).append(
                            (one.messages_per_s, one.p50_us, one.p99_us, one.broker_cpu_us)
                        )
    return [
        Figures(*key, *(statistics.median(column) for column in zip(*ones, strict=True)))
        for key, ones in found.items()
    ]


@dataclass(frozen=True)
class Spread:
    """Several broker processes under one load.

    Attributes:
      load_share: cores used by the load generator.
      brokers_share: cores used by all brokers together.
    """

    brokers: int
    messages_per_s: float
    load_share: float
    brokers_share: float


def measure_brokers(count: int, folder: Path, *, seconds: float, warm_up_s: float) -> Spread:
    """Send from one load generator to `count` masters, each in a separate process."""
    with contextlib.ExitStack() as stack:
        brokers = [
            TrocketBroker(
                folder / name, store=folder / name / "store", broker_keys={"brokerName": name}
            )
            for name in (f"broker-{number}" for number in range(count))
        ]
        addresses = []
        for broker in brokers:
            stack.callback(broker.close)
            broker.start_broker()
            addresses.append(socket_address(broker.broker_address))
        load = load_of(addresses, Case("spread", 4, 256), SendTemplate.for_topic(TOPIC))
        stack.enter_context(load)
        load.run(warm_up_s)
        pids = [broker.pids[0] for broker in brokers]
        cpu_start_s = sum(cpu_seconds(pid) for pid in pids)
        own_start_s, start_s = time.process_time(), time.perf_counter()
        answered = load.run(seconds)
        took_s = time.perf_counter() - start_s
        return Spread(
            count,
            answered / took_s,
            (time.process_time() - own_start_s) / took_s,
            (sum(cpu_seconds(pid) for pid in pids) - cpu_start_s) / took_s,
        )
