"""The official Java benchmark on Apache's and trocket's broker: steady state, and first minute.

Each workload has a fresh broker of each kind on an empty folder with default settings (async
flush; Apache's JVM with a heap of 2 GB), and fresh benchmark programs for each. One after the other
is warmed until the rates of three windows of 10 s agree within 5 %, and a JVM until its rate and
its CPU per message agree over five minutes; the first minute is measured on the way. All stay
alive. In each round each is measured in turn, while the others are stopped by SIGSTOP; ratios are
of the values of one round. A round in which Apache's was slower than in its best one is measured
again. `official_load.WORKLOADS` has threads and sizes.

    python -m trocket.bench.official
    python -m trocket.bench.official --workloads producer,batch --rounds 3 --windows 3 --json
    python -m trocket.bench.official --pure-beside --into docs/performance.md
    python -m trocket.bench.official --only ours --workloads batch
    python -m trocket.bench.official --saved one.json --saved two.json --into docs/performance.md
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import psutil
import typer
from rich.console import Console
from rich.progress import Progress

from trocket.bench.kit import chosen
from trocket.bench.official_figures import REPEATS_MAX, Report, WorkloadResult, is_slow
from trocket.bench.official_lines import WINDOW_S
from trocket.bench.official_load import (
    EXAMPLE_VERSION,
    SETTLE_S,
    WORKLOADS,
    BrokerUnderLoad,
    Contender,
    Workload,
)
from trocket.bench.official_report import notes, tables, write_into
from trocket.bench.python_build import broker_python
from trocket.interop.process import PeerError

ROOT = Path(__file__).resolve().parent.parent
WARM_UP_LIMIT_S = 900.0
"""What does not agree by then, on a machine that others use, will not do so soon."""

PURE = "TROCKET_PURE=1"
"""Makes a broker run without trocket's C extension."""

TOOL_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    Attributes:
      windows: in each round, of 10 s.
    """

    rounds: int
    windows: int
    warm_up_limit_s: float

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds of {self.windows} windows of {WINDOW_S:.0f} s, {SETTLE_S:.0f} s"
            f" after each resume not counted, at most {self.warm_up_limit_s:.0f} s of warm-up"
        )


def contenders(only: str, apache: str, environments: Sequence[str]) -> list[Contender]:
    """The brokers to be measured, the reference of the ratios first.

    Args:
      only: "ours", "apache", or "" for both.
      apache: its version.
      environments: NAME=VALUE, each for one more broker of ours; several variables for one broker
        are separated by commas.
    Raises: typer.BadParameter: one of them is malformed.
    """
    if only not in ("", "ours", "apache"):
        raise typer.BadParameter(f"--only is ours or apache, not {only!r}")
    found: list[Contender] = []
    if only != "ours":
        found.append(Contender(f"apache-{apache}", f"apache-{apache}"))
    if only != "apache":
        found.append(Contender("trocket", "trocket"))
        for text in environments:
            pairs = [pair.partition("=") for pair in text.split(",")]
            if not all(name and equals for name, equals, _ in pairs):
                raise typer.BadParameter(f"--ours-env is NAME=VALUE, not {text!r}")
            variables = {name: value for name, _, value in pairs}
            found.append(Contender(f"trocket {text}", "trocket", variables))
    return found


def run_workload(
    name: str,
    workload: Workload,
    brokers: Sequence[Contender],
    plan: Plan,
    on_step: Callable[[str], None],
) -> WorkloadResult:
    """One workload on all brokers; an error ends it early, and is in the result.

    Args:
      on_step: called with a text when a step begins.
    """
    with tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder, ExitStack() as stack:
        result = WorkloadResult(workload=name, brokers=[])
        loads: list[BrokerUnderLoad] = []
        try:
            for number, contender in enumerate(brokers):
                on_step(f"{name}: warming {contender.name}")
                own = Path(folder) / str(number)
                load = stack.enter_context(BrokerUnderLoad(contender, workload, own))
                loads.append(load)
                result.brokers.append(load.result)
                load.start()
                load.warm_up(limit_s=plan.warm_up_limit_s)
                load.suspend()
            for number in range(plan.rounds):
                on_step(f"{name}: round {number + 1} of {plan.rounds}")
                measure_round(loads, plan.windows)
                while (
                    len(loads) > 1  # otherwise nothing is compared
                    and is_slow(result.brokers[0].rounds)
                    and result.repeated < REPEATS_MAX
                ):
                    result.repeated += 1
                    for broker in result.brokers:
                        broker.rounds.pop()
                    measure_round(loads, plan.windows)
            for load in loads:
                load.measure_memory()
                load.check_log()
        except PeerError as error:
            result.error = str(error)
    return result


def measure_round(loads: Sequence[BrokerUnderLoad], windows: int) -> None:
    """One round of each broker, one after the other."""
    for load in loads:
        load.resume()
        load.measure_round(windows=windows)
        load.suspend()


def facts(brokers: Sequence[Contender], plan: Plan) -> dict[str, str]:
    """What a reader needs to judge the figures."""
    python = {
        f"Python of {each.name}": str(broker_python(each.environment))
        for each in brokers
        if each.peer == "trocket"
    }
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "code": _printed("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "machine": f"{os.cpu_count()} cores, {_cpu_model()}, "
        f"{psutil.virtual_memory().total / 1e9:.0f} GB, {platform.system()} {platform.release()}",
        "load average before": ", ".join(f"{load:.1f}" for load in os.getloadavg()),
        **python,
        "Java": _printed("java", "-version").partition("\n")[0],
        "benchmark programs": f"rocketmq-example {EXAMPLE_VERSION}",
        "plan": str(plan),
    }


def _printed(*command: str) -> str:
    """The output of a tool, or "unknown"."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (done.stdout or done.stderr).strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def merged(reports: Sequence[Report]) -> Report:
    """Reports of several runs as one; facts that differ have all values."""
    found: dict[str, list[str]] = {}
    for report in reports:
        for name, value in report.facts.items():
            values = found.setdefault(name, [])
            if value not in values:
                values.append(value)
    return Report(
        facts={name: "; ".join(values) for name, values in found.items()},
        workloads=[result for report in reports for result in report.workloads],
    )


