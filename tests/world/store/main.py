"""The search over crash images of a store."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count

from rich.console import Console
from rich.table import Table

from ..search import add_up, in_parallel, quiet
from .engine import check_run, shorten
from .runs import MODES, Report, record_run
from .workloads import WORKLOADS

IMAGES = 25_000
FAILURES_MAX = 10


def job(workload: str, mode: str, seed: int, depth2: bool, share: float) -> Report:
    """One run and its images, in a worker process."""
    quiet()
    return check_run(record_run(workload, mode, seed), depth2=depth2, share=share)


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, str, int, bool, float]]:
    """Every workload in every mode, seed after seed."""
    for seed in count(options.seed):
        for workload in [options.workload] if options.workload else WORKLOADS:
            for mode in [options.mode] if options.mode else MODES:
                yield workload, mode, seed, options.depth2, options.share


def replay(workload: str, mode: str, text: str, console: Console) -> int:
    """Run one failing case again, make it short, and print its story."""
    seed, moment, kind = text.split(":")
    run = record_run(workload, mode, int(seed))
    failures = check_run(run, depth2=True, only=(moment, kind)).failures
    if not failures:
        console.print(f"{text}: every promise holds")
        return 0
    failure = failures[0]
    console.print(failure.text(), highlight=False, markup=False)
    short = shorten(failure, lambda other: other.invariant == failure.invariant)
    console.rule(f"as short as it gets: {len(short.steps)} steps")
    for step in short.steps:
        console.print("   ", *map(repr, step), highlight=False, markup=False)
    for other in check_run(short, failures_max=1).failures:
        console.print(other.text(), highlight=False, markup=False)
    return 1


def summary(report: Report) -> dict[str, object]:
    """The report as JSON values."""
    by_workload: dict[str, Counter[str]] = {}
    for (workload, kind), number in (report.images + report.second).items():
        by_workload.setdefault(workload, Counter())[kind] += number
    return {
        "images": report.count,
        "second": report.second.total(),
        "runs": report.runs,
        "holes": report.holes,
        "by_workload": {name: dict(sorted(each.items())) for name, each in by_workload.items()},
        "failures": [{**each._asdict(), "text": each.text()} for each in report.failures],
    }


def table(report: Report) -> Table:
    """Images per workload and kind."""
    kinds = ("all", "cut", "none", "prefix", "torn", "random")
    found = Table("crash in", *kinds, "together")
    counts: Counter[tuple[str, str]] = Counter()
    for images in (report.images, report.second):
        for (workload, kind), number in images.items():
            counts[workload, kind.rstrip("123")] += number
    for workload in dict.fromkeys(workload for workload, _ in counts):
        numbers = [counts[workload, kind] for kind in kinds]
        found.add_row(workload, *(f"{each:,}" for each in numbers), f"{sum(numbers):,}")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this scope."""
    parser.add_argument("--images", type=int, default=IMAGES, help="images to check at least")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--workload", choices=[*WORKLOADS], help="only this one")
    parser.add_argument("--mode", choices=MODES, help="M0: ASYNC_FLUSH, M1: SYNC_FLUSH")
    parser.add_argument("--depth2", action="store_true", help="crash in recoveries, too")
    parser.add_argument("--share", type=float, default=1.0, help="part of each run's images")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--replay", metavar="SEED:OPERATION:KIND", help="one failure again")


def run(options: argparse.Namespace) -> int:
    """Check a number of images, or one again; returns the exit status."""
    console = Console(file=sys.stderr if options.json else sys.stdout)
    if options.replay:
        if not (options.workload and options.mode):
            console.print("--replay needs --workload and --mode")
            return 2
        return replay(options.workload, options.mode, options.replay, console)
    report = Report()
    reports = in_parallel(job, jobs(options), options.processes)
    add_up(report, reports, "crash images", options.images, FAILURES_MAX, console)
    if options.json:
        sys.stdout.write(json.dumps(summary(report)) + "\n")
    else:
        console.print(table(report))
        console.print(
            f"{report.count:,} crash images of {report.runs} runs from seed {options.seed}, "
            f"{report.second.total():,} of second crashes; {report.holes:,} had to start "
            f"read-only; {len(report.failures)} failures"
        )
    return 1 if report.failures or report.count < options.images else 0
