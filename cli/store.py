"""`trocket store`: fsck, dump, export and repair of a store that no broker has open.

The work is done in `store/offline`; this module has flags, tables, progress bars, exit statuses.
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
    print_difference,
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
    help="Check, list, export and repair a store of trocket or Apache while no broker runs on it.",
)

StorePath = Annotated[
    str, typer.Argument(metavar="PATH", help="The store's folder (storePathRootDir).")
]
Conf = Annotated[
    str,
    typer.Option(
        "-c",
        "--conf",
        metavar="FILE",
        help="Read storePathCommitLog and file sizes from this broker.conf. Default: derive the "
        "sizes from the files.",
    ),
]
Live = Annotated[
    bool,
    typer.Option("--live", help="Read while a broker runs, up to the end of its consume queues."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Topic = Annotated[str, typer.Option("--topic", help="Select this topic.")]
Queue = Annotated[int | None, typer.Option("--queue", min=0, help="Select this queue id.")]
Key = Annotated[str, typer.Option("--key", help="Select messages with this key or unique key.")]
FromOffset = Annotated[
    int | None,
    typer.Option(
        "--from-offset",
        min=0,
        help="Start at this offset: a queue offset with --queue, else a physical one.",
    ),
]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", min=0, help="Stop before this offset.")
]
Since = Annotated[
    str,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Select messages stored at TIME or later: ISO 8601, ms since 1970, or 2h (ago).",
    ),
]
Until = Annotated[
    str,
    typer.Option("--until", metavar="TIME", help="Select messages stored at TIME or before."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=0, help="Stop after this number.")]


class What(StrEnum):
    """The part of a store that `dump` lists."""

    LOG = "log"
    QUEUE = "queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    CONFIG = "config"
    SUMMARY = "summary"


class ExportFormat(StrEnum):
    """The file format that `export` writes."""

    JSONL = "jsonl"
    JSON = "json"
    PARQUET = "parquet"


class BodyForm(StrEnum):
    """The form in which `export` writes bodies."""

    AUTO = "auto"
    TEXT = "text"
    BASE64 = "base64"
    NONE = "none"


class RebuildWhat(StrEnum):
    """The queues and index files that `repair` rebuilds."""

    DAMAGED = "damaged"
    ALL = "all"


@app.command("fsck")
def fsck(
    path: StorePath,
    conf: Conf = "",
    live: Live = False,
    as_json: AsJson = False,
    limit: Annotated[
        int,
        typer.Option("--limit", min=0, help="List at most this number of findings (no --json)."),
    ] = 50,
) -> None:
    """Check a whole store, and change nothing.

    Checks the sizes, checksum and offset of every record in the commit log, and compares all
    consume queues, index entries, the checkpoint and config/*.json with it. Reports what the start
    of a broker would warn of, in the same words.

    The exit status is 0 without errors (the broker's next start fixes warnings), 1 with errors or
    lost messages, 2 when the store cannot be read.
    """
    from ..broker.controller import open_as_broker
    from ..store.offline.fsck import check_store
    from ..store.offline.read_only import ReadOnlyDisk

    with refused(), progress_bar("checking") as progress:
        report = check_store(
            ReadOnlyDisk(), _absolute(path), conf=_conf(conf), live=live,
            open_store=open_as_broker, progress=progress,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
    else:
        print_report(report, limit)
    raise typer.Exit(0 if report.is_clean else 1)


@app.command("dump")
def dump(
    path: StorePath,
    what: Annotated[What, typer.Option("--what", help="List this part.")] = What.LOG,
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
        bool, typer.Option("--body", help="Show bodies: as text, or as hex if not UTF-8.")
    ] = False,
) -> None:
    """List a store's messages, queue units, index entries, checkpoint, config, or a summary.

    With --json, print one object a line with all fields; properties are an object, a body is `body`
    (text) or `bodyBase64`. Damaged ranges are skipped and counted on standard error; the exit
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


@app.command("diff", epilog="Example: trocket store diff /data/broker-a-1 /data/broker-a-2")
def diff(
    path: StorePath,
    other: Annotated[
        str, typer.Argument(metavar="OTHER", help="The folder of another store of the same set.")
    ],
    until: Annotated[
        int | None,
        typer.Option(
            "--until-offset", min=0, metavar="N", help="Compare the logs below this offset only."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two stores of one broker set: their logs byte for byte, and their queues.

    The common part is compared, below the end of the shorter log. The exit status is 1 if it
    differs.
    """
    from ..store.offline.read_only import ReadOnlyDisk
    from ..store.offline.store_diff import compare

    with refused(), _opened(path, "", False) as store, _opened(other, "", False) as second:
        found = compare(ReadOnlyDisk(), store.layout, second.layout, until=until)
    print_difference(found, as_json=as_json)
    raise typer.Exit(0 if found.is_none else 1)


@app.command("export")
def export(
    path: StorePath,
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help="Write to FILE; - is standard output."),
    ] = "-",
    form: Annotated[
        ExportFormat, typer.Option("--format", help="Write this format; parquet needs pyarrow.")
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
        BodyForm, typer.Option("--body", help="Write bodies so; auto: text if UTF-8, else base64.")
    ] = BodyForm.AUTO,
    decompress: Annotated[
        bool, typer.Option("--decompress/--as-stored", help="Decompress bodies.")
    ] = True,
) -> None:
    """Write messages as JSON or Parquet for other programs, in the order of the commit log.

    The file appears only when it is complete. Damaged ranges are skipped and counted on standard
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
        typer.Option("--into", metavar="NEWDIR", help="Repair a copy in NEWDIR (sparse files)."),
    ] = "",
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Repair the store itself; needs --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm --in-place.")] = False,
    no_backup: Annotated[
        bool,
        typer.Option("--no-backup", help="With --in-place, do not keep PATH.before-repair."),
    ] = False,
    skip: Annotated[
        bool,
        typer.Option(
            "--skip", help="Fill holes in the log with placeholders, and keep all other messages."
        ),
    ] = False,
    cut: Annotated[
        bool, typer.Option("--cut", help="Cut the log at its first hole, and lose what follows.")
    ] = False,
    rebuild: Annotated[
        RebuildWhat, typer.Option("--rebuild", help="Rebuild damaged or all queues and indexes.")
    ] = RebuildWhat.DAMAGED,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, and change nothing.")
    ] = False,
    conf: Conf = "",
    as_json: AsJson = False,
) -> None:
    """Repair a store: on a copy (--into NEWDIR), or in place with --yes.

    Prints the plan first. Zeros the torn write after the log's end, fills holes (--skip) or ends
    the log there (--cut), rebuilds queues and index from the log, restores config files from their
    .bak, and marks the store as closed cleanly.

    The exit status is 0 when the store is clean afterwards (with --dry-run: when there is nothing
    to do), 1 when it is not or the repair failed, 2 when no repair is possible.
    """
    if skip and cut:
        usage("give --skip or --cut, not both")
    if not dry_run and bool(into) == in_place:
        usage("give --into NEWDIR to repair a copy, or --in-place --yes (or --dry-run)")
    if in_place and not yes and not dry_run:
        usage("--in-place changes the store itself: add --yes to confirm, or use --into NEWDIR")
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
    from ..broker.controller import open_as_broker
    from ..disk.os_disk import OsDisk
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
                open_store=open_as_broker, progress=progress,
            )  # fmt: skip
    summary: dict[str, Any] = {"path": path, "into": into, "plan": plan.as_dict()}
    if not as_json:
        print_plan(path, plan)
    if dry_run or plan.problems or not (plan.steps or into):
        if as_json:
            typer.echo(json.dumps({**summary, "before": report.as_dict(), "after": None}))
        undone = bool(plan.problems) or (dry_run and bool(plan.steps)) or not report.is_clean
        raise typer.Exit(2 if plan.problems and not dry_run else int(undone))
    with refused(status=1), progress_bar("repairing") as progress:
        after = carry_out(
            reader, OsDisk(), report, plan, into=into, keep_backup=keep_backup, conf=given,
            open_store=open_as_broker, say=say, progress=progress,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps({**summary, "before": report.as_dict(), "after": after.as_dict()}))
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
            say(f"{path}: a broker is running; reading up to physical offset {store.stop}")
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
    from ..store.offline.export import JsonWriter, ParquetWriter, Writer, output_file
    from ..store.offline.read_only import ReadOnlyDisk
    from ..store.offline.selection import Bodies, selected

    if output == "-" and form is ExportFormat.PARQUET:
        usage("a Parquet file cannot go to standard output: give --output FILE")
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
            with output_file(_absolute(output)) as file:
                if form is ExportFormat.PARQUET:
                    write_all(ParquetWriter(file, inflate=inflate))
                else:
                    write_all(json_writer(file.write))
    finally:
        log.close()
    # Last, where it is still on the screen when the export ends.
    return _say_holes(walks[0])


def _say_holes(walk: LogWalk) -> int:
    """Report the damaged ranges that the walk skipped; return the exit status."""
    if not walk.hole_count:
        return 0
    hole = walk.holes[0]
    say(
        f"skipped {walk.hole_count} damaged ranges, the first from {hole.start} to "
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
    from ..common.clock import SystemClock
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
        raise NoStoreError(f"cannot read {path}: {error.strerror}") from error
    return read_conf(text, path=path)


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())
