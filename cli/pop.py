"""`trocket pop`: what groups have popped and not acknowledged, and how they get messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import say, show, time_text
from .completion import topic_names
from .missing import note_topic
from .session import (
    SHARED,
    AnyGroup,
    GroupName,
    OnlyCluster,
    Shared,
    administer,
    ask_brokers,
    emit,
    end_with,
    expect_names,
    note_none,
    read_time,
    usage,
    whole_or_part,
)

if TYPE_CHECKING:
    from ..client import Admin, GroupPops, InvisibleMessage, ReceivedMessage

MESSAGES_SHOWN = 100

app = typer.Typer(no_args_is_help=True, help="Show popped messages, and set how groups get them.")


@app.command("show", epilog="Example: trocket pop show billing Orders --since 2h")
def pop_show(
    group: GroupName,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[TOPIC]",
            help="The topic, with its retry topics. Default: all of the group.",
            autocompletion=topic_names,
            callback=note_topic,
        ),
    ] = "",
    *,
    message_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="Show only the message with this id.")
    ] = "",
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="Read pops from TIME on. Default: 1h (ago)."),
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Show at most this number of messages.")
    ] = MESSAGES_SHOWN,
    shared: Shared = SHARED,
) -> None:
    """Show the messages that a group has popped and not acknowledged, and until when.

    A message comes back to the group when its time is over. Messages that were popped in order
    are not shown. A time is ISO 8601, `2h` (ago), or ms since 1970.
    """

    async def ask(admin: Admin) -> tuple[GroupPops, str]:
        since_ms = read_time(since, "--since", admin.client.wall_ms()) if since else None
        pops, error = await whole_or_part(admin.popped(group, topic or None, since_ms=since_ms))
        if message_id:
            found = await admin.message(message_id, topic or None)
            pops = await _only(admin, pops, found)
        return pops, error

    expect_names()
    pops, error = administer(shared, ask)
    if shared.as_json:
        emit(pops)
    else:
        _show(pops, limit)
    for name in pops.without_pops:
        say(f"trocket: broker {name} has no pops, as it is of RocketMQ 4.x")
    for name in pops.without_memory:
        say(
            f"trocket: broker {name} has no request for pops that it keeps in memory: those of its"
            " last seconds are not shown"
        )
    if pops.left_out:
        say(f"trocket: {pops.left_out} records of pops were not read: give a later --since")
    end_with(error)


async def _only(admin: Admin, pops: GroupPops, message: ReceivedMessage) -> GroupPops:
    """Leave one message, and its copies in retry topics."""
    import msgspec

    copies = [message]
    for topic in {each.topic for each in pops.messages} - {message.topic}:
        copies += await admin.messages_by_key(topic, message.message_id)
    places = {
        (copy.topic, copy.queue.broker_name, copy.queue.queue_id, copy.queue_offset)
        for copy in copies
    }
    messages = tuple(each for each in pops.messages if _place(each) in places)
    return msgspec.structs.replace(pops, messages=messages)


def _place(message: InvisibleMessage) -> tuple[str, str, int, int]:
    return message.topic, message.broker_name, message.queue_id, message.offset


def _show(pops: GroupPops, limit: int) -> None:
    show(
        ["Topic", "Broker", "Queue", "Committed", "Popped", "End", "Waiting", "Invisible"],
        [
            [
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                queue.committed,
                queue.popped,
                queue.end,
                queue.waiting,
                queue.invisible,
            ]
            for queue in pops.queues
        ],
        title=pops.group,
    )
    show(
        ["Topic", "Broker", "Queue", "Offset", "Popped", "Visible again", "Stored", "Receipt"],
        [
            [
                each.topic,
                each.broker_name,
                each.queue_id,
                each.offset,
                time_text(each.popped_ms),
                time_text(each.visible_ms),
                "yes" if each.is_stored else "no",
                each.receipt,
            ]
            for each in pops.messages[:limit]
        ],
    )
    if len(pops.messages) > limit:
        say(f"trocket: {len(pops.messages) - limit} more messages: --limit or --json shows them")


@app.command("mode", epilog="Example: trocket pop mode billing Orders pop --share 3")
def pop_mode(
    group: AnyGroup = "",
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[TOPIC]",
            help="The topic. Default: all.",
            autocompletion=topic_names,
            callback=note_topic,
        ),
    ] = "",
    mode: Annotated[
        str, typer.Argument(metavar="[pop|pull]", help="Set this mode. Default: show it.")
    ] = "",
    *,
    share: Annotated[
        int,
        typer.Option(
            "--share",
            metavar="N",
            help="With pop, let N further clients pop from a client's queues; 0: from all queues.",
        ),
    ] = 0,
    cluster: OnlyCluster = "",
    shared: Shared = SHARED,
) -> None:
    """Show or set how a group gets the messages of a topic: by pull or by pop.

    It counts for consumers that have the broker assign queues to them: PushConsumer(mode="pop"),
    and with RocketMQ's Java client setClientRebalance(false).
    """
    if mode:
        administer(
            shared,
            lambda admin: admin.set_request_mode(
                topic, group, mode, share=share, cluster=cluster or None
            ),
        )
        if shared.as_json:
            emit({"topic": topic, "group": group, "mode": mode.upper(), "share": share})
        return
    if share or cluster:
        usage("--share and --cluster need GROUP, TOPIC and a mode")
    found, error = ask_brokers(shared, lambda admin: admin.request_modes())
    chosen = [each for each in found if group in ("", each.group) and topic in ("", each.topic)]
    if not chosen:
        expect_names()
    if shared.as_json:
        emit(chosen)
    else:
        show(
            ["Topic", "Group", "Mode", "Share", "Brokers"],
            [
                [each.topic, each.group, each.mode, each.share, " ".join(each.brokers)]
                for each in chosen
            ],
        )
    end_with(error)
    note_none(chosen, "no broker has a mode for it: consumers pull, unless they ask for pops")
