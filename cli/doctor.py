"""`trocket doctor`: looks at a cluster as a client does, and says what is wrong and what to do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..common.terminal import plain, show
from .completion import profile_names
from .session import (
    EXIT_FAILED,
    SHARED,
    Shared,
    chosen_url,
    emit,
    new_client,
    run,
    usage,
)

if TYPE_CHECKING:
    from rich.text import Text

    from ..operations.doctor.checks import Result
    from ..operations.doctor.collect import Progress

COLUMNS = ("Check", "Result", "What", "What to do")

TABLE_WIDTH_MIN = 80
"""Columns of a terminal below which a table would break names."""

_STYLES = {"ok": "green", "skipped": "dim", "warning": "yellow", "problem": "bold red"}


def doctor(
    context: typer.Context,
    cluster: Annotated[
        str,
        typer.Argument(
            metavar="[URL]",
            help="The name servers, as --url has them.",
            show_default=False,
            autocompletion=profile_names,
        ),
    ] = "",
    shared: Shared = SHARED,
) -> None:
    """Look at a cluster as a client does; say what is wrong and what to do.

    Checks addresses, clocks, versions, slaves, disks, sends, health, topics, subscriptions and
    consumers. Changes nothing, stores no message. Status 1 if there is a problem; warnings alone
    are status 0.
    """
    if cluster:
        source = context.get_parameter_source("url")
        if source is not None and source.name == "COMMANDLINE":
            usage("give the name servers once: as URL or by --url")
        shared = shared._replace(url=chosen_url(cluster) or cluster)

    async def main() -> list[Result]:
        from ..operations.doctor.checks import judge
        from ..operations.doctor.collect import collect

        async with new_client(shared.url, shared.timeout_s) as client:
            with _progress() as progress:
                return judge(await collect(client, progress))

    results = run(main)
    from ..operations.doctor.findings import Severity

    worst = max(each.severity for each in results)
    if shared.as_json:
        emit(_tree(shared.url, results, worst.text))
    elif sys.stdout.isatty():
        _print(results)
    else:
        show(COLUMNS, _rows(results))
    if worst is Severity.PROBLEM:
        raise typer.Exit(EXIT_FAILED)


class Line(NamedTuple):
    """What is shown of a finding; of a check without one, its note."""

    result: str
    text: str
    advice: str


def _lines(result: Result) -> list[Line]:
    if not result.findings:
        return [Line(result.severity.text, result.note, "")]
    return [Line(each.severity.text, each.text, each.advice) for each in result.findings]


def _rows(results: list[Result]) -> list[list[str]]:
    return [[result.check, *line] for result in results for line in _lines(result)]


def _print(results: list[Result]) -> None:
    """Print a table on a terminal, with a line after each check; on a narrow one, a list."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if console.width < TABLE_WIDTH_MIN:
        console.print(*map(_paragraph, _rows(results)), sep="\n", soft_wrap=True)
        return
    table = Table(*COLUMNS[:2], show_lines=False)
    table.add_column("What", overflow="fold")
    for result in results:
        for number, line in enumerate(_lines(result)):
            text = Text(plain(line.text))
            if line.advice:
                text.append(f"\n{plain(line.advice)}", style="italic")
            name = result.check if number == 0 else ""
            table.add_row(name, Text(line.result, style=_STYLES[line.result]), text)
    console.print(table)


def _paragraph(row: Sequence[str]) -> Text:
    """A finding without a table, which the terminal wraps."""
    from rich.text import Text

    check, word, *texts = row
    made = Text(f"{check}: ")
    made.append(word, style=_STYLES[word])
    for text in filter(None, texts):
        made.append(f"\n  {plain(text)}")
    return made


def _tree(url: str, results: list[Result], worst: str) -> dict[str, object]:
    from ..remoting.cluster_url import parse_url

    return {
        "nameServers": list(parse_url(url).name_servers),
        "result": worst,
        "checks": [
            {
                "check": result.check,
                "result": result.severity.text,
                "findings": [line._asdict() for line in _lines(result)],
            }
            for result in results
        ],
    }


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Bars on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield progress
