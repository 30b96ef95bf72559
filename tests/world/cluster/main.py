"""The search over seeds of a cluster."""

from __future__ import annotations

import argparse
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from ..search import add_up, in_parallel, quiet
from .cluster import Run, play
from .faults import ALL_FAULTS, JUMPS_FROM, plan_of

SEEDS = 1_000
CHUNK = 20
FAILURES_MAX = 20


class Scope(NamedTuple):
    """What the search is over; its functions can be pickled.

    Attributes:
      name: on the command line.
      play: one run.
      faults: all names.
    """

    name: str
    play: Callable[[int], Run]
    plan_of: Callable[[int], Any]
    faults: tuple[str, ...]


CLUSTER = Scope("cluster", play, plan_of, tuple(ALL_FAULTS))


class Failure(NamedTuple):
    """A seed whose run broke a promise."""

    seed: int
    problem: str
    scope: Scope = CLUSTER

    def text(self) -> str:
        """For people, with what shows it again."""
        plan = self.scope.plan_of(self.seed)
        return (
            f"seed {self.seed} ({plan.mode}, {plan.topology}, {plan.workload_name}, "
            f"{', '.join(plan.faults)}): {self.problem}\n"
            f"    python -m tests.world {self.scope.name} --seed {self.seed} --trace"
        )


class Report:
    """The results of some runs.

    Attributes:
      count: how many there were.
      faults: how often each happened.
      answers: of sends, by code.
      met: how often a fault met a mode and a topology.
    """

    def __init__(self) -> None:
        self.count = 0
        self.faults: Counter[str] = Counter()
        self.answers: Counter[int] = Counter()
        self.met: Counter[tuple[str, str, str]] = Counter()
        self.failures: list[Failure] = []

    def take(self, run: Run, scope: Scope = CLUSTER) -> None:
        """Count a run."""
        plan = run.plan
        self.count += 1
        self.faults += run.faults
        self.answers += run.answers
        self.met.update((name, plan.mode, plan.topology) for name in run.faults)
        if run.problem:
            self.failures.append(Failure(run.seed, run.problem, scope))

    def add(self, other: Report) -> None:
        """Count the runs of another report."""
        self.count += other.count
        self.faults += other.faults
        self.answers += other.answers
        self.met += other.met
        self.failures += other.failures


def run_seeds(seeds: range, scope: Scope = CLUSTER) -> Report:
    """The runs of some seeds."""
    quiet()
    report = Report()
    for seed in seeds:
        try:
            report.take(scope.play(seed), scope)
        except Exception:  # noqa: BLE001 - an error that no run may raise counts as a broken promise
            report.count += 1
            report.failures.append(Failure(seed, traceback.format_exc(), scope))
    return report


def jobs(seeds: range, scope: Scope) -> Iterator[tuple[range, Scope]]:
    """Some seeds at a time."""
    for start in range(seeds.start, seeds.stop, CHUNK):
        yield range(start, min(start + CHUNK, seeds.stop)), scope


def replay(scope: Scope, seed: int, console: Console, *, trace: bool) -> int:
    """One run again; returns the exit status."""
    run = scope.play(seed)
    plan = run.plan
    console.print(f"{plan}", highlight=False, markup=False)
    if trace:
        for line in run.notes:
            console.print(line, highlight=False, markup=False)
    console.print(run.problem or "every promise holds", highlight=False, markup=False)
    console.print(f"trace {run.trace}", highlight=False)
    return 1 if run.problem else 0


def table(report: Report, scope: Scope) -> Table:
    """How often each fault happened, and in how many of the modes' topologies."""
    found = Table("fault", "happened", "met modes and topologies")
    for name in scope.faults:
        met = sum(1 for each in report.met if each[0] == name)
        found.add_row(name, f"{report.faults[name]:,}", f"{met}")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this scope."""
    add_seed_options(parser)
    parser.add_argument(
        "--jumps", action="store_true", help="with clocks that jump: seeds from 1,000,000 on"
    )


def add_seed_options(parser: argparse.ArgumentParser) -> None:
    """The options of any search over seeds."""
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="this one only, again")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell what happened")


def run(options: argparse.Namespace) -> int:
    """Run all seeds, or one again; returns the exit status."""
    return run_search(CLUSTER, options, options.first + (JUMPS_FROM if options.jumps else 0))


def run_search(scope: Scope, options: argparse.Namespace, first: int) -> int:
    """Run seeds from one on, or one again; returns the exit status."""
    console = Console()
    if options.seed is not None:
        return replay(scope, options.seed, console, trace=options.trace)
    seeds = range(first, first + options.seeds)
    report = Report()
    reports = in_parallel(run_seeds, jobs(seeds, scope), options.processes)
    add_up(report, reports, "seeds", len(seeds), FAILURES_MAX, console)
    console.print(table(report, scope))
    answers = ", ".join(f"{number:,} of {code}" for code, number in sorted(report.answers.items()))
    console.print(
        f"{report.count:,} runs from seed {seeds.start}; answers to sends by code: {answers}; "
        f"{len(report.failures)} failures"
    )
    return 1 if report.failures or report.count < len(seeds) else 0
