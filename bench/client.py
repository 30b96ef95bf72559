"""Comparison of trocket's client with the official Java client and the C++ client's wheel.

Workloads, with bodies of 128 bytes: `awaited` (one send at a time), `pipelined` (256 in flight),
`batch` (batches of 32, one at a time), `consume` (a push consumer of stored messages). The C++
wheel can neither pipeline nor batch. All clients use one broker and alternate in each round, so
that a slow minute of the machine affects all of them. `us` is the client's CPU time per message:
one core handles 1,000,000 / us messages a second.

    python -m trocket.bench.client
    python -m trocket.bench.client --peer asyncio --peer java-5.5.0 --workload pipelined
    python -m trocket.bench.client --broker apache-5.5.0
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from trocket.bench.kit import make_cluster, running
from trocket.common.terminal import table
from trocket.interop.cpp_program import cpp_python
from trocket.interop.maven import JAVA_OPENS, compile_java
from trocket.interop.peer import Cluster
from trocket.interop.wire import WireClient

WORKLOADS = ("awaited", "pipelined", "batch", "consume")
PEERS = ("asyncio", "trio", "blocking", "cpp", "java-5.5.0")
BASE = "java-5.5.0"
QUEUES = 4
RUN_TIMEOUT_S = 180.0


def command_of(peer: str, folder: Path) -> list[str]:
    """The command line of a peer's program, without its arguments."""
    here = Path(__file__).parent
    if peer == "cpp":
        return [str(cpp_python()), str(here / "client_cpp.py")]
    if peer.startswith("java-"):
        version = peer.removeprefix("java-")
        options = ["-Xms512m", "-Xmx512m", *JAVA_OPENS, f"-Duser.home={folder}"]
        return ["java", *options, "-cp", compile_java(version), "ClientBench"]
    return [sys.executable, "-m", "trocket.bench.client_peer", peer]


def measure(
    peer: str, namesrv: str, topic: str, workload: str, seconds: float, total: int, folder: Path
) -> tuple[float, float]:
    """Messages per second, and CPU microseconds of the client per message."""
    warm_s = 3 if peer.startswith("java") else 1
    numbers = [str(warm_s), str(round(seconds)), str(total)]
    done = subprocess.run(
        [*command_of(peer, folder), namesrv, topic, workload, *numbers],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        cwd=folder,
        env=os.environ | {"HOME": str(folder)},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"per_s"')]
    if not lines:
        raise RuntimeError(f"{peer} did not finish {workload}: {done.stderr[-2000:]}")
    rates = json.loads(lines[-1])
    return rates["per_s"], rates["cpu_us"]


def can(peer: str, workload: str) -> bool:
    """Whether a client supports a workload."""
    return peer != "cpp" or workload in ("awaited", "consume")


def main(
    peer: Annotated[list[str], typer.Option(help="Measure this client.")] = list(PEERS),  # noqa: B006
    workload: Annotated[list[str], typer.Option(help="Measure this workload.")] = list(WORKLOADS),  # noqa: B006
    broker: Annotated[str, typer.Option(help="Use trocket or apache-VERSION.")] = "trocket",
    rounds: Annotated[int, typer.Option(min=1, help="Repeat this often.")] = 3,
    seconds: Annotated[float, typer.Option(min=1.0, help="Set the time per measurement.")] = 5.0,
    total: Annotated[int, typer.Option(min=1000, help="Consume this number.")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure, and print messages per second, CPU and ratios."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    runs = [(w, p) for w in workload for _ in range(rounds) for p in peer if can(p, w)]
    with tempfile.TemporaryDirectory() as name, Progress(console=Console(stderr=True)) as bar:
        folder = Path(name)
        with running(make_cluster(broker, folder / "cluster")) as cluster:
            task = bar.add_task("measuring", total=len(runs))
            if "consume" in workload:
                fill(cluster, total, folder)
            for one, who in runs:
                topic = "Filled" if one == "consume" else f"{one}_{time.time_ns()}"
                if one != "consume":
                    create(cluster, topic)
                bar.update(task, description=f"{one}: {who}")
                rate = measure(who, cluster.namesrv_address, topic, one, seconds, total, folder)
                found.setdefault((one, who), []).append(rate)
                bar.advance(task)
    if as_json:
        print(json.dumps({f"{one} {who}": rates for (one, who), rates in found.items()}))
    else:
        show(found, workload, peer)


def create(cluster: Cluster, topic: str) -> None:
    """Create a topic with a few queues."""
    with WireClient(cluster.broker_address) as wire:
        wire.create_topic(topic, queue_count=QUEUES)


def fill(cluster: Cluster, total: int, folder: Path) -> None:
    """Fill the topic that `consume` reads."""
    create(cluster, "Filled")
    sent = 0.0
    while sent < total:
        per_s, _ = measure("asyncio", cluster.namesrv_address, "Filled", "batch", 2, total, folder)
        sent += per_s * 2


def show(
    found: dict[tuple[str, str], list[tuple[float, float]]], workloads: list[str], peers: list[str]
) -> None:
    """Print the medians, their spread, and the ratio to the Java client."""
    rows = []
    for one in workloads:
        base = statistics.median(rate for rate, _ in found[one, BASE]) if BASE in peers else None
        for who in peers:
            rates = found.get((one, who))
            if rates is None:
                rows.append([one, who, "-", "", "", ""])
                continue
            per_s = statistics.median(rate for rate, _ in rates)
            cpu_us = statistics.median(cpu for _, cpu in rates)
            spread = f"{min(r for r, _ in rates):,.0f}..{max(r for r, _ in rates):,.0f}"
            ratio = f"{per_s / base:.2f}" if base else ""
            rows.append([one, who, f"{per_s:,.0f}", spread, f"{cpu_us:.1f}", ratio])
    headings = ("workload", "client", "msg/s", "least..most", "us", f"/ {BASE}")
    Console().print(table(headings, rows))


if __name__ == "__main__":
    typer.run(main)
