"""`trocket interop`: how trocket, and Apache's own brokers, do with Apache's clients and tools.

The harness is the package `interop`, its runner is pytest (`interop/cases`); here are flags,
reports and exit statuses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import EXIT_INTERRUPTED
from ..interop.report.cells import Kind, Run
from .interop_diff import diff
from .interop_record import record
from .interop_view import print_list, print_outcome
from .session import EXIT_FAILED, fail, usage

if TYPE_CHECKING:
    from ..interop.cases.call import Options
    from ..interop.jobs import Job
    from ..interop.providers import Wanted

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
        "--select", "-s", metavar="TEXT", help="Only cells with this in their names; several: any."
    ),
]
Kinds = Annotated[list[Kind] | None, typer.Option("--kind", help="Only these; else all.")]
Brokers = Annotated[
    Texts,
    typer.Option(
        "--broker",
        metavar="NAME_OR_URL",
        help="trocket, apache-VERSION, docker-VERSION, rocketmq://host:port; "
        "trocket and apache-5.5.0 unless said.",
    ),
]
Clients = Annotated[
    Texts, typer.Option("--client", metavar="NAME", help="Clients of scenarios; else all.")
]
Faults = Annotated[
    Texts,
    typer.Option(
        "--fault",
        metavar="NAME",
        help="Faults of scenarios: none, restart, kill, namesrv-gone, slow-network; else all.",
    ),
]
Parallel = Annotated[
    int, typer.Option("--parallel", min=1, max=PARALLEL_MAX, help="Test processes at most.")
]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report.")
]
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the run itself, for `report`.")
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page (pytest-html).")
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
    is_fast: Annotated[bool, typer.Option("--fast", help="Leave out what takes long.")] = False,
    junit: Junit = None,
    as_json: Json = None,
    html: Html = None,
    markdown: Markdown = None,
    is_list: Annotated[
        bool, typer.Option("--list", help="Print the cells' names, and play nothing.")
    ] = False,
) -> None:
    """Play what is asked for against each broker, a test of pytest for each cell of the matrix.

    Ends with 0 when no cell failed, 1 when one did, 2 for wrong usage. Ctrl-C ends it with 130: all
    that was started is stopped, and reports are written as far as it went.
    """
    wanted = _wanted(brokers, clients, faults, is_fast)
    chosen = list(dict.fromkeys(kinds or Kind))
    jobs = _find_jobs(chosen, wanted, select or [])
    if is_list:
        print_list(jobs)
        return
    _check_places(junit, as_json, html, markdown)
    from ..interop.cases.call import Options

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
            metavar="RUN.json...", help="What --json wrote; several: of a cell the last one counts."
        ),
    ],
    html: Html = None,
    junit: Junit = None,
    markdown: Markdown = None,
) -> None:
    """Make the pages of earlier runs again, as of one; without any, print how it ended."""
    run = Run.together([_read_run(path) for path in paths])
    _check_places(junit, html, markdown)
    if junit or html:
        from ..interop.cases.call import Options

        _call(Options([f"--interop-run={path.absolute()}" for path in paths], 1, junit, html))
    _write(run, None, markdown)
    if not (junit or html or markdown):
        print_outcome(run)


def _call(options: Options) -> tuple[Run, bool]:
    """Run the tests. What pytest cannot do ends the command."""
    from ..interop.cases.call import call

    try:
        return call(options)
    except RuntimeError as error:
        fail(str(error))


def _read_run(path: Path) -> Run:
    """What --json wrote. A file that is not there, or is none, ends the command."""
    try:
        return Run.from_json(path.read_bytes())
    except OSError as error:
        usage(f"{path}: cannot be read: {error.strerror}")
    except ValueError as error:
        usage(f"{path} is no run that --json wrote: {error}")


def _wanted(
    brokers: Sequence[str] | None,
    clients: Sequence[str] | None,
    faults: Sequence[str] | None,
    is_fast: bool,
) -> Wanted:
    """What is to be played. Names that are none end the command."""
    from ..interop.peers import parse_peer
    from ..interop.process import PeerError
    from ..interop.providers import BROKERS, Wanted
    from ..interop.scenarios.faults import ALL_FAULTS
    from ..interop.scenarios.table import CLIENTS

    chosen = tuple(dict.fromkeys(brokers or BROKERS))
    try:
        for name in chosen:
            parse_peer(name)
    except PeerError as error:
        usage(str(error))
    for option, names, known in (
        ("--client", clients, CLIENTS),
        ("--fault", faults, ALL_FAULTS),
    ):
        for name in names or ():
            if name not in known:
                usage(f"{option}: there is no {name!r}; there are {', '.join(known)}")
    return Wanted(chosen, clients or None, faults or None, is_fast)


def _find_jobs(kinds: Sequence[Kind], wanted: Wanted, select: Sequence[str]) -> list[Job]:
    from ..interop.process import PeerError
    from ..interop.providers import find_jobs

    try:
        jobs = find_jobs(list(dict.fromkeys(kinds)), wanted, select)
    except PeerError as error:
        usage(str(error))
    if not jobs:
        what = f"no cell's name has {' or '.join(map(repr, select))}" if select else "no cell"
        usage(f"{what} in what was asked for; --list tells the names")
    return jobs


def _check_places(*paths: Path | None) -> None:
    """A folder that is not there ends the command before the run."""
    for path in filter(None, paths):
        if path.is_dir() or not path.absolute().parent.is_dir():
            usage(f"{path}: no file can be written there")


def _write(run: Run, as_json: Path | None, markdown: Path | None) -> None:
    """Write what is not pytest's: the run itself, and the page of the documentation."""
    from ..interop.report.markdown import to_markdown

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
            usage(f"{path}: cannot be written: {error.strerror}")
        sys.stderr.write(f"written: {path}\n")
