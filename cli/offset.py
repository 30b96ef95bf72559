"""`trocket offset`: a topic's offsets, and resets of a group's offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.terminal import show, time_text
from .session import (
    SHARED,
    GroupName,
    Shared,
    TopicName,
    Yes,
    administer,
    ask_brokers,
    confirm,
    emit,
    end_with,
    expect_names,
    is_offset,
    read_queue,
    read_time,
    usage,
    whole_or_part,
)
from .statistics_view import seconds
from .topic import show_offsets

if TYPE_CHECKING:
    from ..client import Admin, MessageQueue, QueueReset

app = typer.Typer(
    no_args_is_help=True, help="Show a topic's offsets; show, reset or copy a group's."
)


@app.command("show", epilog="Example: trocket offset show Orders")
def offset_show(
    topic: TopicName,
    shared: Shared = SHARED,
) -> None:
    """Show the offsets and the message count of each queue of a topic."""
    offsets, error = ask_brokers(shared, lambda admin: admin.offsets(topic))
    if shared.as_json:
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
    shared: Shared = SHARED,
) -> None:
    """Reset a group's offsets in a topic, forward or back.

    The broker notifies running consumers. To reset to a single offset, stop them first, unless the
    broker is of 5.x.
    """
    if queue and not is_offset(to):
        usage("--queue needs --to with an offset")
    chosen = [_queue(topic, text) for text in queue or ()]
    if not dry_run:
        confirm(f"This resets group {group} in topic {topic} to {to}.", yes=yes)

    async def reset(admin: Admin) -> tuple[list[QueueReset], str]:
        options: dict[str, Any] = {}
        if to in ("begin", "end"):
            options["to"] = to
        elif is_offset(to):
            queues = chosen or await _queues(admin, topic)
            options["offsets"] = dict.fromkeys(queues, int(to))
        else:
            options["timestamp_ms"] = read_time(to, "--to", admin.client.wall_ms())
        return await whole_or_part(admin.reset_offset(group, topic, dry_run=dry_run, **options))

    done, error = administer(shared, reset)
    _show_resets(done, as_json=shared.as_json, dry_run=dry_run)
    end_with(error)


@app.command("clone", epilog="Example: trocket offset clone billing billing-2 Orders --dry-run")
def offset_clone(
    source: GroupName,
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="The group that gets the offsets.")
    ],
    topic: TopicName,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the new offsets, and change nothing.")
    ] = False,
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Copy a group's offsets in a topic to another group, whose members must be stopped."""
    if not dry_run:
        confirm(f"This sets group {destination} in topic {topic} to where {source} is.", yes=yes)

    async def clone(admin: Admin) -> list[QueueReset]:
        return await admin.clone_offsets(source, destination, topic, dry_run=dry_run)

    _show_resets(administer(shared, clone), as_json=shared.as_json, dry_run=dry_run)


@app.command("times", epilog="Example: trocket offset times billing Orders")
def offset_times(
    group: GroupName,
    topic: TopicName,
    shared: Shared = SHARED,
) -> None:
    """Show a group's progress in a topic as times: stored first, stored last, consumed last."""
    expect_names()
    spans, error = ask_brokers(shared, lambda admin: admin.consume_spans(group, topic))
    if shared.as_json:
        emit(spans)
    else:
        show(
            ["Broker", "Queue", "First", "Last", "Consumed", "Delay s"],
            [
                [
                    span.broker_name,
                    span.queue_id,
                    time_text(span.first_ms),
                    time_text(span.last_ms),
                    time_text(span.consumed_ms),
                    seconds(span.delay_s),
                ]
                for span in spans
            ],
        )
    end_with(error)


@app.command("correction", epilog="Example: trocket offset correction billing Orders")
def offset_correction(
    group: GroupName,
    topic: TopicName,
    shared: Shared = SHARED,
) -> None:
    """Show the smallest offset of all groups in each queue where a group is not the last."""
    expect_names()
    found, error = ask_brokers(shared, lambda admin: admin.correction_offsets(group, topic))
    if shared.as_json:
        emit(found)
    else:
        show(
            ["Broker", "Queue", "Offset"],
            [[broker, *each] for broker in found for each in found[broker].items()],
        )
    end_with(error)


def _show_resets(done: list[QueueReset], *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        emit(done)
        return
    show(
        ["Broker", "Queue", "Before", "Would be" if dry_run else "Now"],
        [[each.broker_name, each.queue_id, each.before, each.after] for each in done],
    )


async def _queues(admin: Admin, topic: str) -> list[MessageQueue]:
    from ..remoting.bodies import MessageQueue

    return [
        MessageQueue(topic, broker.broker_name, queue_id)
        for broker in (await admin.topic(topic)).brokers
        for queue_id in range(broker.read_queues)
    ]


def _queue(topic: str, text: str) -> MessageQueue:
    from ..remoting.bodies import MessageQueue

    return MessageQueue(topic, *read_queue(text, "--queue"))
