"""Comparison of trocket's client with the official Java client.

Workloads, with bodies of 128 bytes: `awaited` (one send at a time), `pipelined` (256 in flight),
`batch` (batches of 32, one at a time), `consume` (a push consumer of stored messages).

All clients of a workload run at the same time and use one broker. Each is warmed up alone until its
rate is steady, which takes a JVM half a minute and more. Then they are measured in turn, so that a
slow minute of the machine affects all of them; a ratio is that of two windows of the same round.
`us` is the client's CPU time per message: one core handles 1,000,000 / us messages a second.

    python -m trocket.bench.client
    python -m trocket.bench.client --peer asyncio --peer java-5.5.0 --workload pipelined
    python -m trocket.bench.client --peer trio --peer trio-pure     # without the C extension
    python -m trocket.bench.client --peer trio --beside ../before   # another checkout: trio-beside
    python -m trocket.bench.client --broker apache-5.5.0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress

from trocket.bench.kit import make_cluster, round_ratios, running, spread_of, spread_text
from trocket.bench.official_figures import windows_agree
from trocket.common.terminal import table
from trocket.interop.maven import JAVA_OPENS, compile_java
from trocket.interop.peer import Cluster
from trocket.interop.wire import WireClient
from trocket.native import PURE_SWITCH

WORKLOADS = ("awaited", "pipelined", "batch", "consume")
PEERS = ("asyncio", "trio", "blocking", "java-5.5.0")
BASE = "java-5.5.0"
QUEUES = 4
WINDOW_TIMEOUT_S = 180.0
HERE = Path(__file__).parent


class Window(NamedTuple):
    """Messages per second of one period, and CPU microseconds of the client per message."""

    per_s: float
    cpu_us: float


class Peer:
    """A client in a process, which measures a window for each line that it is sent.

    Lifecycle: `close` ends the process.

    Args:
      name: one of PEERS; "-pure" and "-beside" may follow the name of one of ours.
      arguments: the name server's address, the topic and the workload.
      folder: for the files of a JVM.
      beside: the checkout for "-beside".
    """

    def __init__(
        self, name: str, arguments: Sequence[str], folder: Path, beside: Path | None = None
    ) -> None:
        self.name = name
        self._errors = Path(folder, f"{name}.stderr").open("w+")  # noqa: SIM115 - until `close`
        self._process = subprocess.Popen(
            [*command_of(name, folder, beside), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=folder,
            env=os.environ
            | {"HOME": str(folder)}
            | ({PURE_SWITCH: "1"} if name.endswith("-pure") else {}),
        )

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def measure(self, seconds: float, count: int) -> Window:
        """Send for some seconds, or consume some messages.

        Raises: RuntimeError: the process ended, or took longer than WINDOW_TIMEOUT_S.
        """
        assert self._process.stdin is not None  # pipes
        assert self._process.stdout is not None
        timer = threading.Timer(WINDOW_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(f"{seconds} {count}\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line.startswith('{"per_s"'):
                    return Window(**json.loads(line))
        finally:
            timer.cancel()
        self._errors.seek(0)
        raise RuntimeError(f"{self.name} ended before the window: {self._errors.read()[-2000:]}")

    def warm_up(self, seconds: float, count: int, limit_s: float) -> bool:
        """Measure windows until three in a row agree; False: they did not within `limit_s`."""
        end_s = time.monotonic() + limit_s
        rates: list[float] = []
        while not windows_agree(rates):
            if time.monotonic() >= end_s:
                return False
            rates.append(self.measure(seconds, count).per_s)
        return True


def command_of(name: str, folder: Path, beside: Path | None) -> list[str]:
    """The command line of a client's program, without its arguments."""
    if name.startswith("java-"):
        version = name.removeprefix("java-")
        options = ["-Xms512m", "-Xmx512m", *JAVA_OPENS, f"-Duser.home={folder}"]
        return ["java", *options, "-cp", compile_java(version), "ClientBench"]
    python = sys.executable
    if name.endswith("-beside"):
        if beside is None:
            raise typer.BadParameter(f"{name} needs --beside")
        python = str(beside.absolute() / ".venv/bin/python")
    return [python, str(HERE / "client_peer.py"), name.partition("-")[0]]


