"""One broker under the load of the official benchmark programs, suspended between its rounds.

A suspended broker and its programs are stopped by SIGSTOP: they keep their memory and their
compiled code, and take no CPU. After SIGCONT the programs count requests that timed out meanwhile
as failed, and print the reports that they missed, so nothing is measured until `SETTLE_S` later.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from trocket.bench.kit import make_cluster, percentile, resident_mb
from trocket.bench.official_disk import LogTrimmer
from trocket.bench.official_figures import (
    WARM_MINUTES,
    WARM_WINDOWS,
    BrokerResult,
    Figures,
    Memory,
    Minute,
    WarmUp,
    limit_share,
    minutes_agree,
    windows_agree,
)
from trocket.bench.official_lines import (
    WINDOW_S,
    ReportLine,
    failed_between,
    mean_ms,
    parse_report,
    windows_between,
)
from trocket.bench.send_probe import QUEUE_COUNT, SendProbe
from trocket.interop.maven import JAVA_OPENS, fetch_jars
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.trocket_peer import TrocketCluster
from trocket.interop.usage import anonymous_bytes, cpu_seconds
from trocket.interop.wire import WireClient, wait_for_route

EXAMPLE_VERSION = "5.5.0"
PACKAGE = "org.apache.rocketmq.example.benchmark"
CLIENT_JAVA = ("-Xms1g", "-Xmx1g")
BROKER_JAVA = ("-Xms2g", "-Xmx2g")
NAMESRV_JAVA = ("-Xms512m", "-Xmx512m")
REPORT_INTERVAL_MS = 1000
REPORT_LATE_S = 1.0
"""A report of a window may be printed this much later: `REPORT_INTERVAL_MS`."""

IDLE_S = 2.0
CONSUMER_START_TIMEOUT_S = 60.0
ROUTE_TIMEOUT_S = 60.0
FIRST_S = 60.0
MINUTE_S = 60.0
SETTLE_S = 10.0
"""After a broker and its programs are resumed; Producer pauses 3 s after a send that failed."""
DRAIN_S = 0.5
"""Between the stop of the programs and of their broker, which answers what it has received."""
STEP_S = 2.0
"""Between two checks of the disk."""

FEW_TOPIC = "BenchmarkFew"
FEW_QUEUES = 8
PROBE_TOPIC = "BenchmarkProbe"


@dataclass(frozen=True)
class Workload:
    """The sending program, and whether the Consumer runs at the same time.

    Attributes:
      is_few: the topic is `FEW_TOPIC`, not the programs' default with 1,024 queues.
    """

    program: str
    options: tuple[str, ...]
    is_consumed: bool = False
    is_few: bool = False


_PRODUCER = ("-w", "64", "-s", "128")

WORKLOADS = {
    "producer": Workload("Producer", _PRODUCER),
    "together": Workload("Producer", _PRODUCER, is_consumed=True, is_few=True),
    "together_1024": Workload("Producer", _PRODUCER, is_consumed=True),
    "batch": Workload("BatchProducer", ("-w", "16", "-b", "32", "-s", "128")),
    "transactions": Workload("TransactionProducer", ("-w", "32")),
    "delayed": Workload("Producer", (*_PRODUCER, "-d", "true", "-e", "1")),
}


@dataclass(frozen=True)
class Contender:
    """A broker to be measured.

    Attributes:
      name: in reports.
      peer: "trocket" or "apache-VERSION".
      environment: further variables of our broker.
    """

    name: str
    peer: str
    environment: Mapping[str, str] = field(default_factory=dict)


class Program:
    """One of the benchmark programs, with the time at which each of its reports arrived."""

    def __init__(self, name: str, namesrv_address: str, folder: Path, options: list[str]) -> None:
        self.name = name
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
            raise PeerError(
                f"{self.name} reported nothing within {end_s - start_s:.0f} s\n"
                f"{self.process.tail()}"
            )
        return windows

    def latest_rates(self, start_s: float) -> list[int]:
        """The rates of the last `WARM_WINDOWS` windows since a time, or of fewer."""
        found = windows_between(self.reports, start_s=start_s, end_s=time.monotonic())
        return [one.rate_per_s for one in found[-WARM_WINDOWS:]]


class Mark(NamedTuple):
    """A moment, with the CPU seconds used until then."""

    at_s: float
    broker_cpu_s: float
    clients_cpu_s: float
    machine_cpu_s: float


class BrokerUnderLoad:
    """One broker, the programs that load it, and the probe. Use it as a context manager.

    Args:
      folder: holds everything of this broker.
    Raises: PeerError: from all methods: a process did not start, ended, or reported nothing.
    """

    def __init__(self, contender: Contender, workload: Workload, folder: Path) -> None:
        self.result = BrokerResult(broker=contender.name)
        self._workload = workload
        self._folder = folder
        self._programs: list[Program] = []
        self._loaded_s = 0.0
        self._start_s = self._idle_mb = 0.0
        self._is_jvm = contender.peer != "trocket"
        self._cpu: list[tuple[float, float]] = []  # moments, and the broker's CPU seconds till then
        self._trimmer = LogTrimmer(folder, is_read=workload.is_consumed)
        self._stack = ExitStack()
        self._cluster = (
            TrocketCluster(folder / "cluster", environment=contender.environment)
            if contender.peer == "trocket"
            else make_cluster(
                contender.peer,
                folder / "cluster",
                broker_java=BROKER_JAVA,
                namesrv_java=NAMESRV_JAVA,
            )
        )

    def __enter__(self) -> BrokerUnderLoad:
        return self

    def __exit__(self, *of_error: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start the broker, measure it idle, and start the programs."""
        before_s = time.monotonic()
        self._stack.callback(self._cluster.close)
        self._cluster.start()
        self._start_s = time.monotonic() - before_s
        time.sleep(IDLE_S)
        self._idle_mb = resident_mb(*self._cluster.pids)
        with WireClient(self._cluster.broker_address) as wire:
            wire.create_topic(PROBE_TOPIC, queue_count=QUEUE_COUNT)
            wire.create_topic(FEW_TOPIC, queue_count=FEW_QUEUES)
        wait_for_route(self._cluster.namesrv_address, FEW_TOPIC, timeout_s=ROUTE_TIMEOUT_S)
        topic = ["-t", FEW_TOPIC] if self._workload.is_few else []
        if self._workload.is_consumed:
            consumer = self._launch("Consumer", topic)
            consumer.process.wait_line(
                lambda line: "Consumer Started" in line, timeout_s=CONSUMER_START_TIMEOUT_S
            )
        # The sender is first: its messages are what CPU is divided by.
        self._launch(self._workload.program, [*self._workload.options, *topic])
        self._programs.reverse()
        self._loaded_s = time.monotonic()

    def _launch(self, name: str, options: list[str]) -> Program:
        program = Program(name, self._cluster.namesrv_address, self._folder / name, options)
        self._stack.callback(program.process.kill)
        self._programs.append(program)
        return program

    def warm_up(self, *, limit_s: float) -> None:
        """Measure the first minute, then go on until the rates of all programs are steady, and for
        a JVM until rate and CPU per message were so for WARM_MINUTES.

        Args:
          limit_s: under load, after which they count as never steady; less than a minute makes the
            "first minute" as short.
        """
        first_s = min(FIRST_S, limit_s)
        self.result.first_minute = self._measure(first_s)
        since_s = self._loaded_s + first_s
        while True:
            rates = {each.name: each.latest_rates(since_s) for each in self._programs}
            elapsed_s = time.monotonic() - self._loaded_s
            minutes = self._minutes(since_s) if self._is_jvm else []
            is_steady = all(map(windows_agree, rates.values())) and (
                not self._is_jvm or minutes_agree(minutes)
            )
            if is_steady or elapsed_s >= limit_s:
                break
            self._wait(min(STEP_S, limit_s - elapsed_s))
        self.result.warm_up = WarmUp(
            seconds=elapsed_s, is_steady=is_steady, windows=rates, minutes=minutes
        )

    def _minutes(self, since_s: float) -> list[Minute]:
        """The last WARM_MINUTES; none if the load, without its first minute, is younger."""
        minutes: list[Minute] = []
        until_s = self._cpu[-1][0] if self._cpu else since_s
        for number in range(WARM_MINUTES, 0, -1):
            start_s, end_s = until_s - MINUTE_S * number, until_s - MINUTE_S * (number - 1)
            reports = windows_between(self._programs[0].reports, start_s=start_s, end_s=end_s)
            marks = [(at_s, cpu_s) for at_s, cpu_s in self._cpu if start_s <= at_s <= end_s]
            if start_s < since_s or not reports or len(marks) < 2:
                return []
            rate = statistics.fmean(one.rate_per_s for one in reports)
            (first_s, first_cpu_s), (last_s, last_cpu_s) = marks[0], marks[-1]
            messages = max(rate * (last_s - first_s), 1.0)
            cpu_us = (last_cpu_s - first_cpu_s) * 1e6 / messages
            minutes.append(Minute(send_per_s=rate, broker_cpu_us=cpu_us))
        return minutes

    def measure_round(self, *, windows: int) -> None:
        """One round after a resume."""
        self._wait(SETTLE_S)
        self.result.rounds.append(self._measure(windows * WINDOW_S))

    def measure_memory(self) -> None:
        """The memory after the last round."""
        pids = self._cluster.pids
        self.result.memory = Memory(
            start_s=self._start_s,
            idle_mb=self._idle_mb,
            resident_mb=resident_mb(*pids),
            anonymous_mb=sum(map(anonymous_bytes, pids)) / 1e6,
        )

    def check_log(self) -> None:
        """Refuse figures of a broker of ours that gave something up, such as its index.

        Raises: PeerError: it logged an error.
        """
        found = logged_errors(self._folder / "cluster" / "up.err")
        if found:
            raise PeerError(f"{self.result.broker} logged {len(found)} errors: {found[0]}")

    def suspend(self) -> None:
        """Stop programs and broker by SIGSTOP, the programs first."""
        for program in self._programs:
            _signal(program.process.pid, signal.SIGSTOP)
        time.sleep(DRAIN_S)
        for pid in self._cluster.pids:
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the broker, then its programs."""
        for pid in self._cluster.pids:
            _signal(pid, signal.SIGCONT)
        for program in self._programs:
            _signal(program.process.pid, signal.SIGCONT)

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while (rest_s := end_s - time.monotonic()) > 0:
            time.sleep(min(STEP_S, rest_s))
            self._trimmer.trim()
            self._cpu.append((time.monotonic(), cpu_seconds(self._cluster.pids[0])))

    def _mark(self) -> Mark:
        return Mark(
            time.monotonic(),
            cpu_seconds(self._cluster.pids[0]),
            sum(cpu_seconds(program.process.pid) for program in self._programs),
            _machine_cpu_seconds(),
        )

    def _measure(self, seconds: float) -> Figures:
        """The figures of the time from now on."""
        with SendProbe(self._cluster.broker_address, PROBE_TOPIC) as probe:
            first = self._mark()
            self._wait(seconds)
            last = self._mark()
        # The report of the last window may be printed shortly after the window's end.
        time.sleep(REPORT_LATE_S)
        end_s = last.at_s + REPORT_LATE_S
        windows = [program.windows(first.at_s, end_s) for program in self._programs]
        sends = windows[0]
        takes = windows[1] if len(windows) > 1 else []
        send_per_s = statistics.fmean(one.rate_per_s for one in sends)
        took_s = last.at_s - first.at_s
        broker_s = last.broker_cpu_s - first.broker_cpu_s
        clients_s = last.clients_cpu_s - first.clients_cpu_s
        machine_s = last.machine_cpu_s - first.machine_cpu_s
        checks = [one.checks for one in sends if one.checks is not None]
        per_message = 1e6 / max(send_per_s * took_s, 1.0)
        latencies = sorted(probe.latencies_ms)
        other_cores = max(0.0, machine_s - broker_s - clients_s) / took_s
        return Figures(
            seconds=took_s,
            send_per_s=send_per_s,
            consume_per_s=statistics.fmean(one.rate_per_s for one in takes) if takes else None,
            send_ms=mean_ms(sends),
            store_to_consumer_ms=mean_ms(takes),
            probe_p50_ms=percentile(latencies, 0.5) if latencies else None,
            probe_p99_ms=percentile(latencies, 0.99) if latencies else None,
            probe_refused=probe.refused,
            broker_cpu_us=broker_s * per_message,
            clients_cpu_us=clients_s * per_message,
            other_cores=other_cores,
            limit_share=limit_share(
                send_per_s,
                (broker_s + clients_s) * per_message,
                cores=(os.cpu_count() or 1) - other_cores,
            ),
            failed=sum(
                failed_between(program.reports, start_s=first.at_s, end_s=end_s)
                for program in self._programs
            ),
            unexpected_checks=sum(checks) if checks else None,
        )


def logged_errors(path: Path) -> list[str]:
    """The error lines of our broker's log; none if there is no such file."""
    if not path.is_file():
        return []
    return [line for line in path.read_text(errors="replace").splitlines() if " ERROR " in line]


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process group by its leader.

    Raises: PeerError: it has ended.
    """
    try:
        os.killpg(pid, number)
    except ProcessLookupError as error:
        raise PeerError(f"process {pid} has ended; its log may say why") from error


def _machine_cpu_seconds() -> float:
    """CPU seconds that all processes of the machine used since its start, and stolen ones."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - _counted_twice(times)


def _counted_twice(times: object) -> float:
    """Linux adds the time of guests to that of users as well."""
    return float(getattr(times, "guest", 0.0)) + float(getattr(times, "guest_nice", 0.0))
