"""Sub-commands of `trocket topic` about statistics, permissions and queues."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import show, time_text
from .completion import broker_names
from .session import (
    SHARED,
    Limit,
    Shared,
    TopicName,
    Yes,
    administer,
    ask_brokers,
    confirm,
    emit,
    end_with,
    expect_names,
    fail,
    note_none,
    read_pairs,
    read_perm,
    read_queue,
    usage,
    whole_or_part,
)
from .statistics_view import growth_rows

if TYPE_CHECKING:
    from ..client import Admin, MessageQueue


def topic_stats(name: TopicName, shared: Shared = SHARED) -> None:
    """Show what a topic's queues hold, and the traffic of the topic and of each of its groups."""
    stats, error = ask_brokers(shared, lambda admin: admin.topic_stats(name))
    if shared.as_json:
        emit(stats)
        end_with(error)
        return
    show(
        ["Broker", "Queue", "Begin", "End", "Messages", "Last stored"],
        [
            [q.broker_name, q.queue_id, q.begin, q.end, q.count, time_text(q.last_store_ms)]
            for q in stats.queues
        ],
        title=stats.topic,
    )
    counters = {
        "stored messages": stats.put_count,
        "stored bytes": stats.put_size,
        **{f"read by {group}": each for group, each in stats.groups.items()},
    }
    show(
        ["What", "Period", "Total", "Per second", "Per call"],
        [[what, *row] for what, each in counters.items() for row in growth_rows(each)],
    )
    end_with(error)


def topic_groups(name: TopicName, shared: Shared = SHARED) -> None:
    """List the groups that consume a topic, and what their members want of it."""

    async def ask(admin: Admin) -> tuple[list[tuple[str, str]], str]:
        from ..client import BrokersError
        from ..client.admin.asking import ask_all

        groups, error = await whole_or_part(admin.topic_groups(name))
        answers = await ask_all({each: partial(admin.subscription, each, name) for each in groups})
        found = []
        for group in groups:
            failure = answers.errors.get(group)
            subscription = answers.values.get(group)
            if isinstance(failure, BrokersError):
                # None, too, is an answer here: the members want nothing, or there are none.
                subscription, error = failure.partial, error or str(failure)
            elif failure is not None:
                raise failure
            found.append((group, subscription.expression if subscription else ""))
        return found, error

    found, error = administer(shared, ask)
    if shared.as_json:
        emit([{"group": group, "expression": wanted or None} for group, wanted in found])
    else:
        show(["Group", "Wants"], [[group, wanted or None] for group, wanted in found])
    end_with(error)
    note_none(found, f"no group consumes the topic {name}")


def topic_units(
    name: TopicName,
    queue: Annotated[str, typer.Argument(metavar="BROKER:ID", help="The queue.")],
    start: Annotated[
        int, typer.Option("--from", min=-1, help="Begin at this offset; -1: at the queue's first.")
    ] = -1,
    limit: Limit = 16,
    shared: Shared = SHARED,
) -> None:
    """Show units of a consume queue: where in the log its messages are."""
    broker, queue_id = read_queue(queue, "BROKER:ID")
    offset = None if start < 0 else start
    units = administer(
        shared,
        lambda admin: admin.queue_units(name, broker, queue_id, offset, count=limit),
    )
    if shared.as_json:
        emit(units)
    else:
        show(
            ["Offset", "Physical offset", "Size", "Tag's hash"],
            [[u.queue_offset, u.physical_offset, u.size, u.tags_code] for u in units],
        )


def topic_perm(
    name: TopicName,
    perm: Annotated[str, typer.Argument(metavar="PERM", help="Allow RW, R or W.")],
    broker: Annotated[
        str,
        typer.Option(
            "--broker",
            metavar="NAME",
            help="Change it on this broker only.",
            autocompletion=broker_names,
        ),
    ] = "",
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Change what clients may do with a topic; its other settings stay as they are."""
    bits = read_perm(perm, "PERM")
    confirm(f"This sets the permission of topic {name} to {perm.upper()}.", yes=yes)

    done, error = ask_brokers(
        shared, lambda admin: admin.update_topic_perm(name, bits, broker=broker or None)
    )
    if shared.as_json:
        emit({"changed": done})
    else:
        show(["Changed on"], [[each] for each in done])
    end_with(error)


def topic_order_conf(
    name: TopicName,
    queues: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="BROKER=QUEUES", help="Fix these queues (repeatable)."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Forget them.")] = False,
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Show, set or delete the queues that the name servers keep of an ordered topic."""
    if queues and delete:
        usage("give --set or --delete, not both")
    counts: dict[str, int] = {}
    for broker, text in read_pairs(queues or (), "--set").items():
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            usage(f"--set: {broker}={text} is not BROKER=QUEUES")
        counts[broker] = int(text)
    if counts or delete:
        confirm(f"This changes where producers write to the ordered topic {name}.", yes=yes)

    if delete:
        administer(shared, lambda admin: admin.delete_order_conf(name))
        if shared.as_json:
            emit({"deleted": name})
        return

    async def put_and_get(admin: Admin) -> dict[str, int] | None:
        if counts:
            await admin.put_order_conf(name, counts)
        return await admin.order_conf(name)

    found = administer(shared, put_and_get)
    if found is None:
        expect_names()
        fail(f"the name server keeps no queues of an ordered topic {name}")
    if shared.as_json:
        emit(found)
    else:
        show(["Broker", "Queues"], list(found.items()))


def topic_allocate(
    name: TopicName,
    client: Annotated[list[str], typer.Argument(metavar="CLIENT...", help="Ids of members.")],
    shared: Shared = SHARED,
) -> None:
    """Show which member of a group would get which queues, by RocketMQ's default strategy."""

    async def ask(admin: Admin) -> list[tuple[MessageQueue, str]]:
        from ..client import AllocateMessageQueueAveragely, MessageQueue

        info = await admin.topic(name)
        queues = [
            MessageQueue(name, broker.broker_name, queue_id)
            for broker in info.brokers
            for queue_id in range(broker.read_queues)
        ]
        ids = sorted(set(client))
        strategy = AllocateMessageQueueAveragely()
        return [
            (queue, member)
            for member in ids
            for queue in strategy.allocate("", member, queues, ids)
        ]

    found = administer(shared, ask)
    if shared.as_json:
        emit(
            [
                {"brokerName": q.broker_name, "queueId": q.queue_id, "clientId": member}
                for q, member in found
            ]
        )
    else:
        show(
            ["Broker", "Queue", "Client"],
            [[q.broker_name, q.queue_id, member] for q, member in found],
        )
