"""The simulated cluster as a program: any number of seeds, over all cores.

    python -m tests.cluster --seeds 20000            # from seed 0
    python -m tests.cluster --seeds 500 --from 90000
    python -m tests.cluster --seed 114 --trace       # one run again, and what happened in it

Exit status 0 when every promise holds, 1 when one does not or it was ended before (Ctrl-C).
docs/testing.md says what is simulated.
"""

from __future__ import annotations

import argparse
import os
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..sim.runs import quiet
from .cluster import Outcome, play
from .faults import FAULTS, plan_of

SEEDS = 1_000
CHUNK = 20
FAILURES_MAX = 20


class Failure(NamedTuple):
    """A seed whose run broke a promise."""

    seed: int
    problem: str

    def text(self) -> str:
        """For people, with what shows it again."""
        plan = plan_of(self.seed)
        return (
            f"seed {self.seed} ({plan.mode}, {plan.topology}, {plan.workload_name}, "
            f"{', '.join(plan.faults)}): {self.problem}\n"
            f"    python -m tests.cluster --seed {self.seed} --trace"
        )


class Report:
    """What some runs came to.

    Attributes:
      runs: how many there were.
      faults: how often each happened.
      answers: of sends, by code.
      met: how often a fault met a mode and a topology.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.faults: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.met: Counter[tuple[str, str, str]] = Counter()
        self.failures: list[Failure] = []

    def take(self, outcome: Outcome) -> None:
        """Count a run."""
        plan = outcome.plan
        self.runs += 1
        self.faults += outcome.faults
        self.answers += outcome.answers
        self.met.update((name, plan.mode, plan.topology) for name in outcome.faults)
        if outcome.problem:
            self.failures.append(Failure(outcome.seed, outcome.problem))

    def add(self, other: Report) -> None:
        """Count the runs of another report."""
        self.runs += other.runs
        self.faults += other.faults
        self.answers += other.answers
        self.met += other.met
        self.failures += other.failures


def run_seeds(seeds: range) -> Report:
    """The runs of some seeds."""
    quiet()
    report = Report()
    for seed in seeds:
        try:
            report.take(play(seed))
        except Exception:  # noqa: BLE001 - an error that no run may raise is told like a broken promise
            report.runs += 1
            report.failures.append(Failure(seed, traceback.format_exc()))
    return report


def chunks(seeds: range) -> Iterator[range]:
    """Some seeds at a time."""
    for start in range(seeds.start, seeds.stop, CHUNK):
        yield range(start, min(start + CHUNK, seeds.stop))


def run_parallel(seeds: range, processes: int) -> Iterator[Report]:
    """The reports of all chunks, as they come; ends early with too many failures."""
    if processes == 1:
        yield from map(run_seeds, chunks(seeds))
        return
    todo = chunks(seeds)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: set[Future[Report]] = set()
        try:
            while True:
                for chunk in todo:
                    running.add(pool.submit(run_seeds, chunk))
                    if len(running) >= processes * 2:
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def replay(seed: int, console: Console, *, trace: bool) -> int:
    """One run again; returns the exit status."""
    outcome = play(seed)
    plan = outcome.plan
    console.print(f"{plan}", highlight=False, markup=False)
    if trace:
        for line in outcome.notes:
            console.print(line, highlight=False, markup=False)
    console.print(outcome.problem or "every promise holds", highlight=False, markup=False)
    console.print(f"trace {outcome.trace}", highlight=False)
    return 1 if outcome.problem else 0


def table(report: Report) -> Table:
    """How often each fault happened, and in how many of the modes' topologies."""
    found = Table("fault", "happened", "met modes and topologies")
    for name in FAULTS:
        met = sum(1 for each in report.met if each[0] == name)
        found.add_row(name, f"{report.faults[name]:,}", f"{met}")
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="this one only, again")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell what happened")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit status."""
    options = parse(arguments)
    quiet()
    console = Console()
    if options.seed is not None:
        return replay(options.seed, console, trace=options.trace)
    seeds = range(options.first, options.first + options.seeds)
    report = Report()
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(seeds))
        try:
            for one in run_parallel(seeds, options.processes):
                report.add(one)
                progress.advance(bar, one.runs)
                for failure in one.failures:
                    progress.console.print(failure.text(), highlight=False, markup=False)
                if len(report.failures) >= FAILURES_MAX:
                    break
        except KeyboardInterrupt:
            progress.console.print("ended before it was through; what there is:")
    console.print(table(report))
    answers = ", ".join(f"{number:,} of {code}" for code, number in sorted(report.answers.items()))
    console.print(
        f"{report.runs:,} runs from seed {seeds.start}; answers to sends by code: {answers}; "
        f"{len(report.failures)} failures"
    )
    return 1 if report.failures or report.runs < len(seeds) else 0
