"""Terminal output of `trocket store`: tables, lines, a progress bar, errors of one line."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ..common.terminal import say, time_text
from .error_lines import say_error

if TYPE_CHECKING:
    from ..remoting.message import MessageExt
    from ..store.offline.findings import Finding
    from ..store.offline.plan import Plan
    from ..store.offline.report import Report
    from ..store.offline.store_diff import StoreDifference

LOST_PROPERTY = "TROCKET_LOST"
"""Property of the placeholders that a repair writes."""

PROGRAM = "trocket store"

BODY_PREVIEW_COUNT = 60
"""Characters of a body in a line."""


def usage(message: str) -> NoReturn:
    """Report wrong usage in one line, and end with status 2."""
    say_error(message, program=PROGRAM)
    raise typer.Exit(2)


@contextlib.contextmanager
def refused(status: int = 2) -> Iterator[None]:
    """Turn a StoreError into one line and an exit status."""
    from ..disk.errors import StoreError

    try:
        yield
    except StoreError as error:
        say_error(str(error), program=PROGRAM)
        raise typer.Exit(status) from error


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(label, total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield progress


def print_report(report: Report, limit: int) -> None:
    """Print a check's counts and its findings, the worst first, at most `limit`."""
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=True, highlight=False)
    counts = report.counts
    state = "live" if report.is_live else "closed" if report.is_clean_exit else "not closed cleanly"
    table = Table("", "", show_header=False, title=f"{report.layout.root} ({state})")
    table.add_row(
        "commit log",
        f"{counts['records']:,} records in {counts['logFiles']:,} files, "
        f"{report.log_start:,} to {report.log_end:,}",
    )
    table.add_row("holes", f"{counts['holes']:,}, {counts['messagesLost']:,} messages lost")
    table.add_row("consume queues", f"{counts['queues']:,} with {counts['units']:,} units compared")
    if counts["batchQueues"]:
        table.add_row(
            "batch queues", f"{counts['batchQueues']:,} with {counts['batchUnits']:,} units"
        )
    table.add_row(
        "index", f"{counts['indexFiles']:,} files with {counts['indexEntries']:,} entries"
    )
    table.add_row("config", f"{counts['configFiles']:,} files")
    console.print(table)
    worst_first = sorted(report.findings.items, key=lambda finding: -finding.severity)
    for finding in worst_first[:limit]:
        console.print(_finding_text(finding), markup=False)
    more = report.findings.total - min(len(worst_first), limit)
    if more > 0:
        console.print(f"… and {more:,} more (--limit, or --json)")
    console.print("clean" if report.is_clean else "NOT CLEAN", markup=False)


def _finding_text(finding: Finding) -> str:
    place = f"{finding.path}" + (f" at {finding.offset}" if finding.offset >= 0 else "")
    text = f"{finding.severity.name} {finding.kind}: {place}\n    {finding.what}"
    return f"{text}\n    -> {finding.advice}" if finding.advice else text


def print_plan(path: str, plan: Plan) -> None:
    """Print the steps of a repair; what it cannot repair goes to standard error."""
    if not plan.steps and not plan.problems:
        typer.echo(f"{path}: nothing to do")
    for number, step in enumerate(plan.steps, 1):
        typer.echo(f"{number}. {step.kind}: {step.path}\n   {step.what}")
    for problem in plan.problems:
        say(f"trocket store: {problem}")


def print_difference(found: StoreDifference, *, as_json: bool) -> None:
    """Print what a comparison of two stores found."""
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "start": found.start,
                    "end": found.end,
                    "ends": list(found.ends),
                    "records": found.record_count,
                    "logOffset": None if found.log_offset < 0 else found.log_offset,
                    "queues": [each._asdict() for each in found.queues],
                    "queueCount": found.queue_count,
                }
            )
        )
        return
    typer.echo(
        f"{found.record_count} records are equal, from physical offset {found.start} to "
        f"{found.end}; the logs end at {found.ends[0]} and {found.ends[1]}"
    )
    if found.log_offset >= 0:
        typer.echo(f"the logs differ from {found.log_offset} on")
    for topic, queue_id, offset in found.queues:
        typer.echo(f"the queue {topic} {queue_id} differs from {offset} on")
    if found.queue_count > len(found.queues):
        typer.echo(f"{found.queue_count} queues differ in all")


def message_line(record: MessageExt, *, with_body: bool) -> str:
    """One message: physical offset, size, store time, queue and offset, tags, keys, id, body."""
    from ..store.offline.selection import readable_body

    parts = [
        f"{record.physical_offset:>12}",
        f"{record.store_size:>7}",
        time_text(record.store_timestamp_ms),
        f"{record.topic} {record.queue_id} @{record.queue_offset}",
    ]
    if LOST_PROPERTY in record.properties:
        parts.append("LOST: a placeholder")
    if record.tags:
        parts.append(f"tags={record.tags}")
    if record.keys:
        parts.append(f"keys={record.keys}")
    if record.unique_key:
        parts.append(f"id={record.unique_key}")
    if with_body:
        parts.append(_preview(readable_body(record, inflate=True)[0]))
    return "  ".join(parts)


def _preview(body: bytes) -> str:
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        shown = body[: BODY_PREVIEW_COUNT // 2].hex(" ")
        return f"({len(body)} bytes) {shown}{' …' if len(body) > BODY_PREVIEW_COUNT // 2 else ''}"
    return repr(text[:BODY_PREVIEW_COUNT]) + ("…" if len(text) > BODY_PREVIEW_COUNT else "")


def row_line(row: dict[str, Any], *, is_flat: bool) -> str:
    """One row of a dump: on one line when it is flat, else as indented JSON."""
    if is_flat:
        return "  ".join(f"{name}={value}" for name, value in row.items())
    return json.dumps(row, indent=2, ensure_ascii=False)
