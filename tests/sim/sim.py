"""The simulation as a program: any number of crash images, over all cores.

    python -m tests.sim                             # 25,000 images
    python -m tests.sim --images 1000000 --depth2   # what `make sim` does
    python -m tests.sim --workload roll --mode M1 --replay 7:113:random2

Exit status 0 when all invariants hold, 1 when one does not or it was ended before (Ctrl-C).
docs/testing.md says what is simulated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .engine import check_run, shorten
from .runs import MODES, Report, quiet, record_run
from .workloads import WORKLOADS

Job = tuple[str, str, int]
"""Workload, mode, seed."""

IMAGES = 25_000
FAILURES_MAX = 10


def job(workload: str, mode: str, seed: int, depth2: bool, share: float) -> Report:
    """One run and its images, in a worker process."""
    quiet()
    return check_run(record_run(workload, mode, seed), depth2=depth2, share=share)


def jobs(workloads: list[str], modes: list[str], seed: int) -> Iterator[Job]:
    """Every workload in every mode, seed after seed."""
    for each in count(seed):
        for workload in workloads:
            for mode in modes:
                yield workload, mode, each


def simulate(
    images: int,
    seed: int,
    *,
    workloads: list[str] | None = None,
    modes: list[str] | None = None,
    depth2: bool = False,
    share: float = 1.0,
    processes: int = 1,
    on_report: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Check at least so many images, or give up after `FAILURES_MAX` failures.

    Args:
      seed: of the first runs; those after it count on.
      share: part of each run's images that is looked at.
      processes: 1: in this one.
      on_report: called with the report of each run.
    """
    total = Report()
    todo = jobs(workloads or [*WORKLOADS], modes or [*MODES], seed)

    def take(report: Report) -> None:
        total.add(report)
        on_report(report)

    def is_done() -> bool:
        return total.count >= images or len(total.failures) >= FAILURES_MAX

    if processes == 1:
        while not is_done():
            take(job(*next(todo), depth2, share))
        return total
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: set[Future[Report]] = set()
        try:
            while not is_done():
                while len(running) < processes * 2:
                    running.add(pool.submit(job, *next(todo), depth2, share))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    take(future.result())
        finally:
            for future in running:
                future.cancel()
    return total


def replay(workload: str, mode: str, text: str, console: Console) -> int:
    """Run one failing case again, make it short, and tell its story."""
    seed, moment, kind = text.split(":")
    report = check_run(record_run(workload, mode, int(seed)), depth2=True, failures_max=1 << 30)
    found = [each for each in report.failures if str(each.moment) == moment and each.kind == kind]
    if not found:
        console.print(f"{report.count} images, {len(report.failures)} failures, none at {text}")
        return 1 if report.failures else 0
    failure = found[0]
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


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES, help="at least so many")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--workload", choices=[*WORKLOADS], help="only this one")
    parser.add_argument("--mode", choices=MODES, help="M0: ASYNC_FLUSH, M1: SYNC_FLUSH")
    parser.add_argument("--depth2", action="store_true", help="crash in recoveries, too")
    parser.add_argument("--share", type=float, default=1.0, help="part of each run's images")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--replay", metavar="SEED:OPERATION:KIND", help="one failure again")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit status."""
    options = parse(arguments)
    quiet()
    console = Console(file=sys.stderr if options.json else sys.stdout)
    if options.replay:
        if not (options.workload and options.mode):
            console.print("--replay needs --workload and --mode")
            return 2
        return replay(options.workload, options.mode, options.replay, console)
    columns = (TextColumn("crash images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=options.images)

        report = Report()

        def show(one: Report) -> None:
            report.add(one)
            progress.advance(bar, one.count)
            for failure in one.failures:
                progress.console.print(failure.text(), highlight=False, markup=False)

        try:
            simulate(
                options.images,
                options.seed,
                workloads=[options.workload] if options.workload else None,
                modes=[options.mode] if options.mode else None,
                depth2=options.depth2,
                share=options.share,
                processes=options.processes,
                on_report=show,
            )
        except KeyboardInterrupt:
            progress.console.print("ended before it was through; what there is:")
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