def measure(workloads: dict[str, Workload], brokers: Sequence[Contender], plan: Plan) -> Report:
    """A whole run, with its progress on standard error."""
    report = Report(facts=facts(brokers, plan), workloads=[])
    steps = len(workloads) * (len(brokers) + plan.rounds)
    with Progress(console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("starting", total=steps)
        for number, (name, workload) in enumerate(workloads.items()):
            base = number * (len(brokers) + plan.rounds)
            progress.update(task, completed=base - 1)

            def on_step(text: str) -> None:
                progress.update(task, advance=1, description=text)

            result = run_workload(name, workload, brokers, plan, on_step)
            report.workloads.append(result)
            for line in notes([result]):
                progress.console.print(line, highlight=False)
        progress.update(task, completed=steps)
    return report


def main(
    workloads: Annotated[str, typer.Option(help="Run these only, separated by commas.")] = ",".join(
        WORKLOADS
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Measure each broker this often.")] = 3,
    windows: Annotated[int, typer.Option(min=1, help="Windows of 10 s in each round.")] = 3,
    warm_up_limit: Annotated[
        float, typer.Option(min=WINDOW_S, help="Warm each broker up for at most this time, in s.")
    ] = WARM_UP_LIMIT_S,
    apache: Annotated[str, typer.Option(help="Apache's version.")] = "5.5.0",
    only: Annotated[str, typer.Option(help="Run one kind only: ours or apache.")] = "",
    ours_env: Annotated[
        list[str] | None,
        typer.Option(help="Run one more broker of ours with NAME=VALUE (repeatable)."),
    ] = None,
    pure_beside: Annotated[
        bool, typer.Option("--pure-beside", help=f"The same as --ours-env {PURE}.")
    ] = False,
    saved: Annotated[
        list[Path] | None,
        typer.Option(help="Print results saved by --json instead of measuring (repeatable)."),
    ] = None,
    into: Annotated[
        Path | None, typer.Option(help="Also replace the results in this document.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Run the official benchmark on Apache's broker and ours in turn, and print the ratios."""
    if saved:
        report = merged([msgspec.json.decode(path.read_bytes(), type=Report) for path in saved])
    else:
        variants = [*(ours_env or ()), *([PURE] if pure_beside else [])]
        report = measure(
            chosen(workloads.split(","), WORKLOADS, "--workloads"),
            contenders(only, apache, variants),
            Plan(rounds, windows, warm_up_limit),
        )
    if json_:
        print(msgspec.json.encode(report).decode())
    else:
        console = Console(width=None if sys.stdout.isatty() else 200)
        for name, value in report.facts.items():
            console.print(f"{name}: {value}", highlight=False, markup=False)
        for each in tables(report):
            console.print(each)
        for line in notes(report.workloads):
            console.print(line, highlight=False, markup=False)
    if into is not None:
        write_into(into, report)
    if any(result.error for result in report.workloads):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