def main(
    peer: Annotated[list[str], typer.Option(help="Measure this client.")] = list(PEERS),  # noqa: B006
    workload: Annotated[list[str], typer.Option(help="Measure this workload.")] = list(WORKLOADS),  # noqa: B006
    broker: Annotated[str, typer.Option(help="Use trocket or apache-VERSION.")] = "trocket",
    beside: Annotated[Path | None, typer.Option(help="Alternate with this checkout.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Repeat this often.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Set the time per measurement.")] = 5.0,
    warm_up_limit: Annotated[float, typer.Option(help="Warm up for at most this time.")] = 60.0,
    total: Annotated[int, typer.Option(min=1000, help="Consume this number.")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure, and print messages per second, CPU and ratios."""
    if beside is not None:
        ours = [name for name in peer if name in ("asyncio", "trio", "blocking")]
        peer = [*peer, *(f"{name}-beside" for name in ours)]
    found: dict[tuple[str, str], list[Window]] = {}
    with tempfile.TemporaryDirectory() as name, Progress(console=Console(stderr=True)) as bar:
        folder = Path(name)
        with running(make_cluster(broker, folder / "cluster")) as cluster:
            for one in workload:
                topic = f"{one}_{time.time_ns()}"
                with WireClient(cluster.broker_address) as wire:
                    wire.create_topic(topic, queue_count=QUEUES)
                if one == "consume":
                    fill(cluster, topic, total, folder)
                task = bar.add_task("", total=len(peer) * (rounds + 1))
                with ExitStack() as stack:
                    peers = []
                    for name in peer:
                        bar.update(task, description=f"{one}: warming up {name}")
                        arguments = (cluster.namesrv_address, topic, one)
                        client = Peer(name, arguments, folder, beside)
                        peers.append(stack.enter_context(closing(client)))
                        if not client.warm_up(seconds, total, warm_up_limit):
                            print(f"{one}: {name} was not steady", file=sys.stderr)
                        bar.advance(task)
                    for _ in range(rounds):
                        for client in peers:
                            bar.update(task, description=f"{one}: {client.name}")
                            window = client.measure(seconds, total)
                            found.setdefault((one, client.name), []).append(window)
                            bar.advance(task)
    if as_json:
        print(json.dumps({f"{one} {who}": windows for (one, who), windows in found.items()}))
    else:
        show(found, workload, peer)


def fill(cluster: Cluster, topic: str, total: int, folder: Path) -> None:
    """Fill the topic that `consume` reads."""
    arguments = (cluster.namesrv_address, topic, "batch")
    with closing(Peer("asyncio", arguments, folder)) as client:
        sent = 0.0
        while sent < total:
            sent += client.measure(1, 0).per_s


def show(
    found: dict[tuple[str, str], list[Window]], workloads: list[str], peers: list[str]
) -> None:
    """Print the medians, their spread, and the ratios to the Java client."""
    rows = []
    for one in workloads:
        base = [window.per_s for window in found.get((one, BASE), ())]
        for who in peers:
            windows = found.get((one, who))
            if windows is None:
                rows.append([one, who, "-", "", ""])
                continue
            rates = [window.per_s for window in windows]
            ratios = round_ratios(rates, base)
            rows.append(
                [
                    one,
                    who,
                    spread_text(spread_of(rates)),
                    spread_text(spread_of([window.cpu_us for window in windows])),
                    spread_text(spread_of(ratios) if ratios else None),
                ]
            )
    headings = ("workload", "client", "msg/s", "us", f"/ {BASE}")
    Console(width=120).print(table(headings, rows))


if __name__ == "__main__":
    typer.run(main)
