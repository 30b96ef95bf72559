"""gRPC clients on trocket's broker and on Apache's with its proxy: RocketMQ's for Java, or
one that is no more than HTTP/2 (grpc_load.py). The servers are measured by turns.

    python -m trocket.bench.grpc_clients
    python -m trocket.bench.grpc_clients --client raw --modes send,receive

Both servers and a client for each run all the time; all but one pair are stopped by signals. After
the warm-up, windows of the pairs follow each other in turn. `send` keeps calls in flight; `receive`
receives what was sent, 32 messages at a time, and acknowledges each.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import Console

from trocket.bench.kit import Columns, make_cluster, resident_mb, show, spread_of
from trocket.interop.apache_local_proxy import ApacheLocalProxy
from trocket.interop.java_program import grpc_load_command
from trocket.interop.peer import LocalCluster
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.usage import cpu_seconds
from trocket.interop.wire import WireClient

Client = Literal["java", "raw"]

TOPIC: Final = "Load"
GROUP: Final = "load"
QUEUES: Final = 8
CLIENT: Final = "5.2.0"
HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=512m")
BEGIN_S: Final = 12.0
"""Until a new group has received from each queue, and waited for its first message."""
SETTLE_S: Final = 3.0
"""After a resume: what waited meanwhile is done by then."""


@dataclass
class Side:
    """A server and its client.

    Attributes:
      start_s: until the server served gRPC.
      p99_ms: of the sends of each second.
      rates: messages per second, by window.
      cpu_us: the server's CPU per message, by window.
    """

    peer: str
    cluster: LocalCluster
    start_s: float
    started_mb: float
    client: LineProcess | None = None
    done: int = 0
    failed: int = 0
    p99_ms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @property
    def address(self) -> str:
        """HOST:PORT for gRPC."""
        cluster = self.cluster
        if isinstance(cluster, ApacheLocalProxy):
            return cluster.grpc_address
        return cluster.broker_address

    @property
    def server_pids(self) -> list[int]:
        """The broker's process."""
        return self.cluster.pids[:1]

    def signal(self, number: signal.Signals) -> None:
        """Stop or continue server and client."""
        for pid in (*self.cluster.pids, *([] if self.client is None else [self.client.pid])):
            os.kill(pid, number)

    def on_line(self, line: str) -> None:
        """Take a line of the client."""
        if line.startswith("{"):
            counts = json.loads(line)
            self.done, self.failed = counts["done"], counts["failed"]
            self.p99_ms.append(counts["p99_ms"])

    def run(self, seconds: float) -> tuple[float, float]:
        """The rate, and the server's CPU µs per message, of some seconds."""
        done, cpu_s, begin_s = self.done, self._cpu_s(), time.perf_counter()
        time.sleep(seconds)
        count, took_s = self.done - done, time.perf_counter() - begin_s
        return count / took_s, 1e6 * (self._cpu_s() - cpu_s) / max(count, 1)

    def _cpu_s(self) -> float:
        return sum(map(cpu_seconds, self.server_pids))


@dataclass(frozen=True)
class Result:
    """One server.

    Attributes:
      rate, cpu_us: the median of the windows, and the smallest and largest.
      p99_ms: the median of the seconds of the windows.
      failed: calls of all windows and of the warm-up.
      memory_mb: resident, at the end.
    """

    mode: str
    peer: str
    rate: str
    cpu_us: str
    p99_ms: float
    failed: int
    start_s: float
    started_mb: float
    memory_mb: float


COLUMNS: Columns[Result] = {
    "calls": lambda one: one.mode,
    "server": lambda one: one.peer,
    "messages/s": lambda one: one.rate,
    "server CPU µs/message": lambda one: one.cpu_us,
    "p99 ms": lambda one: f"{one.p99_ms:.1f}",
    "failed": lambda one: str(one.failed),
    "start s": lambda one: f"{one.start_s:.2f}",
    "RSS MB after the start": lambda one: f"{one.started_mb:.0f}",
    "RSS MB at the end": lambda one: f"{one.memory_mb:.0f}",
}


@contextmanager
def _served(peer: str, folder: Path) -> Iterator[Side]:
    cluster = (
        make_cluster(peer, folder)
        if peer == "trocket"
        else ApacheLocalProxy(peer.removeprefix("apache-"), folder, broker_java=HEAP)
    )
    if not isinstance(cluster, LocalCluster):
        raise PeerError(f"{peer} is no cluster of this machine")
    begin_s = time.perf_counter()
    try:
        cluster.start()
        start_s = time.perf_counter() - begin_s
        with WireClient(cluster.broker_address) as wire:
            wire.create_topic(TOPIC, queue_count=QUEUES)
            wire.create_group(GROUP)  # Apache's broker with its proxy makes none
        yield Side(peer, cluster, start_s, resident_mb(*cluster.pids[:1]))
    finally:
        cluster.close()


