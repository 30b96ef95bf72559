"""How `trocket interop` shows a run: a live table on a terminal, lines elsewhere, the outcome."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from ..interop.report.cells import Cell, Kind, Run, Verdict
from ..interop.report.text import SIGNS, duration, explained, printable

if TYPE_CHECKING:
    from rich.console import Group

    from ..interop.jobs import Job
    from ..interop.runner import Watcher

FAILURES_SHOWN_MAX = 5
FRESH_PER_S = 4

COLOURS = {
    Verdict.PASSED: "green",
    Verdict.QUIRK: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.SKIPPED: "dim",
}


def print_list(jobs: Iterable[Job]) -> None:
    """Every cell's name, a line each."""
    for job in jobs:
        for cell in job.owed:
            typer.echo(printable(cell.name))


@contextlib.contextmanager
def make_watcher(jobs: Sequence[Job]) -> Iterator[Watcher]:
    """What shows progress while it is entered: on standard error, as fits what that is."""
    if not sys.stderr.isatty():
        yield PlainWatcher(jobs)
        return
    from rich.console import Console
    from rich.live import Live

    watcher = LiveWatcher(jobs)
    with Live(
        get_renderable=watcher.render,
        console=Console(stderr=True),
        refresh_per_second=FRESH_PER_S,
        transient=True,
    ):
        yield watcher


class PlainWatcher:
    """A line when a job begins and ends, and for each failure."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._total = len(jobs)
        self._ended = 0
        self._verdicts: Counter[Verdict] = Counter()

    def job_started(self, job: Job) -> None:
        """A job begins."""
        cells = "1 cell" if len(job.owed) == 1 else f"{len(job.owed):,} cells"
        _say(f"began {printable(job.name)}: {cells}")

    def cell_told(self, cell: Cell) -> None:
        """A cell is known."""
        self._verdicts[cell.verdict] += 1
        if cell.verdict is Verdict.FAILED:
            _say(f"FAILED {printable(cell.name)}: {_first_line(cell.detail)}")

    def job_ended(self, job: Job, seconds: float) -> None:
        """A job has ended."""
        self._ended += 1
        so_far = ", ".join(
            f"{self._verdicts[verdict]:,} {verdict}"
            for verdict in Verdict
            if self._verdicts[verdict]
        )
        place = f"{self._ended} of {self._total}"
        _say(f"ended {printable(job.name)} after {duration(seconds)} ({place}); {so_far or 'none'}")


class LiveWatcher:
    """Counts by kind and broker, what is under way, the last failures; drawn anew all the time."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._lock = threading.Lock()
        self._began_s = time.monotonic()
        self._job_count = len(jobs)
        self._ended = 0
        self._under_way: dict[str, float] = {}
        self._failures: deque[Cell] = deque(maxlen=FAILURES_SHOWN_MAX)
        owed = {cell.name: cell for job in jobs for cell in job.owed}
        self._owed = Counter((cell.kind, cell.broker) for cell in owed.values())
        self._verdicts: dict[tuple[Kind, str], Counter[Verdict]] = {
            place: Counter() for place in self._owed
        }

    def job_started(self, job: Job) -> None:
        """A job begins."""
        with self._lock:
            self._under_way[job.name] = time.monotonic()

    def cell_told(self, cell: Cell) -> None:
        """A cell is known."""
        with self._lock:
            counts = self._verdicts.setdefault((cell.kind, cell.broker), Counter())
            counts[cell.verdict] += 1
            if cell.verdict is Verdict.FAILED:
                self._failures.append(cell)

    def job_ended(self, job: Job, seconds: float) -> None:
        """A job has ended."""
        with self._lock:
            self._under_way.pop(job.name, None)
            self._ended += 1

    def render(self) -> Group:
        """What is shown now."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now_s = time.monotonic()
        with self._lock:
            table = Table(box=None, pad_edge=False, header_style="bold")
            table.add_column("kind")
            table.add_column("broker")
            for verdict in Verdict:
                table.add_column(f"{SIGNS[verdict]} {verdict}", justify="right")
            table.add_column("left", justify="right")
            for (kind, broker), counts in self._verdicts.items():
                left = max(0, self._owed[kind, broker] - counts.total())
                numbers = [
                    Text(f"{counts[verdict]:,}", COLOURS[verdict] if counts[verdict] else "dim")
                    for verdict in Verdict
                ]
                table.add_row(kind, Text(broker), *numbers, f"{left:,}" if left else "")
            running = [
                Text(f"  {printable(name)}  {duration(now_s - began_s)}", "cyan")
                for name, began_s in self._under_way.items()
            ]
            failures = [
                Text(f"  {SIGNS[Verdict.FAILED]} {printable(cell.name)}: ", "red").append(
                    _first_line(cell.detail), "default"
                )
                for cell in self._failures
            ]
            jobs = f"{self._ended} of {self._job_count} jobs, {duration(now_s - self._began_s)}"
        lines: list[Table | Text] = [table, Text(), Text(jobs, "bold"), *running]
        if failures:
            lines += [Text("last failures", "bold"), *failures]
        for line in lines:
            if isinstance(line, Text):
                line.no_wrap, line.overflow = True, "ellipsis"
        return Group(*lines)


def print_outcome(run: Run) -> None:
    """Versions, failures in full, what is worse than with Apache, the counts; standard output."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)

    def show(text: str, style: str = "") -> None:
        console.print(Text(text, style))

    for cell in run.failed:
        show(f"{SIGNS[Verdict.FAILED]} {printable(cell.name)}", COLOURS[Verdict.FAILED])
        for line in explained(cell).splitlines():
            show(f"    {line}")
    if run.worse:
        show("passed on Apache's broker, not on ours:", "bold")
        for cell in run.worse:
            show(f"    {printable(cell.name)}")
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    show(f"versions: {printable(versions)}")
    counts = run.counts()
    said = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in Verdict)
    style = COLOURS[Verdict.FAILED] if run.failed else COLOURS[Verdict.PASSED]
    cells = "1 cell" if len(run.cells) == 1 else f"{len(run.cells):,} cells"
    show(f"{cells}: {said}; {duration(run.seconds)}", style)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _first_line(text: str) -> str:
    return printable(text).partition("\n")[0]
