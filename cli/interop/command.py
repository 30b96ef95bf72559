"""`trocket interop`: tests of trocket's and Apache's brokers with Apache's clients and tools.

The harness is the package `interop`, its runner is pytest (`interop/cases`); this module has the
flags, reports and exit statuses.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...common.terminal import EXIT_INTERRUPTED
from ...interop.report.cells import Kind, Run, Verdict
from ...interop.report.text import SIGNS, duration, explained, printable
from ..session import EXIT_FAILED, fail, usage
from .diff import diff
from .record import record

if TYPE_CHECKING:
    from rich.table import Table

    from ...interop.cases.call import Options
    from ...interop.jobs import Job
    from ...interop.providers import Wanted

# Terminal output of `trocket interop`: the cells' names, and the outcome of a run.

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


app = typer.Typer(
    no_args_is_help=True,
    help="Compare brokers with Apache's: clients, requests, files, mqadmin. Needs Java 17, Maven.",
)

app.command("record", epilog="Example: trocket interop record --namesrv 127.0.0.1:9876")(record)
app.command("diff", epilog="Example: trocket interop diff trocket apache-5.5.0")(diff)

PARALLEL_MAX = 64

Texts = list[str] | None
Select = Annotated[
    Texts,
    typer.Option(
        "--select", metavar="TEXT", help="Run only cells with TEXT in the name (repeatable)."
    ),
]
Kinds = Annotated[
    list[Kind] | None, typer.Option("--kind", help="Run only this kind (repeatable).")
]
Brokers = Annotated[
    Texts,
    typer.Option(
        "--broker",
        metavar="NAME_OR_URL",
        help="Test trocket, apache-VERSION, docker-VERSION or rocketmq://host:port (repeatable). "
        "Default: trocket and apache-5.5.0.",
    ),
]
Clients = Annotated[
    Texts, typer.Option("--client", metavar="NAME", help="Run scenarios with this client only.")
]
Faults = Annotated[
    Texts,
    typer.Option(
        "--fault",
        metavar="NAME",
        help="Run scenarios with this fault only: none, restart, kill, namesrv-gone, slow-network.",
    ),
]
Parallel = Annotated[
    int, typer.Option("--parallel", min=1, max=PARALLEL_MAX, help="Run this number of processes.")
]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report.")
]
Json = Annotated[
    Path | None, typer.Option("--results", metavar="FILE", help="Write the results, for `report`.")
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report (pytest-html).")
]
Markdown = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write docs/compatibility.md.")
]


@app.command("run", epilog="Example: trocket interop run --kind scenario --html matrix.html")
def interop_run(
    select: Select = None,
    kinds: Kinds = None,
    brokers: Brokers = None,
    clients: Clients = None,
    faults: Faults = None,
    parallel: Parallel = 2,
    is_fast: Annotated[bool, typer.Option("--fast", help="Skip slow cells.")] = False,
    junit: Junit = None,
    as_json: Json = None,
    html: Html = None,
    markdown: Markdown = None,
    is_list: Annotated[
        bool, typer.Option("--list", help="Print the cells' names and run nothing.")
    ] = False,
) -> None:
    """Run the chosen cells of the matrix against each broker, as one pytest test each.

    The exit status is 0 when no cell failed, 1 when one did, 2 for wrong usage. Ctrl-C ends it with
    130: it stops every process it started, and writes the reports up to that point.
    """
    wanted = _wanted(brokers, clients, faults, is_fast)
    chosen = list(dict.fromkeys(kinds or Kind))
    jobs = _find_jobs(chosen, wanted, select or [])
    if is_list:
        print_list(jobs)
        return
    _check_outputs(junit, as_json, html, markdown)
    from ...interop.cases.call import Options

    words = [f"--interop-kind={kind}" for kind in chosen]
    words += [f"--interop-broker={name}" for name in wanted.brokers]
    words += [f"--interop-client={name}" for name in wanted.clients or ()]
    words += [f"--interop-fault={name}" for name in wanted.faults or ()]
    words += [f"--interop-cell={text}" for text in select or ()]
    words += ["--interop-fast"] if is_fast else []
    groups = {job.group or job.name for job in jobs}
    run, was_stopped = _call(Options(words, min(parallel, len(groups)), junit, html))
    _write(run, as_json, markdown)
    print_outcome(run)
    if was_stopped:
        raise typer.Exit(EXIT_INTERRUPTED)
    if run.failed:
        raise typer.Exit(EXIT_FAILED)


@app.command("report", epilog="Example: trocket interop report run.json --html matrix.html")
def interop_report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN.json...", help="Files written by --json; the last result of a cell counts."
        ),
    ],
    html: Html = None,
    junit: Junit = None,
    markdown: Markdown = None,
) -> None:
    """Merge earlier runs into one report; without an output option, print the outcome."""
    run = Run.together([_read_run(path) for path in paths])
    _check_outputs(junit, html, markdown)
    if junit or html:
        from ...interop.cases.call import Options

        _call(Options([f"--interop-run={path.absolute()}" for path in paths], 1, junit, html))
    _write(run, None, markdown)
    if not (junit or html or markdown):
        print_outcome(run)


def _call(options: Options) -> tuple[Run, bool]:
    """Run the tests; an error of pytest itself ends the command."""
    from ...interop.cases.call import call

    try:
        return call(options)
    except RuntimeError as error:
        fail(str(error))


def _read_run(path: Path) -> Run:
    """Read a file written by --json; a missing or unreadable file ends the command."""
    try:
        return Run.from_json(path.read_bytes())
    except OSError as error:
        usage(f"cannot read {path}: {error.strerror}")
    except ValueError as error:
        usage(f"{path} is not a file written by `trocket interop run --json`: {error}")


def _wanted(
    brokers: Sequence[str] | None,
    clients: Sequence[str] | None,
    faults: Sequence[str] | None,
    is_fast: bool,
) -> Wanted:
    """The choice of peers, clients and faults; an unknown name ends the command."""
    from ...interop.peers import parse_peer
    from ...interop.process import PeerError
    from ...interop.providers import BROKERS, Wanted
    from ...interop.scenarios.faults import ALL_FAULTS
    from ...interop.scenarios.table import START_ORDER

    chosen = tuple(dict.fromkeys(brokers or BROKERS))
    try:
        for name in chosen:
            parse_peer(name)
    except PeerError as error:
        usage(str(error))
    for option, names, known in (
        ("--client", clients, START_ORDER),
        ("--fault", faults, ALL_FAULTS),
    ):
        for name in names or ():
            if name not in known:
                usage(f"{option}: unknown name {name!r}; choose from {', '.join(known)}")
    return Wanted(chosen, clients or None, faults or None, is_fast)


def _find_jobs(kinds: Sequence[Kind], wanted: Wanted, select: Sequence[str]) -> list[Job]:
    from ...interop.process import PeerError
    from ...interop.providers import find_jobs

    try:
        jobs = find_jobs(list(dict.fromkeys(kinds)), wanted, select)
    except PeerError as error:
        usage(str(error))
    if not jobs:
        wanted_text = f" with {' or '.join(map(repr, select))} in its name" if select else ""
        usage(f"no cell{wanted_text} matches the options; --list prints the names")
    return jobs


def _check_outputs(*paths: Path | None) -> None:
    """End the command before the run if an output's folder does not exist."""
    for path in filter(None, paths):
        if path.is_dir() or not path.absolute().parent.is_dir():
            usage(f"cannot write {path}: give a file in an existing folder")


def _write(run: Run, as_json: Path | None, markdown: Path | None) -> None:
    """Write the outputs that pytest does not write: the run as JSON, and the Markdown page."""
    from ...interop.report.markdown import to_markdown

    makers: Iterable[tuple[Path | None, Callable[[Run], bytes]]] = (
        (as_json, Run.to_json),
        (markdown, lambda run: to_markdown(run).encode()),
    )
    for path, make in makers:
        if path is None:
            continue
        try:
            path.write_bytes(make(run))
        except OSError as error:
            usage(f"cannot write {path}: {error.strerror}")
        sys.stderr.write(f"written: {path}\n")
