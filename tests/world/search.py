"""A search for broken promises: many runs over all cores, with a bar that shows how far it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from itertools import islice
from multiprocessing import get_context
from typing import Any, Protocol, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


class FailedRun(Protocol):
    """A run that broke a promise."""

    def text(self) -> str:
        """For people, with the command that shows it again."""


class Report(Protocol):
    """The counts of some runs; reports add up.

    Attributes:
      count: of what is searched for failures: images, runs.
    """

    @property
    def count(self) -> int: ...

    @property
    def failures(self) -> list[Any]: ...

    def add(self, other: Self) -> None:
        """Take another one in."""


R = TypeVar("R", bound=Report)


def in_parallel(
    function: Callable[..., T], jobs: Iterator[tuple[Any, ...]], processes: int
) -> Iterator[T]:
    """The results of all jobs, as they come; what has not begun is left out when it is closed.

    Args:
      processes: 1: in this one.
    """
    if processes == 1:
        for job in jobs:
            yield function(*job)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: set[Future[T]] = set()
        try:
            while True:
                # Two for each process, so that none waits for its next one.
                for job in islice(jobs, processes * 2 - len(running)):
                    running.add(pool.submit(function, *job))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in running:
                future.cancel()


def add_up(
    total: R, reports: Iterator[R], name: str, goal: int, failures_max: int, console: Console
) -> None:
    """Add reports to `total` and show failures as they come.

    Ends when there are `goal`, too many failures, no reports any more, or with Ctrl-C.
    """
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress, closing(reports):  # type: ignore[type-var]
        bar = progress.add_task("", total=goal)
        try:
            for report in reports:
                total.add(report)
                progress.advance(bar, report.count)
                for failure in report.failures:
                    progress.console.print(
                        failure.text(), highlight=False, markup=False, soft_wrap=True
                    )
                if total.count >= goal or len(total.failures) >= failures_max:
                    break
        except KeyboardInterrupt:
            progress.console.print("ended before it was through; what there is:")


def quiet() -> None:
    """No log lines: crashes are what this is about."""
    logging.getLogger("trocket").setLevel(logging.CRITICAL + 1)
