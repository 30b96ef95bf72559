"""`trocket interop diff`: a comparison of two clusters' answers to the same requests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ...interop.report.cells import Cell, Verdict
from ..session import EXIT_FAILED, AsJson, usage

if TYPE_CHECKING:
    from ...interop.jobs import Job


def diff(
    first: Annotated[
        str, typer.Argument(metavar="FIRST", help="The cluster under test.")
    ] = "trocket",
    second: Annotated[
        str, typer.Argument(metavar="SECOND", help="The reference cluster.")
    ] = "apache-5.5.0",
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="TEXT", help="Send only requests with TEXT in the name."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send the same requests to two clusters and compare their answers, field by field.

    With apache-5.5.0 as SECOND also gRPC calls, to its broker with a proxy in its process.

    The exit status is 0 when all differences are known ones, 1 when there is another, 2 for wrong
    usage.
    """
    from ...interop.guard import temporary_folder

    chosen = _jobs(first, second, select or [])
    cells: list[Cell] = []
    for job in chosen:
        with temporary_folder() as folder:
            job.play(job.owed, folder, cells.append)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(cells), indent=1) + b"\n")
    else:
        print_cells(cells)
    if any(cell.verdict is Verdict.FAILED for cell in cells):
        raise typer.Exit(EXIT_FAILED)


def _jobs(first: str, second: str, select: Sequence[str]) -> list[Job]:
    """The jobs to run, without and with accounts, and by gRPC; an unknown name ends the command."""
    from ...interop.grpc_differ.differ import jobs as grpc_jobs
    from ...interop.peers import parse_peer
    from ...interop.process import PeerError
    from ...interop.wire_differ.differ import accounts_jobs, jobs

    try:
        parse_peer(first), parse_peer(second)
    except PeerError as error:
        usage(str(error))
    found = [*jobs(first, [second]), *accounts_jobs(first, [second])]
    found += grpc_jobs([first], [second])
    if not select:
        return found
    some = (
        job.selected(lambda cell: any(text in cell.feature for text in select)) for job in found
    )
    chosen = [job for job in some if job is not None]
    if not chosen:
        usage(
            f"no request has {' or '.join(map(repr, select))} in its name; see `interop run --list`"
        )
    return chosen


def print_cells(cells: Sequence[Cell]) -> None:
    """Print a table of the requests, the unknown differences in full, and the counts."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    colours = {Verdict.PASSED: "green", Verdict.QUIRK: "yellow", Verdict.FAILED: "red"}
    table = Table("request", "verdict", "detail")
    for cell in cells:
        colour = colours.get(cell.verdict, "dim")
        first_line = cell.detail.partition("\n")[0]
        verdict = f"[{colour}]{cell.verdict.value}[/]"
        table.add_row(escape(cell.feature), verdict, escape(first_line))
    console.print(table)
    for cell in cells:
        if cell.verdict is Verdict.FAILED:
            lines = (cell.feature, *cell.detail.splitlines(), *cell.frames)
            console.print("\n  ".join(lines), markup=False, highlight=False)
    for line in summary(cells):
        console.print(line, markup=False, highlight=False)


def summary(cells: Sequence[Cell]) -> list[str]:
    """The counts of verdicts and of covered request codes, a line each."""
    from ...interop.wire_differ.catalogue import catalogue, coverage
    from ..protocol_table import served_codes

    verdicts = {verdict: sum(cell.verdict is verdict for cell in cells) for verdict in Verdict}
    covered = coverage(catalogue())
    lines = [", ".join(f"{count} {verdict.value}" for verdict, count in verdicts.items())]
    for server, codes in served_codes().items():
        # Covered by real clients and Apache's of 4.2.0 instead; by Apache's brokers and mqadmin.
        if server in ("filter server", "controller"):
            continue
        good = sum(covered[server, code, False] > 0 for code in codes)
        bad = sum(covered[server, code, True] > 0 for code in codes)
        lines.append(
            f"{server}: of {len(codes)} served codes, {good} get valid requests "
            f"and {bad} invalid ones"
        )
    return lines
