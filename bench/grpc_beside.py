"""What a client of remoting sees while others receive by gRPC: its latency, alone and beside them.

    python -m trocket.bench.grpc_beside
    python -m trocket.bench.grpc_beside --rates 100,300,1000

A probe sends at a low fixed rate (send_probe.py). Beside it, a process receives by gRPC, 32
messages of 128 bytes with each call, which it does not acknowledge.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from trocket.bench.kit import Columns, make_cluster, percentile, running, show
from trocket.bench.send_probe import QUEUE_COUNT, SendProbe
from trocket.interop.peer import LocalCluster
from trocket.interop.process import LineProcess
from trocket.interop.usage import cpu_seconds
from trocket.interop.wire import WireClient

TOPIC: Final = "Load"
PROBED: Final = "Probe"
GROUP: Final = "load"
BEGIN_S: Final = 3.0
COUNT: Final = 32
MORE: Final = 1.3
"""Messages that are there, in proportion to those that are received."""


@dataclass(frozen=True)
class Result:
    """One rate.

    Attributes:
      asked, received: calls a second; received is by the messages.
      core: of the broker's.
    """

    asked: int
    received: float
    core: float
    p50_ms: float
    p99_ms: float


COLUMNS: Columns[Result] = {
    "receives/s": lambda one: str(one.asked),
    "answered with 32 messages/s": lambda one: f"{one.received:.0f}",
    "broker's core": lambda one: f"{one.core:.2f}",
    "send p50 ms": lambda one: f"{one.p50_ms:.2f}",
    "send p99 ms": lambda one: f"{one.p99_ms:.2f}",
}


class _Load:
    """A process that sends or receives."""

    def __init__(self, cluster: LocalCluster, folder: Path, *arguments: str) -> None:
        self.done = 0
        command = [sys.executable, "-m", "trocket.bench.grpc_load", cluster.broker_address, TOPIC]
        folder.mkdir(parents=True, exist_ok=True)
        self._process = LineProcess(
            [*command, *arguments], folder=folder, name="load", on_line=self._take
        )

    def _take(self, line: str) -> None:
        if line.startswith("{"):
            self.done = json.loads(line)["done"]

    def close(self) -> None:
        """Kill it."""
        self._process.kill()


def _fill(cluster: LocalCluster, folder: Path, messages: int) -> None:
    with closing(_Load(cluster, folder, "send", "8", "128", "--batch", "64")) as load:
        while load.done < messages:
            time.sleep(0.2)


def _probe(cluster: LocalCluster, asked: int, load: _Load | None, seconds: float) -> Result:
    (pid, *_) = cluster.pids
    done, cpu_s = 0 if load is None else load.done, cpu_seconds(pid)
    with SendProbe(cluster.broker_address, PROBED) as probe:
        time.sleep(seconds)
    taken = 0 if load is None else load.done - done
    ordered = sorted(probe.latencies_ms)
    return Result(
        asked,
        taken / seconds / COUNT,
        (cpu_seconds(pid) - cpu_s) / seconds,
        percentile(ordered, 0.5),
        percentile(ordered, 0.99),
    )


def main(
    rates: Annotated[str, typer.Option(help="Receives a second, each of 32.")] = "100,300,1000",
    seconds: Annotated[float, typer.Option(min=1, help="For each.")] = 20.0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure the latency of a client of remoting beside receives by gRPC."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = make_cluster("trocket", folder / "cluster")
        assert isinstance(cluster, LocalCluster)
        with running(cluster), WireClient(cluster.broker_address) as wire:
            wire.create_topic(TOPIC, queue_count=8)
            wire.create_topic(PROBED, queue_count=QUEUE_COUNT)
            wire.create_group(GROUP)
            with closing(_Load(cluster, folder / "begin", "receive", "16")):
                time.sleep(BEGIN_S)
            results.append(_probe(cluster, 0, None, seconds))
            for rate in map(int, rates.split(",")):
                _fill(cluster, folder / f"fill-{rate}", int(MORE * rate * COUNT * seconds))
                arguments = ("receive", "64", "128", "--keep", "--rate", str(rate))
                with closing(_Load(cluster, folder / str(rate), *arguments)) as load:
                    time.sleep(BEGIN_S)
                    results.append(_probe(cluster, rate, load, seconds))
    show(results, COLUMNS, as_json=json_, title="remoting beside gRPC", facts={})


if __name__ == "__main__":
    typer.run(main)
