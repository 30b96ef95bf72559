"""`trocket message`: single messages, by id, key or time, and a group's dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..common.terminal import printable, show, time_text
from .completion import group_names, topic_names
from .message_lines import as_json as json_of
from .message_lines import as_text
from .message_trace import as_tree
from .missing import note_group, note_topic
from .session import (
    SHARED,
    Limit,
    Shared,
    Since,
    Until,
    administer,
    emit,
    end_with,
    expect_names,
    fail,
    read_range,
    usage,
    whole_or_part,
)

if TYPE_CHECKING:
    from ..client import Admin, MessageTrack, ReceivedMessage
    from ..operations.message_life import LifeFacts

REQUESTS_IN_TURN: Final = 4
"""Requests that `--life` makes one after the other, each of which may take --timeout."""
GROUPS_MAX: Final = 64
"""Groups that `--life` asks about in full; a person waits for it, and it is asked once."""
MEMBERS_MAX: Final = 64
"""Members of each that it asks."""


_DeadLetters = Annotated[
    str,
    typer.Option(
        "--dlq",
        hidden=True,  # `trocket dlq list` has the same
        metavar="GROUP",
        help="Find the dead letters of this group.",
        autocompletion=group_names,
        callback=note_group,
    ),
]
_IsLife = Annotated[
    bool,
    typer.Option("--life", help="With ID, say where it is and what each group did, and from what."),
]
_AskedGroups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="With --life, ask about this group, too; several times for several.",
        autocompletion=group_names,
    ),
]


def message(
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="Message id of the producer or of the broker.")
    ] = "",
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="Search this topic. With ID, default: all topics.",
            autocompletion=topic_names,
            callback=note_topic,
        ),
    ] = "",
    key: Annotated[str, typer.Option("--key", help="Find messages with this key.")] = "",
    since: Since = "",
    until: Until = "",
    dlq: _DeadLetters = "",
    track: Annotated[
        bool, typer.Option("--track", help="With ID, also list what each group did with it.")
    ] = False,
    life: _IsLife = False,
    group: _AskedGroups = None,
    limit: Limit = 64,
    shared: Shared = SHARED,
) -> None:
    """Find messages; status 1 if there is none.

    A time is ISO 8601, `2h` (ago), or ms since 1970.
    """
    if message_id and (since or until):
        usage("--since and --until do not work with an ID; use them with --topic")
    if (track or life) and not message_id:
        usage("--track and --life need an ID")
    if group and not life:
        usage("--group needs --life")
    ways = [bool(message_id), bool(key), bool(dlq), bool(since and not key and not dlq)]
    if ways.count(True) != 1 or (not topic and not (message_id or dlq)) or (dlq and topic):
        usage("give an ID, or --topic with --key or --since")
    if life:
        _show_life(shared, message_id, topic, group or [])
        return
    if message_id:
        _show_one(shared, message_id, topic, has_track=track)
        return

    async def ask(admin: Admin) -> tuple[list[ReceivedMessage], str]:
        begin_ms, end_ms = read_range(since, until, admin.client.wall_ms())
        if key:
            return await whole_or_part(
                admin.messages_by_key(topic, key, count=limit, begin_ms=begin_ms, end_ms=end_ms)
            )
        if dlq:
            return await whole_or_part(admin.dead_letters(dlq, begin_ms, end_ms, count=limit))
        return await whole_or_part(admin.messages_by_time(topic, begin_ms, end_ms, count=limit))

    found, error = administer(shared, ask)
    for each in found:
        if shared.as_json:
            emit(json_of(each))
        else:
            typer.echo(as_text(each))
    end_with(error)
    if not found:
        expect_names()
        fail("no such message")


def _show_one(shared: Shared, message_id: str, topic: str, *, has_track: bool) -> None:
    """Print the message of an id, and what each group did with it if `has_track`."""

    async def ask(admin: Admin) -> tuple[ReceivedMessage, list[MessageTrack]]:
        found = await admin.message(message_id, topic or None)
        return found, await admin.message_track(found) if has_track else []

    found, tracks = administer(shared, ask)
    if shared.as_json:
        emit(json_of(found) | ({"track": tracks} if has_track else {}))
        return
    _print_whole(found)
    if has_track:
        show(["Group", "State"], [[each.group, each.state] for each in tracks])


def _show_life(shared: Shared, message_id: str, topic: str, groups: list[str]) -> None:
    """Print where the message of an id is, and what each group did with it."""
    from ..operations.message_life import DEADLINE_S, collect_life, life_of
    from .message_life import is_found, print_life, verdict_text

    async def ask(admin: Admin) -> LifeFacts:
        return await collect_life(
            admin,
            message_id,
            topic or None,
            groups=groups,
            groups_max=GROUPS_MAX,
            members_max=MEMBERS_MAX,
            deadline_s=max(DEADLINE_S, REQUESTS_IN_TURN * shared.timeout_s),
        )

    found = life_of(administer(shared, ask))
    if shared.as_json:
        emit(as_tree(found))
    elif is_found(found):
        print_life(found)
    if not is_found(found):
        expect_names()
        fail(verdict_text(found))


def _print_whole(found: ReceivedMessage) -> None:
    """Print all fields of one message, a line each; then its body."""
    queue = found.queue
    lines = {
        "id": found.message_id,
        "broker's id": found.offset_message_id,
        "topic": found.topic,
        "queue": f"{queue.broker_name}/{queue.queue_id} @{found.queue_offset}",
        "stored": f"{time_text(found.store_timestamp_ms)} by {found.store_host}",
        "born": f"{time_text(found.born_timestamp_ms)} at {found.born_host}",
        "retries": str(found.reconsume_times),
    }
    for name, value in lines.items():
        typer.echo(f"{name + ':':<13}{printable(value)}")
    for name, value in sorted(found.properties.items()):
        typer.echo(printable(f"  {name} = {value}"))
    try:
        text = found.text
    except UnicodeDecodeError:
        text = f"({len(found.body)} bytes) {found.body.hex(' ')}"
    typer.echo("\n".join(map(printable, text.split("\n"))))
