"""`trocket store`: fsck, dump, export and repair of a store that no broker has open.

What they do is in `store/offline`; here are flags, tables, progress bars and exit statuses.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.terminal import say
from .session import read_time
from .store_view import (
    message_line,
    print_plan,
    print_report,
    progress_bar,
    refused,
    row_line,
    usage,
)

if TYPE_CHECKING:
    from ..store.offline.log_walk import LogWalk
    from ..store.offline.opening import Opened
    from ..store.offline.selection import Selection

app = typer.Typer(
    no_args_is_help=True,
    help="Check, list, export and repair a store: trocket's or Apache's, with no broker running.",
)

StorePath = Annotated[
    str, typer.Argument(metavar="PATH", help="The store: the folder of storePathRootDir.")
]
Conf = Annotated[
    str,
    typer.Option(
        "-c",
        "--conf",
        metavar="FILE",
        help="The store's broker.conf, for storePathCommitLog and file sizes. Without it sizes "
        "are read off the files.",
    ),
]
Live = Annotated[
    bool,
    typer.Option("--live", help="Look even while a broker runs, up to where its queues reach."),
]
AsJson = Annotated[bool, typer.Option("--json", help="For scripts: JSON on standard output.")]
Topic = Annotated[str, typer.Option("--topic", help="Only this topic.")]
Queue = Annotated[int | None, typer.Option("--queue", min=0, help="Only this queue id.")]
Key = Annotated[str, typer.Option("--key", help="Only messages with this key or unique key.")]
FromOffset = Annotated[
    int | None,
    typer.Option(
        "--from-offset",
        min=0,
        help="From this offset on: of the queue with --queue, else physical.",
    ),
]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", min=0, help="Up to this offset, which is not included.")
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="Stored at or after: ISO 8601, ms since 1970, or 2h (ago)."
    ),
]
Until = Annotated[str, typer.Option("--until", metavar="TIME", help="Stored at or before.")]
Limit = Annotated[int | None, typer.Option("--limit", min=0, help="So many at most.")]


class What(StrEnum):
    """What `dump` lists."""

    LOG = "log"
    QUEUE = "queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    CONFIG = "config"
    SUMMARY = "summary"


class ExportFormat(StrEnum):
    """What `export` writes."""

    JSONL = "jsonl"
    JSON = "json"
    PARQUET = "parquet"


class BodyForm(StrEnum):
    """How bodies are written."""

    AUTO = "auto"
    TEXT = "text"
    BASE64 = "base64"
    NONE = "none"


class RebuildWhat(StrEnum):
    """What `repair` builds again."""

    DAMAGED = "damaged"
    ALL = "all"


@app.command("fsck")
def fsck(
    path: StorePath,
    conf: Conf = "",
    live: Live = False,
    as_json: AsJson = False,
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Findings listed at most (not with --json).")
    ] = 50,
) -> None:
    """Check a whole store, and change nothing.

    Walks the commit log (every record's sizes, checksums and place), and compares every consume
    queue, index entry, the checkpoint and config/*.json with it.

    Ends with 0 when nothing is wrong (warnings are what the broker's next start puts right), 1 with
    errors or lost messages, 2 when the store cannot be read.
    """
    from ..store.offline.fsck import check_store
    from ..store.offline.read_only import ReadOnlyDisk

    with refused(), progress_bar("checking") as progress:
        report = check_store(
            ReadOnlyDisk(), _absolute(path), conf=_conf(conf), live=live, progress=progress
        )
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
    else:
        print_report(report, limit)
    raise typer.Exit(0 if report.is_clean else 1)


@app.command("dump")
def dump(
    path: StorePath,
    what: Annotated[What, typer.Option("--what", help="What to list.")] = What.LOG,
    conf: Conf = "",
    live: Live = False,
    as_json: AsJson = False,
    topic: Topic = "",
    queue: Queue = None,
    key: Key = "",
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    since: Since = "",
    until: Until = "",
    limit: Limit = None,
    body: Annotated[
        bool, typer.Option("--body", help="Show bodies: text, or hex when they are none.")
    ] = False,
) -> None:
    """List what a store holds: messages, queue units, index entries, checkpoint, config, a summary.

    With --json a JSON object a line, with all fields; properties are an object, a body is `body`
    (text) or `bodyBase64`. Damaged places are passed over and counted on standard error; the exit
    status is then 1.
    """
    selection = _selection(
        topic=topic, queue=queue, key=key, from_offset=from_offset, to_offset=to_offset,
        since=since, until=until, limit=limit,
    )  # fmt: skip
    with refused(), _opened(path, conf, live) as store:
        if what is What.LOG:
            raise typer.Exit(_dump_log(store, selection, as_json=as_json, body=body))
        for row in _rows(store, what, selection):
            typer.echo(
                json.dumps(row)
                if as_json
                else row_line(row, is_flat=what in (What.QUEUE, What.INDEX))
            )


@app.command("export")
def export(
    path: StorePath,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where to write; - is standard output."
        ),
    ] = "-",
    form: Annotated[
        ExportFormat, typer.Option("--format", help="parquet needs pyarrow.")
    ] = ExportFormat.JSONL,
    conf: Conf = "",
    live: Live = False,
    topic: Topic = "",
    queue: Queue = None,
    key: Key = "",
    from_offset: FromOffset = None,
    to_offset: ToOffset = None,
    since: Since = "",
    until: Until = "",
    limit: Limit = None,
    body: Annotated[
        BodyForm, typer.Option("--body", help="auto: text where it is UTF-8, else base64.")
    ] = BodyForm.AUTO,
    decompress: Annotated[
        bool, typer.Option("--decompress/--as-stored", help="Decompress bodies.")
    ] = True,
) -> None:
    """Write messages in a form that other programs read, one after the other as they were stored.

    A file appears whole or not at all. Damaged places are passed over and counted on standard
    error; the exit status is then 1.
    """
    selection = _selection(
        topic=topic, queue=queue, key=key, from_offset=from_offset, to_offset=to_offset,
        since=since, until=until, limit=limit,
    )  # fmt: skip
    with refused(), _opened(path, conf, live) as store:
        status = _export(store, selection, output, form, body, inflate=decompress)
    raise typer.Exit(status)


@app.command("repair")
def repair(
    path: StorePath,
    into: Annotated[
        str,
        typer.Option("--into", metavar="NEWDIR", help="Repair a copy, made there (sparse files)."),
    ] = "",
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Repair the store itself; needs --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --in-place: really.")] = False,
    no_backup: Annotated[
        bool,
        typer.Option("--no-backup", help="With --in-place: do not keep PATH.before-repair."),
    ] = False,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip", help="Holes in the log: placeholders for lost messages, keep all others."
        ),
    ] = False,
    cut: Annotated[
        bool, typer.Option("--cut", help="Holes in the log: give up all that follows the first.")
    ] = False,
    rebuild: Annotated[
        RebuildWhat, typer.Option("--rebuild", help="Queues and index to build again.")
    ] = RebuildWhat.DAMAGED,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    conf: Conf = "",
    as_json: AsJson = False,
) -> None:
    """Repair a store: on a copy (--into NEWDIR), or in place with --yes.

    Zeros what a torn write left behind the log's end, fills holes (--skip) or ends the log there
    (--cut), builds queues and index again from the log, takes config files from their .bak, and
    leaves a store that was closed cleanly. The plan is said first.

    Ends with 0 when the store is clean afterwards (with --dry-run: when there is nothing to do), 1
    when not or when the plan could not be carried out, 2 when there is no plan that can be.
    """
    if skip and cut:
        usage("--skip and --cut exclude each other")
    if not dry_run and bool(into) == in_place:
        usage("say --into NEWDIR to repair a copy, or --in-place --yes (or --dry-run)")
    if in_place and not yes and not dry_run:
        usage("--in-place changes the store itself: say --yes, too, or use --into NEWDIR")
    _repair(
        _absolute(path),
        into=_absolute(into) if into else "",
        keep_backup=not no_backup,
        skip=skip,
        cut=cut,
        rebuild=rebuild,
        dry_run=dry_run,
        conf=conf,
        as_json=as_json,
    )


def _repair(
    path: str,
    *,
    into: str,
    keep_backup: bool,
    skip: bool,
    cut: bool,
    rebuild: RebuildWhat,
    dry_run: bool,
    conf: str,
    as_json: bool,
) -> None:
    from ..store.disk.os_disk import OsDisk
    from ..store.offline.mend import carry_out, plan_for
    from ..store.offline.plan import HolePolicy, Rebuild
    from ..store.offline.read_only import ReadOnlyDisk

    holes = HolePolicy.SKIP if skip else HolePolicy.CUT if cut else HolePolicy.ASK
    reader = ReadOnlyDisk()
    given = None
    with refused():
        given = _conf(conf)
        with progress_bar("checking") as progress:
            report, plan = plan_for(
                reader, path, holes=holes, rebuild=Rebuild(rebuild.value), conf=given,
                progress=progress,
            )  # fmt: skip
    said: dict[str, Any] = {"path": path, "into": into, "plan": plan.as_dict()}
    if not as_json:
        print_plan(path, plan)
    if dry_run or plan.problems or not (plan.steps or into):
        if as_json:
            typer.echo(json.dumps({**said, "before": report.as_dict(), "after": None}))
        undone = bool(plan.problems) or (dry_run and bool(plan.steps)) or not report.is_clean
        raise typer.Exit(2 if plan.problems and not dry_run else int(undone))
    with refused(status=1), progress_bar("repairing") as progress:
        after = carry_out(
            reader, OsDisk(), report, plan, into=into, keep_backup=keep_backup, conf=given,
            say=say, progress=progress,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps({**said, "before": report.as_dict(), "after": after.as_dict()}))
    else:
        print_report(after, 50)
    raise typer.Exit(0 if after.is_clean else 1)


# ---- reading -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: str, conf: str, live: bool) -> Iterator[Opened]:
    from ..store.offline.opening import opened
    from ..store.offline.read_only import ReadOnlyDisk

    with opened(ReadOnlyDisk(), _absolute(path), conf=_conf(conf), live=live) as store:
        if store.stop is not None:
            say(f"{path}: a broker is running; looking up to physical offset {store.stop}")
        yield store


def _dump_log(store: Opened, selection: Selection, *, as_json: bool, body: bool) -> int:
    from ..store.offline.read_only import ReadOnlyDisk
    from ..store.offline.selection import Bodies, selected
    from ..store.offline.selection import as_json as as_object

    log = store.layout.commit_log(ReadOnlyDisk())
    walks: list[LogWalk] = []
    try:
        for record in selected(
            log, selection, read_body=body, stop=store.stop, on_walk=walks.append
        ):
            if as_json:
                shown = Bodies.AUTO if body else Bodies.NONE
                typer.echo(json.dumps(as_object(record, shown)))
            else:
                typer.echo(message_line(record, with_body=body))
    finally:
        log.close()
    return _say_holes(walks[0])


def _rows(store: Opened, what: What, selection: Selection) -> Iterator[dict[str, Any]]:
    from ..store.offline import dump as dumps
    from ..store.offline.index_counts import IndexCounts
    from ..store.offline.read_only import ReadOnlyDisk

    disk, layout = ReadOnlyDisk(), store.layout
    if what is What.QUEUE:
        yield from dumps.dump_queues(disk, layout, selection)
    elif what is What.INDEX:
        given, config = None, layout.configured
        if {"max_hash_slot_num", "max_index_num"} & layout.given:
            given = IndexCounts(config.max_hash_slot_num, config.max_index_num)
        yield from dumps.dump_index(disk, layout, selection, given)
    elif what is What.CHECKPOINT:
        yield dumps.dump_checkpoint(disk, layout)
    elif what is What.CONFIG:
        yield from dumps.dump_config(disk, layout)
    else:
        yield dumps.dump_summary(disk, layout, store.stop)


def _export(
    store: Opened,
    selection: Selection,
    output: str,
    form: ExportFormat,
    body: BodyForm,
    *,
    inflate: bool,
) -> int:
    from ..store.disk.os_disk import OsDisk
    from ..store.offline.export import JsonWriter, NewFile, ParquetWriter, Writer
    from ..store.offline.read_only import ReadOnlyDisk
    from ..store.offline.selection import Bodies, selected

    if output == "-" and form is ExportFormat.PARQUET:
        usage("a Parquet file cannot go to standard output: say --output FILE")
    log = store.layout.commit_log(ReadOnlyDisk())
    walks: list[LogWalk] = []

    def write_all(writer: Writer) -> None:
        count = 0
        with progress_bar("exporting") as progress:
            for record in selected(
                log,
                selection,
                read_body=True,
                stop=store.stop,
                progress=progress,
                on_walk=walks.append,
            ):
                writer.write(record)
                count += 1
            writer.finish()
        say(f"{count} messages")

    def json_writer(write: Callable[[bytes], Any]) -> JsonWriter:
        as_array = form is ExportFormat.JSON
        return JsonWriter(write, bodies=Bodies(body.value), inflate=inflate, as_array=as_array)

    try:
        if output == "-":
            write_all(json_writer(sys.stdout.buffer.write))
            sys.stdout.buffer.flush()
        else:
            with NewFile(OsDisk(), _absolute(output)) as file:
                if form is ExportFormat.PARQUET:
                    write_all(ParquetWriter(file.partial, inflate=inflate))
                else:
                    write_all(json_writer(file.write))
                file.commit()
    finally:
        log.close()
    return _say_holes(walks[0])


def _say_holes(walk: LogWalk) -> int:
    """Tell of damaged places that were passed over; the exit status."""
    if not walk.hole_count:
        return 0
    hole = walk.holes[0]
    say(
        f"{walk.hole_count} damaged places were passed over, the first from {hole.start} to "
        f"{hole.end}: {hole.reason}; see `trocket store fsck`"
    )
    return 1


def _selection(
    *,
    topic: str,
    queue: int | None,
    key: str,
    from_offset: int | None,
    to_offset: int | None,
    since: str,
    until: str,
    limit: int | None,
) -> Selection:
    from ..store.clock import SystemClock
    from ..store.offline.selection import Selection

    now_ms = SystemClock().wall_ms()
    return Selection(
        topic=topic,
        queue_id=queue,
        key=key,
        start=from_offset,
        stop=to_offset,
        since_ms=read_time(since, "--since", now_ms) if since else None,
        until_ms=read_time(until, "--until", now_ms) if until else None,
        limit=limit,
    )


def _conf(path: str) -> dict[str, str] | None:
    if not path:
        return None
    from ..store.offline.layout import NoStoreError, read_conf

    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise NoStoreError(f"{path}: cannot be read: {error.strerror}") from error
    return read_conf(text, path=path)


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())
