"""`trocket lag`: a group's progress, once or live."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import plain, say, show, table
from .completion import topic_names
from .session import (
    DEFAULT_URL,
    AsJson,
    GroupName,
    TimeoutS,
    Url,
    emit,
    end_with,
    new_client,
    run,
    whole_or_part,
)

if TYPE_CHECKING:
    from ..client import Admin, GroupLag

COLUMNS = ("Topic", "Broker", "Queue", "Committed", "End", "Lag")


def lag(
    group: GroupName,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="Show only this topic. Default: all topics it reads.",
            autocompletion=topic_names,
        ),
    ] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", min=0.1, metavar="S", help="With --watch, refresh every S seconds."
        ),
    ] = 2.0,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    timeout_s: TimeoutS = 3.0,
) -> None:
    """Show how many messages a group has not consumed, for each queue and in total.

    With --watch and --json, print an object a line.
    """

    async def main() -> str:
        from ..client import Admin

        async with new_client(url, timeout_s) as client, Admin(client) as admin:
            if watch:
                await _watch(admin, group, topic, interval, as_json=as_json)
            result, error = await whole_or_part(admin.lag(group, topic or None))
            if as_json:
                emit(_tree(result))
            else:
                show(COLUMNS, rows(result), title=group)
            if not result.queues and not error:
                say(f"trocket: group {group} has no offsets and no connected members")
            return error

    end_with(run(main))


async def _watch(admin: Admin, group: str, topic: str, interval_s: float, *, as_json: bool) -> None:
    """Show the lag until Ctrl-C; a terminal shows errors and retries, a pipe ends with them."""
    import anyio

    if as_json or not sys.stdout.isatty():
        while True:
            result, error = await whole_or_part(admin.lag(group, topic or None))
            if as_json:
                emit(_tree(result))
            else:
                show(COLUMNS, rows(result))
            sys.stdout.flush()
            end_with(error)
            await anyio.sleep(interval_s)
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from ..client import ClientError

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            try:
                result, error = await whole_or_part(admin.lag(group, topic or None))
                shown = table(
                    COLUMNS, [[plain(cell) for cell in row] for row in rows(result)], title=group
                )
                live.update(Group(shown, Text(error)), refresh=True)
            except ClientError as failure:
                live.update(Text(" ".join(str(failure).split())), refresh=True)
            await anyio.sleep(interval_s)


def rows(result: GroupLag) -> list[list[object]]:
    """A row for each queue, then the total."""
    found: list[list[object]] = [
        [q.topic, q.broker_name, q.queue_id, q.committed, q.end, q.lag] for q in result.queues
    ]
    found.append(["total", "", "", "", "", result.total])
    return found


def _tree(result: GroupLag) -> dict[str, object]:
    return {
        "group": result.group,
        "lag": result.total,
        "topics": result.by_topic,
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
            for queue in result.queues
        ],
    }
