"""`trocket lag`: how far groups are behind, once or live."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..common.terminal import plain, say, show, table
from ..common.texts import one_line
from .completion import topic_names
from .error_lines import errors_as_json
from .live_lines import begin_sample
from .missing import note_topic
from .session import (
    INTERVAL_MAX_S,
    SHARED,
    AnyGroup,
    Shared,
    emit,
    end_with,
    new_client,
    run,
    usage,
    whole_or_part,
)
from .statistics_view import progress_tree, rate, seconds

if TYPE_CHECKING:
    from ..client import Admin, GroupLag, GroupProgress

COLUMNS = ("Topic", "Broker", "Queue", "Committed", "End", "Lag", "Delay s", "Client")
COLUMNS_SPARE = ("End", "Committed", "Delay s")
GROUP_COLUMNS = ("Group", "Members", "Type", "Model", "Out/s", "Lag", "Retries", "Dead letters")
GROUP_COLUMNS_SPARE = ("Model", "Type", "Members", "Retries", "Dead letters")
"""What a narrow terminal leaves out first."""


NO_GROUP = "there is no group; --all lists RocketMQ's own, too"


class _Shown(NamedTuple):
    """A measurement, as it is printed.

    Attributes:
      tree: as JSON has it.
      notes: for people, on standard error.
    """

    tree: object
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    spare: Sequence[str]
    title: str = ""
    notes: Sequence[str] = ()


def lag(
    group: AnyGroup = "",
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="With GROUP, show only this topic. Default: all topics it reads.",
            autocompletion=topic_names,
            callback=note_topic,
        ),
    ] = "",
    owners: Annotated[
        bool,
        typer.Option("--owners", help="With GROUP, ask its members which of them has each queue."),
    ] = False,
    is_all: Annotated[bool, typer.Option("--all", help="List RocketMQ's own groups, too.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            min=0.1,
            max=INTERVAL_MAX_S,
            metavar="S",
            help="With --watch, refresh every S seconds.",
        ),
    ] = 2.0,
    shared: Shared = SHARED,
) -> None:
    """Show how many messages a group has not consumed, for each queue; or how far all groups are.

    With --watch and --json, print an object a line.
    """
    if not group and (topic or owners):
        usage("--topic and --owners need a GROUP")

    async def measure(admin: Admin) -> tuple[_Shown, str]:
        if group:
            return await _one(admin, group, topic, with_owners=owners)
        return await _every(admin, is_all=is_all)

    async def main() -> str:
        from ..client import Admin

        async with new_client(shared.url, shared.timeout_s) as client, Admin(client) as admin:
            if watch and sys.stdout.isatty() and not shared.as_json:
                await _live(admin, measure, interval)
            is_first = True
            while True:
                shown, error = await measure(admin)
                if watch and not shared.as_json:
                    begin_sample(admin.client.wall_ms(), is_first=is_first)
                _print(shown, as_json=shared.as_json)
                if error or not watch:
                    return error
                is_first = False
                await _sleep(interval)

    end_with(run(main))


async def _sleep(seconds_: float) -> None:
    import anyio

    sys.stdout.flush()
    await anyio.sleep(seconds_)


def _print(shown: _Shown, *, as_json: bool) -> None:
    if as_json:
        emit(shown.tree)
    else:
        show(shown.columns, shown.rows, title=shown.title, spare=shown.spare)
    for note in shown.notes:
        say(f"trocket: {note}")


async def _live(admin: Admin, measure: Any, interval_s: float) -> None:
    """Show it on a terminal until Ctrl-C; an error is shown, and the next measurement tried."""
    import anyio
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from ..client import ClientError

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            try:
                shown, error = await measure(admin)
                cells = [[plain(cell) for cell in row] for row in shown.rows]
                made = table(
                    shown.columns,
                    cells,
                    title=shown.title,
                    width=live.console.width,
                    spare=shown.spare,
                )
                live.update(Group(made, Text(error)), refresh=True)
            except ClientError as failure:
                live.update(Text(one_line(failure)), refresh=True)
            await anyio.sleep(interval_s)


async def _one(admin: Admin, group: str, topic: str, *, with_owners: bool) -> tuple[_Shown, str]:
    """One group, each queue: its lag as `Admin.lag` counts it, the rest as brokers' tables have it.

    A group without a connected member and without offsets has no tables.
    """
    from ..client import BrokersError, ClientError

    progress: GroupProgress | None = None
    try:
        progress, second = await whole_or_part(
            admin.progress(group, topic or None, with_owners=with_owners)
        )
    except ClientError as failure:
        second = str(failure)
    try:
        lag_of, error = await whole_or_part(admin.lag(group, topic or None))
    except BrokersError as failure:
        if progress is None:
            raise
        # A broker that is away may have topics of which no other one knows.
        lag_of, error = _lag_of(progress), str(failure)
    notes = [f"the member {each} did not say its queues" for each in _silent(progress)]
    if not lag_of.queues and not error:
        notes.append(f"group {group} has no offsets and no connected members")
        second = ""
    columns = COLUMNS if with_owners else COLUMNS[:-1]
    rows = [row[: len(columns)] for row in _rows(lag_of, progress)]
    return _Shown(
        _tree(lag_of, progress), columns, rows, COLUMNS_SPARE, group, notes
    ), error or second


def _lag_of(progress: GroupProgress) -> GroupLag:
    from ..client import GroupLag, QueueLag

    return GroupLag(
        progress.group,
        tuple(
            QueueLag(each.topic, each.broker_name, each.queue_id, each.committed, 0, each.end)
            for each in progress.queues
        ),
    )


def _silent(progress: GroupProgress | None) -> Sequence[str]:
    return () if progress is None else progress.silent_clients


def _rows(lag_of: GroupLag, progress: GroupProgress | None) -> list[list[object]]:
    """A row for each queue, then the total."""
    known = _by_queue(progress)
    found: list[list[object]] = []
    for q in lag_of.queues:
        more = known.get((q.topic, q.broker_name, q.queue_id))
        delay, client = (None, None) if more is None else (more.delay_s, more.client_id or None)
        found.append(
            [q.topic, q.broker_name, q.queue_id, q.committed, q.end, q.lag, seconds(delay), client]
        )
    delay = None if progress is None else progress.delay_s
    found.append(["total", "", "", "", "", lag_of.total, seconds(delay), ""])
    return found


def _by_queue(progress: GroupProgress | None) -> dict[tuple[str, str, int], Any]:
    queues = () if progress is None else progress.queues
    return {(each.topic, each.broker_name, each.queue_id): each for each in queues}


def _tree(lag_of: GroupLag, progress: GroupProgress | None) -> dict[str, object]:
    known = _by_queue(progress)
    more = {} if progress is None else progress_tree(progress)
    return more | {
        "group": lag_of.group,
        "lag": lag_of.total,
        "topics": lag_of.by_topic,
        "queues": [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "committed": queue.committed,
                "begin": queue.begin,
                "end": queue.end,
                "lag": queue.lag,
            }
            | _more(known.get((queue.topic, queue.broker_name, queue.queue_id)))
            for queue in lag_of.queues
        ],
    }


def _more(queue: Any) -> dict[str, object]:
    if queue is None:
        return {}
    return {
        "delayS": queue.delay_s,
        "lastConsumedMs": queue.last_consumed_ms,
        "clientId": queue.client_id,
    }


async def _every(admin: Admin, *, is_all: bool) -> tuple[_Shown, str]:
    """All groups, a row for each."""
    found, error = await whole_or_part(admin.all_progress(is_all=is_all))
    rows = [
        [
            each.group,
            len(each.clients),
            each.consume_type or None,
            each.message_model or None,
            rate(each.rate),
            each.lag,
            each.retries,
            each.dead_letters,
        ]
        for each in found
    ]
    notes = [] if found or error or errors_as_json.get() else [NO_GROUP]
    trees = [progress_tree(each) for each in found]
    return _Shown(trees, GROUP_COLUMNS, rows, GROUP_COLUMNS_SPARE, notes=notes), error
