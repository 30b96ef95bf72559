"""Start times of the embedded broker, and the run time of a project's tests that use it.

    python -m trocket.bench.embedded
    python -m trocket.bench.embedded --rounds 200 --json

tcp          `Broker()` until `with` begins: thread, two servers on ports, registered
memory       `MemoryBroker()` until `async with` begins, in a loop that runs already
restart      `Broker.restart()`, with nothing stored
advance      `Broker.advance(hours=2)` until one delayed message is in its topic
import       `from trocket.testing import Broker`, in a new process
project      pytest over examples/pytest_project (50 tests), from start to end of its process

All but the last two are measured in one process after the imports; the last two have an extra first
round, in which Python compiles. `bare` is a reference in the same run: a thread that runs an empty
trio loop, an interpreter that imports nothing, or pytest that collects nothing.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import trio
import typer

from trocket.bench.kit import Columns, chosen, show
from trocket.interop.wire import Outgoing, WireClient
from trocket.testing import Broker, MemoryBroker

ROUNDS = 100
PROCESS_ROUNDS = 5
PROJECT = Path(__file__).resolve().parent.parent / "examples" / "pytest_project"
PROJECT_TIMEOUT_S = 120.0
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""Environment of the processes: Python caches compiled modules, as it does for users."""
TWO_HOURS_LEVEL = "18"

AIMS_MS = {"tcp": 50.0, "memory": 10.0, "project": 5_000.0}
"""Goals for the median in ms."""


@dataclass(frozen=True)
class Times:
    """One case over its rounds; times in ms.

    Attributes:
      spread_ms: the interquartile range of the rounds.
      bare_ms: the reference's median.
      aim_ms: the goal for the median; None: there is none.
    """

    case: str
    rounds: int
    median_ms: float
    spread_ms: float
    min_ms: float
    max_ms: float
    bare_ms: float
    aim_ms: float | None
    is_reached: bool | None


def outcome(case: str, times_ms: list[float], bare_ms: float = 0.0) -> Times:
    """Summarize the times of a case's rounds."""
    first, median, third = statistics.quantiles(times_ms, n=4)
    aim = AIMS_MS.get(case)
    return Times(
        case=case,
        rounds=len(times_ms),
        median_ms=round(median, 2),
        spread_ms=round(third - first, 2),
        min_ms=round(min(times_ms), 2),
        max_ms=round(max(times_ms), 2),
        bare_ms=round(bare_ms, 2),
        aim_ms=aim,
        is_reached=None if aim is None else median <= aim,
    )


def timed_ms(act: Callable[[], object]) -> float:
    """The duration of a call in ms."""
    start_s = time.perf_counter()
    act()
    return (time.perf_counter() - start_s) * 1000


def bare_thread() -> None:
    """Start a thread with an empty trio loop, and wait until the loop runs."""
    running = threading.Event()

    async def main() -> None:
        running.set()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    running.wait()
    thread.join()


def measure_tcp(rounds: int) -> Times:
    """Start a new broker in each round."""
    times_ms = []
    for _ in range(rounds):
        broker = Broker()
        times_ms.append(timed_ms(broker.start))
        broker.close()
    bare_ms = statistics.median(timed_ms(bare_thread) for _ in range(rounds))
    return outcome("tcp", times_ms, bare_ms)


def measure_memory(rounds: int) -> Times:
    """Start a new broker in each round, all in one loop."""
    times_ms: list[float] = []

    async def main() -> None:
        for _ in range(rounds):
            start_s = time.perf_counter()
            async with MemoryBroker():
                times_ms.append((time.perf_counter() - start_s) * 1000)

    trio.run(main)
    return outcome("memory", times_ms)


def measure_restart(rounds: int) -> Times:
    """Restart one broker in each round."""
    with Broker() as broker:
        return outcome("restart", [timed_ms(broker.restart) for _ in range(rounds)])


def measure_advance(rounds: int) -> Times:
    """Send one message delayed by two hours, and advance the clock, in each round."""
    times_ms = []
    with Broker() as broker:
        broker.create_topic("Delayed", queues=1)
        for number in range(rounds):
            send(broker, "Delayed")
            times_ms.append(timed_ms(lambda: broker.advance(hours=2)))
            if len(broker.messages("Delayed")) != number + 1:
                raise RuntimeError("a delayed message was not delivered by advance")
    return outcome("advance", times_ms)


def send(broker: Broker, topic: str) -> None:
    """One delayed message."""
    with WireClient(broker.broker_address) as client:
        client.send_all([Outgoing(topic, 0, b"late", f"DELAY\x01{TWO_HOURS_LEVEL}\x02")])


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, in the project's folder."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PROJECT_TIMEOUT_S,
        check=False,
    )


def measure_import(rounds: int) -> Times:
    """Import the module in a new process in each round."""
    arguments = ("-c", "from trocket.testing import Broker")
    run_python(*arguments).check_returncode()
    times_ms = [timed_ms(lambda: run_python(*arguments)) for _ in range(rounds)]
    bare_ms = statistics.median(timed_ms(lambda: run_python("-c", "")) for _ in range(rounds))
    return outcome("import", times_ms, bare_ms)


def measure_project(rounds: int) -> Times:
    """The example's tests; all must pass."""
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider")

    def run() -> None:
        done = run_python(*pytest)
        if not re.search(r"\b50 passed\b", done.stdout):
            raise RuntimeError(f"the tests of the project do not pass:\n{done.stdout}")

    run()
    times_ms = [timed_ms(run) for _ in range(rounds)]
    bare_ms = statistics.median(
        timed_ms(lambda: run_python(*pytest, "--collect-only", "-k", "nothing"))
        for _ in range(rounds)
    )
    return outcome("project", times_ms, bare_ms)


MEASURES = {
    "tcp": measure_tcp,
    "memory": measure_memory,
    "restart": measure_restart,
    "advance": measure_advance,
    "import": measure_import,
    "project": measure_project,
}
IN_PROCESSES = ("import", "project")


def _ms(number: float) -> str:
    return f"{number:,.{0 if number >= 1_000 else 1}f}"


COLUMNS: Columns[Times] = {
    "case": lambda one: one.case,
    "rounds": lambda one: str(one.rounds),
    "ms": lambda one: _ms(one.median_ms),
    "spread": lambda one: _ms(one.spread_ms),
    "min": lambda one: _ms(one.min_ms),
    "max": lambda one: _ms(one.max_ms),
    "bare": lambda one: _ms(one.bare_ms),
    "aim": lambda one: "" if one.aim_ms is None else f"{one.aim_ms:,.0f}",
    "": lambda one: {None: "", True: "met", False: "missed"}[one.is_reached],
}


def main(
    case: Annotated[list[str] | None, typer.Option(help="Run only this case (repeatable).")] = None,
    rounds: Annotated[
        int, typer.Option(min=2, help="Repeat cases in this process this often.")
    ] = ROUNDS,
    process_rounds: Annotated[
        int, typer.Option(min=2, help="Repeat cases that start processes this often.")
    ] = PROCESS_ROUNDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the embedded broker."""
    outcomes = [
        measure(process_rounds if name in IN_PROCESSES else rounds)
        for name, measure in chosen(case, MEASURES, "--case").items()
    ]
    show(outcomes, COLUMNS, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
