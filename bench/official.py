"""The official Java benchmark on Apache's and trocket's broker, alternating, with the ratios.

Workloads of rocketmq-example: Producer alone, Producer with Consumer, BatchProducer,
TransactionProducer, and Producer with a delay level. `WORKLOADS` has their threads and sizes;
everything else, such as 20 consuming threads and the ROCKETMQ header, is the programs' default.
Each run has a fresh broker on an empty folder with default settings (async flush; Apache's JVM with
a heap of 2 GB). Runs alternate A B A B, so that a slow minute of the machine affects both.

    python -m trocket.bench.official
    python -m trocket.bench.official --peers apache-5.5.0 --rounds 1 --seconds 10
    python -m trocket.bench.official --workload batches --workload transactions
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from trocket.bench.kit import chosen, make_cluster, resident_mb, running
from trocket.bench.official_lines import WINDOW_S, ReportLine, parse_report, windows_between
from trocket.common.terminal import table
from trocket.interop.maven import JAVA_OPENS, fetch_jars
from trocket.interop.peer import Cluster
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.usage import anonymous_bytes, cpu_seconds

EXAMPLE_VERSION = "5.5.0"
PACKAGE = "org.apache.rocketmq.example.benchmark"
CLIENT_JAVA = ("-Xms1g", "-Xmx1g")
BROKER_JAVA = ("-Xms2g", "-Xmx2g")
NAMESRV_JAVA = ("-Xms512m", "-Xmx512m")
REPORT_INTERVAL_MS = 1000
IDLE_S = 2.0
CONSUMER_START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Workload:
    """The sending program, and whether the Consumer runs at the same time."""

    program: str
    options: tuple[str, ...]
    is_consumed: bool = False


WORKLOADS = {
    "producer": Workload("Producer", ("-w", "64", "-s", "128")),
    "producer and consumer": Workload("Producer", ("-w", "64", "-s", "128"), is_consumed=True),
    "batches": Workload("BatchProducer", ("-w", "16", "-b", "32", "-s", "128")),
    "transactions": Workload("TransactionProducer", ("-w", "32")),
    "delayed": Workload("Producer", ("-w", "64", "-s", "128", "-d", "true", "-e", "1")),
}


@dataclass(frozen=True)
class Run:
    """The figures of one run.

    `cpu_us` is the broker process's CPU per message sent; memory is of broker and name server
    together, in MB; `anonymous_mb` leaves out mapped file pages. `consume_per_s` and
    `store_to_consumer_ms` are None without a consumer.
    """

    peer: str
    workload: str
    send_per_s: float
    consume_per_s: float | None
    send_ms: float
    store_to_consumer_ms: float | None
    failed: int
    cpu_us: float
    start_s: float
    idle_mb: float
    resident_mb: float
    anonymous_mb: float


METRICS = (
    ("send_per_s", "sent msg/s"),
    ("consume_per_s", "consumed msg/s"),
    ("send_ms", "ms per send"),
    ("store_to_consumer_ms", "ms store to consumer"),
    ("cpu_us", "broker CPU µs/msg"),
    ("start_s", "start s"),
    ("idle_mb", "idle RSS MB"),
    ("resident_mb", "RSS MB after"),
    ("anonymous_mb", "of it not files MB"),
    ("failed", "failed"),
)


class Program:
    """One of the benchmark programs, with the time at which each of its reports arrived."""

    def __init__(self, name: str, namesrv_address: str, folder: Path, options: list[str]) -> None:
        self.reports: list[tuple[float, ReportLine]] = []
        jars = fetch_jars(EXAMPLE_VERSION, "example")
        command = ["java", *CLIENT_JAVA, *JAVA_OPENS, f"-Duser.home={folder}"]
        command += ["-cp", f"{jars}/*", f"{PACKAGE}.{name}", "-n", namesrv_address]
        command += ["-ri", str(REPORT_INTERVAL_MS), *options]
        self.process = LineProcess(command, folder=folder, name=name, on_line=self._on_line)

    def _on_line(self, line: str) -> None:
        report = parse_report(line)
        if report is not None:
            self.reports.append((time.monotonic(), report))

    def windows(self, start_s: float, end_s: float) -> list[ReportLine]:
        """The reports of the measured time. Raises: PeerError: there are none."""
        windows = windows_between(self.reports, start_s=start_s, end_s=end_s)
        if not windows:
            name = self.process.name
            raise PeerError(f"{name} reported nothing in time\n{self.process.tail()}")
        return windows


@contextmanager
def running_program(
    name: str, cluster: Cluster, folder: Path, options: list[str]
) -> Iterator[Program]:
    """A benchmark program, killed at the end of the block, as it never exits."""
    program = Program(name, cluster.namesrv_address, folder, options)
    try:
        yield program
    finally:
        program.process.kill()


def run_once(peer: str, workload: str, folder: Path, *, warm_up_s: float, seconds: float) -> Run:
    """One run on an empty folder.

    Raises: PeerError: a process did not start, or the benchmark reported nothing.
    """
    cluster = make_cluster(
        peer, folder / "cluster", broker_java=BROKER_JAVA, namesrv_java=NAMESRV_JAVA
    )
    before_s = time.monotonic()
    with running(cluster):
        start_s = time.monotonic() - before_s
        time.sleep(IDLE_S)
        idle_mb = resident_mb(*cluster.pids)
        if not WORKLOADS[workload].is_consumed:
            return _measure(cluster, workload, folder, start_s, idle_mb, warm_up_s, seconds, None)
        with running_program("Consumer", cluster, folder / "consumer", []) as consumer:
            consumer.process.wait_line(
                lambda line: "Consumer Started" in line, timeout_s=CONSUMER_START_TIMEOUT_S
            )
            return _measure(
                cluster, workload, folder, start_s, idle_mb, warm_up_s, seconds, consumer
            )


def _measure(
    cluster: Cluster,
    workload: str,
    folder: Path,
    start_s: float,
    idle_mb: float,
    warm_up_s: float,
    seconds: float,
    consumer: Program | None,
) -> Run:
    kind = WORKLOADS[workload]
    with running_program(
        kind.program, cluster, folder / "producer", list(kind.options)
    ) as producer:
        broker = cluster.pids[0]
        time.sleep(warm_up_s)
        cpu_from_s, from_s = cpu_seconds(broker), time.monotonic()
        time.sleep(seconds)
        cpu_to_s, to_s = cpu_seconds(broker), time.monotonic()
        after_mb = resident_mb(*cluster.pids)
        anonymous_mb = sum(map(anonymous_bytes, cluster.pids)) / 1e6
        # The report of the last window may be printed shortly after the window's end.
        time.sleep(1.0)
    sends = producer.windows(from_s, to_s + 1.0)
    send_per_s = statistics.fmean(one.rate_per_s for one in sends)
    takes = None if consumer is None else consumer.windows(from_s, to_s + 1.0)
    return Run(
        peer=cluster.label,
        workload=workload,
        send_per_s=send_per_s,
        consume_per_s=None if takes is None else statistics.fmean(t.rate_per_s for t in takes),
        send_ms=statistics.fmean(one.average_ms for one in sends),
        store_to_consumer_ms=None
        if takes is None
        else statistics.fmean(take.average_ms for take in takes),
        failed=sends[-1].failed + (0 if takes is None else takes[-1].failed),
        cpu_us=(cpu_to_s - cpu_from_s) / (send_per_s * (to_s - from_s)) * 1e6,
        start_s=start_s,
        idle_mb=idle_mb,
        resident_mb=after_mb,
        anonymous_mb=anonymous_mb,
    )


def medians(runs: list[Run], peer: str, workload: str) -> dict[str, float]:
    """The median of each metric over the rounds; metrics that were not measured are left out."""
    mine = [asdict(run) for run in runs if run.peer == peer and run.workload == workload]
    values = {name: [run[name] for run in mine if run[name] is not None] for name, _ in METRICS}
    return {name: statistics.median(found) for name, found in values.items() if found}


def summarize(runs: list[Run], peers: list[str]) -> list[dict[str, object]]:
    """Per workload and metric: each peer's median, and the ratio of the last to the first peer.

    The ratio is left out with one peer, and where the first one's median is 0.
    """
    rows: list[dict[str, object]] = []
    for workload in dict.fromkeys(run.workload for run in runs):
        found = {peer: medians(runs, peer, workload) for peer in peers}
        for name, title in METRICS:
            if not all(name in of for of in found.values()):
                continue
            row: dict[str, object] = {"workload": workload, "metric": title}
            row.update({peer: found[peer][name] for peer in peers})
            reference = found[peers[0]][name]
            if len(peers) > 1 and reference != 0:
                row["ratio"] = found[peers[-1]][name] / reference
            rows.append(row)
    return rows


def _cell(value: object) -> str:
    if not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def report(runs: list[Run], peers: list[str]) -> Table:
    """The summary as a table."""
    rounds = len(runs) // (len(peers) * len({run.workload for run in runs}))
    headings = ("workload", "metric", *peers, "ratio")
    rows = []
    for row in summarize(runs, peers):
        cells = [row["workload"], row["metric"], *(row[peer] for peer in peers), row.get("ratio")]
        rows.append([*map(_cell, cells)])
    return table(headings, rows, title=f"medians of {rounds} rounds")


def main(
    seconds: Annotated[float, typer.Option(min=WINDOW_S, help="Measure for this time.")] = 20.0,
    warm_up: Annotated[float, typer.Option(help="Warm up for this time.")] = 20.0,
    rounds: Annotated[int, typer.Option(min=1, help="Run each this often.")] = 3,
    peers: Annotated[
        str, typer.Option(help="Run these in order; the ratio is of the last to the first.")
    ] = "apache-5.5.0,trocket",
    workload: Annotated[
        list[str] | None, typer.Option(help="Run only this workload (repeatable).")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Run the official benchmark against each peer in turn and print medians and ratios."""
    names = peers.split(",")
    workloads = chosen(workload, WORKLOADS, "--workload")
    total = rounds * len(workloads) * len(names)
    runs: list[Run] = []
    with Progress(console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("starting", total=total)
        for number in range(rounds):
            for each in workloads:
                for peer in names:
                    what = f"round {number + 1} of {rounds}: {each} on {peer}"
                    progress.update(task, description=what)
                    with tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder:
                        run = run_once(peer, each, Path(folder), warm_up_s=warm_up, seconds=seconds)
                    runs.append(run)
                    progress.advance(task)
    if json_:
        print(json.dumps({"summary": summarize(runs, names), "runs": list(map(asdict, runs))}))
    else:
        Console().print(report(runs, names))


if __name__ == "__main__":
    typer.run(main)
