"""`trocket interop`: how trocket, and Apache's own brokers, do with Apache's clients and tools.

The harness is the package `interop`; here are flags, progress, reports and exit statuses.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import EXIT_INTERRUPTED
from ..interop.report.cells import Kind, Run
from .interop_diff import diff
from .interop_record import record
from .interop_view import make_watcher, print_list, print_outcome
from .session import EXIT_FAILED, usage

if TYPE_CHECKING:
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
    int, typer.Option("--parallel", min=1, max=PARALLEL_MAX, help="So many jobs at a time.")
]
Junit = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report.")
]
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the run itself, for `report`.")
]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page.")]
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
    is_list: Annotated[
        bool, typer.Option("--list", help="Print the cells' names, and play nothing.")
    ] = False,
) -> None:
    """Play what is asked for against each broker, and report it as a matrix of cells.

    Ends with 0 when no cell failed, 1 when one did, 2 for wrong usage. Ctrl-C ends it with 130: all
    that was started is stopped, and reports are written as far as it went.
    """
    wanted = _wanted(brokers, clients, faults, is_fast)
    jobs = _find_jobs(kinds or list(Kind), wanted, select or [])
    if is_list:
        print_list(jobs)
        return
    writers = _writers(junit=junit, as_json=as_json, html=html)
    run, was_stopped = _play(jobs, wanted, parallel)
    for write in writers:
        write(run)
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
    writers = _writers(junit=junit, html=html, markdown=markdown)
    for write in writers:
        write(run)
    if not writers:
        print_outcome(run)


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


def _play(jobs: Sequence[Job], wanted: Wanted, parallel: int) -> tuple[Run, bool]:
    """Play the jobs; the run, and whether a signal ended it early."""
    from ..interop.guard import temporary_folder
    from ..interop.runner import Runner
    from ..interop.versions import collect_versions

    began_s = time.monotonic()
    started_at = datetime.fromtimestamp(_wall_s(), UTC).isoformat(timespec="seconds")
    owed = [cell for job in jobs for cell in job.owed]
    versions = collect_versions(wanted.brokers, owed)
    with temporary_folder() as folder, make_watcher(jobs) as watcher:
        runner = Runner(jobs, folder=folder, parallel=parallel, watcher=watcher)
        with _stopped_by_signals(runner.stop):
            cells = runner.run()
    seconds = time.monotonic() - began_s
    return Run(started_at.replace("+00:00", "Z"), seconds, versions, cells), runner.was_stopped


def _wall_s() -> float:
    from ..store.clock import SystemClock

    return SystemClock().wall_ms() / 1000


@contextlib.contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """While it is entered, SIGINT and SIGTERM end the run instead of the process."""

    def handle(number: int, frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _writers(
    *,
    junit: Path | None = None,
    as_json: Path | None = None,
    html: Path | None = None,
    markdown: Path | None = None,
) -> list[Callable[[Run], None]]:
    """What writes each report; a folder that is not there ends the command before the run."""
    from ..interop.report.html import to_html
    from ..interop.report.junit import to_junit
    from ..interop.report.markdown import to_markdown

    makers: list[tuple[Path | None, Callable[[Run], bytes]]] = [
        (junit, to_junit),
        (as_json, Run.to_json),
        (html, to_html),
        (markdown, lambda run: to_markdown(run).encode()),
    ]
    wanted = [(path, make) for path, make in makers if path is not None]
    for path, _ in wanted:
        if path.is_dir() or not path.absolute().parent.is_dir():
            usage(f"{path}: no file can be written there")
    return [_writer(path, make) for path, make in wanted]


def _writer(path: Path, make: Callable[[Run], bytes]) -> Callable[[Run], None]:
    def write(run: Run) -> None:
        try:
            path.write_bytes(make(run))
        except OSError as error:
            usage(f"{path}: cannot be written: {error.strerror}")
        sys.stderr.write(f"written: {path}\n")

    return write
