"""Sub-commands of `trocket group` about its topics and members."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import show
from .completion import member_ids, topic_names
from .missing import note_topic
from .session import (
    SHARED,
    GroupName,
    Shared,
    Yes,
    administer,
    ask_brokers,
    confirm,
    emit,
    end_with,
    expect_names,
    fail,
    note_none,
)

if TYPE_CHECKING:
    from ..client import Admin, ClientInfo, DirectlyConsumed, RunningInfo

ClientId = Annotated[
    str,
    typer.Option(
        "--client",
        metavar="ID",
        help="The id of the member. Default: the first one.",
        autocompletion=member_ids,
    ),
]


def group_topics(group: GroupName, shared: Shared = SHARED) -> None:
    """List the topics in which a group has offsets."""
    topics, error = ask_brokers(shared, lambda admin: admin.group_topics(group))
    if not topics:
        expect_names()
    if shared.as_json:
        emit(topics)
    else:
        show(["Topic"], [[each] for each in topics])
    end_with(error)
    note_none(topics, f"the group {group} has no offsets in any topic")


def group_status(
    group: GroupName,
    client: Annotated[
        str,
        typer.Option(
            "--client", metavar="ID", help="Show only this member.", autocompletion=member_ids
        ),
    ] = "",
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Show the stacks of its threads, too.")
    ] = False,
    shared: Shared = SHARED,
) -> None:
    """Show what each connected member of a group says of itself: queues, rates, settings."""

    async def ask(admin: Admin) -> tuple[list[RunningInfo], str]:
        from ..client.admin.asking import ask_all

        members = [client] if client else await _ids(admin, group)
        ask_one = partial(admin.running_info, group, with_stacks=stacks)
        answers = await ask_all({each: partial(ask_one, each) for each in members})
        if len(members) == 1:
            answers.check(group, None)  # raises its error
        errors = "; ".join(f"{each}: {error}" for each, error in answers.errors.items())
        return list(answers.values.values()), errors

    found, error = administer(shared, ask)
    if shared.as_json:
        emit(found)
    else:
        for each in found:
            _show_status(each)
    end_with(error)
    if not found:
        expect_names()
        fail(f"no member of the group {group} is connected")


def _show_status(info: RunningInfo) -> None:
    show(
        ["Property", "Value"],
        sorted(info.properties.items()),
        title=info.client_id,
    )
    show(
        ["Topic", "Type", "Wants"],
        [[each.topic, each.expression_type, each.expression] for each in info.subscriptions],
    )
    show(
        ["Topic", "Broker", "Queue", "Committed", "Cached", "Locked", "Dropped"],
        [
            [
                queue.topic,
                queue.broker_name,
                queue.queue_id,
                *(
                    queue.values.get(name)
                    for name in ("commitOffset", "cachedMsgCount", "locked", "droped")
                ),
            ]
            for queue in info.queues
        ],
    )
    show(
        ["Topic", "Number", "Value"],
        [
            [topic, name, value]
            for topic, values in sorted(info.statuses.items())
            for name, value in sorted(values.items())
        ],
    )
    if info.stacks:
        typer.echo(info.stacks)


async def _ids(admin: Admin, group: str) -> list[str]:
    clients: Sequence[ClientInfo] = (await admin.clients(group)).clients
    return [each.client_id for each in clients]


def group_consume(
    group: GroupName,
    message_id: Annotated[
        str, typer.Argument(metavar="ID", help="Message id of the producer or of the broker.")
    ],
    client: ClientId = "",
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="Search the message in this topic. Default: all topics.",
            autocompletion=topic_names,
            callback=note_topic,
        ),
    ] = "",
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Have a connected member of a group consume one message now; offsets stay as they are.

    Status 1 unless the member consumed it.
    """
    confirm(f"A member of group {group} consumes the message {message_id}, maybe again.", yes=yes)

    async def consume(admin: Admin) -> tuple[str, DirectlyConsumed]:
        from ..client import NotFoundError

        members = [client] if client else await _ids(admin, group)
        if not members:
            raise NotFoundError(f"no member of the group {group} is connected")
        message = await admin.message(message_id, topic or None)
        return members[0], await admin.consume_directly(group, members[0], message)

    client_id, done = administer(shared, consume)
    if shared.as_json:
        emit(
            {
                "clientId": client_id,
                "result": done.result,
                "remark": done.remark,
                "spentMs": done.spent_ms,
            }
        )
    else:
        show(
            ["Client", "Result", "ms", "Remark"],
            [[client_id, done.result, done.spent_ms, done.remark]],
        )
    if done.result not in ("CR_SUCCESS", "CR_COMMIT"):
        end_with(f"the member {client_id} did not consume the message: {done.result}")
