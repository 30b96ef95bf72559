"""Terminal output of `trocket interop`: the cells' names, and the outcome of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from ...interop.report.cells import Run, Verdict
from ...interop.report.text import SIGNS, duration, explained, printable

if TYPE_CHECKING:
    from rich.table import Table

    from ...interop.jobs import Job

COLOURS = {
    Verdict.PASSED: "green",
    Verdict.QUIRK: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.SKIPPED: "dim",
}


def print_list(jobs: Iterable[Job]) -> None:
    """Print the name of each cell, a line each."""
    for job in jobs:
        for cell in job.owed:
            typer.echo(printable(cell.name))


def print_outcome(run: Run) -> None:
    """Print failures in full, regressions against Apache's broker, the matrix and versions."""
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
        show("passed on Apache's broker, but not on trocket:", "bold")
        for cell in run.worse:
            show(f"    {printable(cell.name)}")
    console.print(_matrix(run))
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    show(f"versions: {printable(versions)}")
    counts = run.counts()
    verdicts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in Verdict)
    style = COLOURS[Verdict.FAILED] if run.failed else COLOURS[Verdict.PASSED]
    cells = "1 cell" if len(run.cells) == 1 else f"{len(run.cells):,} cells"
    show(f"{cells}: {verdicts}; {duration(run.seconds)}", style)


def _matrix(run: Run) -> Table:
    """Counts of cells by kind, broker and verdict."""
    from rich.table import Table
    from rich.text import Text

    counts = Counter((cell.kind, cell.broker, cell.verdict) for cell in run.cells)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("kind")
    table.add_column("broker")
    for verdict in Verdict:
        table.add_column(f"{SIGNS[verdict]} {verdict}", justify="right")
    for kind, broker in dict.fromkeys((cell.kind, cell.broker) for cell in run.cells):
        numbers = [counts[kind, broker, verdict] for verdict in Verdict]
        styles = [
            COLOURS[verdict] if counts[kind, broker, verdict] else "dim" for verdict in Verdict
        ]
        texts = [Text(f"{number:,}", style) for number, style in zip(numbers, styles, strict=True)]
        table.add_row(kind, Text(printable(broker)), *texts)
    return table
