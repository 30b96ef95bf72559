"""`trocket offset`: a topic's offsets, and resets of a group's offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.terminal import show
from .session import (
    DEFAULT_URL,
    OFFSET_MAX,
    AsJson,
    GroupName,
    TimeoutS,
    TopicName,
    Url,
    Yes,
    administer,
    confirm,
    emit,
    end_with,
    read_time,
    usage,
    whole_or_part,
)
from .topic import show_offsets

if TYPE_CHECKING:
    from ..client import Admin, MessageQueue, QueueOffsets, QueueReset

app = typer.Typer(no_args_is_help=True, help="Show a topic's offsets, or reset a group's.")


@app.command("show", epilog="Example: trocket offset show Orders")
def offset_show(
    topic: TopicName,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    timeout_s: TimeoutS = 3.0,
) -> None:
    """Show the offsets and the message count of each queue of a topic."""

    async def ask(admin: Admin) -> tuple[list[QueueOffsets], str]:
        return await whole_or_part(admin.offsets(topic))

    offsets, error = administer(url, timeout_s, ask)
    if as_json:
        emit(offsets)
    else:
        show_offsets(offsets)
    end_with(error)


@app.command(
    "reset",
    epilog="Example: trocket offset reset billing Orders --to 2h --dry-run",
)
def offset_reset(
    group: GroupName,
    topic: TopicName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="Reset to begin, end, an offset, or a time: ISO 8601, `2h` (ago), ms since 1970.",
        ),
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="BROKER:ID", help="With an offset, reset only this queue."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the new offsets, and change nothing.")
    ] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    timeout_s: TimeoutS = 3.0,
) -> None:
    """Reset a group's offsets in a topic, forward or back.

    The broker notifies running consumers. To reset to a single offset, stop them first, unless the
    broker is of 5.x.
    """
    is_offset = to.isascii() and to.isdecimal() and int(to) < OFFSET_MAX
    if queue and not is_offset:
        usage("--queue needs --to with an offset")
    chosen = [_queue(topic, text) for text in queue or ()]
    if not dry_run:
        confirm(f"This resets group {group} in topic {topic} to {to}.", yes=yes)

    async def reset(admin: Admin) -> tuple[list[QueueReset], str]:
        options: dict[str, Any] = {}
        if to in ("begin", "end"):
            options["to"] = to
        elif is_offset:
            queues = chosen or await _queues(admin, topic)
            options["offsets"] = dict.fromkeys(queues, int(to))
        else:
            options["timestamp_ms"] = read_time(to, "--to", admin.client.wall_ms())
        return await whole_or_part(admin.reset_offset(group, topic, dry_run=dry_run, **options))

    done, error = administer(url, timeout_s, reset)
    if as_json:
        emit(done)
    else:
        show(
            ["Broker", "Queue", "Before", "Would be" if dry_run else "Now"],
            [[each.broker_name, each.queue_id, each.before, each.after] for each in done],
        )
    end_with(error)


async def _queues(admin: Admin, topic: str) -> list[MessageQueue]:
    from ..remoting.bodies import MessageQueue

    return [
        MessageQueue(topic, broker.broker_name, queue_id)
        for broker in (await admin.topic(topic)).brokers
        for queue_id in range(broker.read_queues)
    ]


def _queue(topic: str, text: str) -> MessageQueue:
    from ..remoting.bodies import MessageQueue

    broker, separator, number = text.rpartition(":")
    if not separator or not (number.isascii() and number.isdecimal()):
        usage(f"--queue: {text!r} is not BROKER:ID")
    return MessageQueue(topic, broker, int(number))
