"""`trocket dlq`: the dead letters of a consumer group, and sending them to their topics again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .message import message
from .session import (
    SHARED,
    GroupName,
    Limit,
    Shared,
    Since,
    Until,
    Yes,
    administer,
    confirm,
    emit,
    end_with,
    expect_names,
    fail,
    read_range,
    whole_or_part,
)

if TYPE_CHECKING:
    from ..client import Admin, ReceivedMessage

app = typer.Typer(no_args_is_help=True, help="List dead letters, and send them again.")


@app.command("list", epilog="Example: trocket dlq list billing --since 2h")
def dlq_list(
    group: GroupName,
    since: Since = "",
    until: Until = "",
    limit: Limit = 64,
    shared: Shared = SHARED,
) -> None:
    """List the dead letters of a group; status 1 if there is none.

    A time is ISO 8601, `2h` (ago), or ms since 1970.
    """
    message(
        dlq=group,
        since=since,
        until=until,
        limit=limit,
        shared=shared,
    )


@app.command("resend", epilog="Example: trocket dlq resend billing --since 2h --yes")
def dlq_resend(
    group: GroupName,
    *,
    message_id: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Only the message with this id (repeatable)."),
    ] = None,
    since: Since = "",
    until: Until = "",
    limit: Limit = 64,
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Send dead letters to their original topics again; print the old id and the new one.

    The dead letters stay where they are, so a second call sends them a second time. The new
    message has the property DLQ_ORIGIN_MESSAGE_ID. Every group of the topic receives it. With
    --id, --limit is the number of dead letters that are searched.
    """

    async def ask(admin: Admin) -> tuple[list[ReceivedMessage], str]:
        begin_ms, end_ms = read_range(since, until, admin.client.wall_ms())
        return await whole_or_part(admin.dead_letters(group, begin_ms, end_ms, count=limit))

    found, error = administer(shared, ask)
    end_with(error)
    from ..operations import dead_letters

    found = dead_letters.chosen(found, message_id or ())
    if not found:
        expect_names()
        fail("no such message")
    confirm(f"This sends {len(found)} dead letters of group {group} again.", yes=yes)

    def tell(sent: dead_letters.Resent) -> None:
        if shared.as_json:
            emit(sent)
        else:
            typer.echo(f"{sent.dead_letter_id}\t{sent.message_id}")

    administer(shared, lambda admin: dead_letters.resend(admin.client, found, tell))