def _load(
    side: Side, folder: Path, client: str, mode: str, in_flight: int, size: int
) -> LineProcess:
    """Start a client."""
    name = f"{side.peer}-{mode}"
    home = folder / "clients" / name
    home.mkdir(parents=True, exist_ok=True)
    arguments = [side.address, TOPIC, mode, str(in_flight), str(size)]
    command = [sys.executable, "-m", "trocket.bench.grpc_load", *arguments]
    if client == "java":
        command = grpc_load_command(CLIENT, *arguments, folder=home)
    return LineProcess(command, folder=home, name=name, on_line=side.on_line)


def _begin_group(side: Side, folder: Path, client: str) -> None:
    """Have the group begin before the messages: a new one would at the end.

    Apache's broker notes where a group is in a queue when the queue has messages.
    """
    loads = [_load(side, folder, client, mode, 2 * QUEUES, 1) for mode in ("receive", "send")]
    try:
        time.sleep(BEGIN_S)
    finally:
        for load in loads:
            load.kill()


def _measure(
    sides: list[Side], folder: Path, client: str, mode: str, *, in_flight: int, size: int,
    warm_up_s: float, rounds: int, window_s: float,
) -> list[Result]:  # fmt: skip
    for side in sides:
        side.rates, side.cpu_us, side.done = [], [], 0
        side.client = _load(side, folder, client, mode, in_flight, size)
        rate, cpu_us = side.run(warm_up_s)
        Console(stderr=True).print(f"{side.peer} {mode}: warm-up {rate:,.0f}/s, {cpu_us:.1f} us")
        side.signal(signal.SIGSTOP)
    windows_p99_ms: dict[str, list[float]] = {}
    for _ in range(rounds):
        for side in sides:
            side.signal(signal.SIGCONT)
            time.sleep(SETTLE_S)
            seconds = len(side.p99_ms)
            rate, cpu_us = side.run(window_s)
            side.rates.append(rate)
            side.cpu_us.append(cpu_us)
            windows_p99_ms.setdefault(side.peer, []).extend(side.p99_ms[seconds:])
            side.signal(signal.SIGSTOP)
    results = []
    for side in sides:
        side.signal(signal.SIGCONT)
        if side.client is not None:
            side.client.kill()
            side.client = None
        rates, cpu = spread_of(side.rates), spread_of(side.cpu_us)
        results.append(
            Result(
                mode=mode,
                peer=side.peer,
                rate=f"{rates.median:,.0f} ({rates.low:,.0f} … {rates.high:,.0f})",
                cpu_us=f"{cpu.median:.1f} ({cpu.low:.1f} … {cpu.high:.1f})",
                p99_ms=statistics.median(windows_p99_ms[side.peer]),
                failed=side.failed,
                start_s=side.start_s,
                started_mb=side.started_mb,
                memory_mb=resident_mb(*side.server_pids),
            )
        )
    return results


def main(
    peers: Annotated[str, typer.Option(help="Measure these.")] = "apache-5.5.0,trocket",
    modes: Annotated[str, typer.Option(help="Measure these.")] = "send",
    client: Annotated[Client, typer.Option(help="By this client.")] = "java",
    in_flight: Annotated[int, typer.Option(min=1, help="Sends in flight.")] = 64,
    receives: Annotated[int, typer.Option(min=1, help="Receives in flight.")] = 16,
    size: Annotated[int, typer.Option(min=1, help="Bytes of a body.")] = 128,
    warm_up: Annotated[float, typer.Option(min=1, help="Warm each pair up for this time.")] = 120.0,
    rounds: Annotated[int, typer.Option(min=1, help="Windows of each pair.")] = 4,
    window: Annotated[float, typer.Option(min=1, help="Seconds of a window.")] = 10.0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a gRPC client on trocket and on Apache's proxy."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        sides = [stack.enter_context(_served(peer, folder / peer)) for peer in peers.split(",")]
        if "receive" in modes.split(","):
            for side in sides:
                _begin_group(side, folder, client)
        for mode in modes.split(","):
            count = in_flight if mode == "send" else receives
            results += _measure(
                sides, folder, client, mode, in_flight=count, size=size, warm_up_s=warm_up,
                rounds=rounds, window_s=window,
            )  # fmt: skip
    show(results, COLUMNS, as_json=json_, title="gRPC", facts={})


if __name__ == "__main__":
    typer.run(main)
