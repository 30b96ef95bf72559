"""`trocket topic`: commands that list, show, create and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import show, time_text
from .completion import broker_names
from .session import (
    SHARED,
    Cluster,
    Shared,
    TopicName,
    Yes,
    administer,
    confirm,
    emit,
    end_with,
    note_none,
    read_pairs,
    read_perm,
    whole_or_part,
)
from .topic_stats import (
    topic_allocate,
    topic_groups,
    topic_order_conf,
    topic_perm,
    topic_stats,
    topic_units,
)

if TYPE_CHECKING:
    from ..client import Admin, QueueOffsets, StaticTopicInfo, TopicInfo

app = typer.Typer(no_args_is_help=True, help="List, show, create, change and delete topics.")

static = typer.Typer(
    no_args_is_help=True,
    help="Show, create and move static topics: a fixed number of queues on several brokers.",
)
app.add_typer(static, name="static")

Brokers = Annotated[
    list[str] | None,
    typer.Option(
        "--broker",
        metavar="NAME",
        help="Use this broker (repeatable).",
        autocompletion=broker_names,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan, and change nothing.")]


@app.command("list", epilog="Example: trocket topic list --all")
def topic_list(
    is_all: Annotated[
        bool, typer.Option("--all", help="List system, retry and DLQ topics, too.")
    ] = False,
    shared: Shared = SHARED,
) -> None:
    """List the topics."""
    names = administer(shared, lambda admin: admin.topics(is_all=is_all))
    if shared.as_json:
        emit(names)
    else:
        show(["Topic"], [[name] for name in names])
    note_none(names, "there is no topic; --all lists RocketMQ's own, too")


@app.command("show", epilog="Example: trocket topic show Orders")
def topic_show(name: TopicName, shared: Shared = SHARED) -> None:
    """Show a topic's settings on each broker, and the offsets of its queues."""

    async def ask(admin: Admin) -> tuple[tuple[TopicInfo, str], tuple[list[QueueOffsets], str]]:
        info = await whole_or_part(admin.topic(name))
        return info, await whole_or_part(admin.offsets(name))

    (info, first), (offsets, second) = administer(shared, ask)
    if shared.as_json:
        emit({"name": info.name, "brokers": info.brokers, "queues": offsets})
    else:
        show(
            ["Broker", "Cluster", "Read queues", "Write queues", "Perm", "Attributes"],
            [
                [
                    broker.broker_name,
                    broker.cluster,
                    broker.read_queues,
                    broker.write_queues,
                    broker.perm_text,
                    " ".join(f"{key}={value}" for key, value in broker.attributes.items()),
                ]
                for broker in info.brokers
            ],
            title=info.name,
            spare=("Cluster", "Read queues"),
        )
        show_offsets(offsets)
    end_with(first, second)


def show_offsets(offsets: list[QueueOffsets]) -> None:
    """Print a table of queues with their offsets."""
    show(
        ["Broker", "Queue", "Begin", "End", "Messages", "Last stored"],
        [
            [
                queue.broker_name,
                queue.queue_id,
                queue.begin,
                queue.end,
                queue.count,
                time_text(queue.last_store_ms),
            ]
            for queue in offsets
        ],
    )


@app.command(
    "create", epilog="Example: trocket topic create Orders --queues 4 -a message.type=FIFO"
)
def topic_create(
    name: TopicName,
    queues: Annotated[
        int, typer.Option("--queues", min=1, help="Set the queues on each broker.")
    ] = 8,
    read_queues: Annotated[
        int, typer.Option("--read-queues", min=0, help="Set the read queues; 0: as --queues.")
    ] = 0,
    perm: Annotated[str, typer.Option("--perm", help="Allow RW, R or W.")] = "RW",
    order: Annotated[bool, typer.Option("--order", help="Mark its messages as ordered.")] = False,
    attribute: Annotated[
        list[str] | None,
        typer.Option(
            "--attribute", metavar="NAME=VALUE", help="Set an attribute of 5.x (repeatable)."
        ),
    ] = None,
    cluster: Cluster = "",
    shared: Shared = SHARED,
) -> None:
    """Create a topic on every broker of a cluster, or change it there."""
    bits = read_perm(perm, "--perm")
    attributes = read_pairs(attribute or (), "--attribute")

    async def create(admin: Admin) -> None:
        await admin.create_topic(
            name,
            queues,
            read_queues=read_queues or None,
            perm=bits,
            order=order,
            cluster=cluster or None,
            attributes=attributes,
        )

    administer(shared, create)
    if shared.as_json:
        emit({"created": name})


@app.command("delete", epilog="Example: trocket topic delete Orders --yes")
def topic_delete(
    name: TopicName,
    yes: Yes = False,
    cluster: Cluster = "",
    shared: Shared = SHARED,
) -> None:
    """Delete a topic and all its messages."""
    confirm(f"This deletes topic {name} and its messages.", yes=yes)
    administer(shared, lambda admin: admin.delete_topic(name, cluster=cluster or None))
    if shared.as_json:
        emit({"deleted": name})


app.command("stats", epilog="Example: trocket topic stats Orders")(topic_stats)
app.command("groups", epilog="Example: trocket topic groups Orders")(topic_groups)
app.command("perm", epilog="Example: trocket topic perm Orders R --yes")(topic_perm)
app.command("units", epilog="Example: trocket topic units Orders broker-a:0 --from 100")(
    topic_units
)
app.command("order-conf", epilog="Example: trocket topic order-conf Orders --set broker-a=4 --yes")(
    topic_order_conf
)
app.command("allocate", epilog="Example: trocket topic allocate Orders client-1 client-2")(
    topic_allocate
)


@static.command("show", epilog="Example: trocket topic static show Orders")
def static_show(name: TopicName, shared: Shared = SHARED) -> None:
    """Show which broker has each queue of a static topic."""
    info = administer(shared, lambda admin: admin.static_topic(name))
    _show_static(info, as_json=shared.as_json)


@static.command(
    "create",
    epilog="Example: trocket topic static create Orders --broker broker-a --broker broker-b",
)
def static_create(
    name: TopicName,
    *,
    queues: Annotated[
        int, typer.Option("--queues", min=1, help="Set the queues of all brokers together.")
    ] = 8,
    broker: Brokers = None,
    dry_run: DryRun = False,
    cluster: Cluster = "",
    shared: Shared = SHARED,
) -> None:
    """Create a static topic on the brokers of a cluster, or add queues to one."""
    info = administer(
        shared,
        lambda admin: admin.create_static_topic(
            name, queues, brokers=broker or (), cluster=cluster or None, dry_run=dry_run
        ),
    )
    _show_static(info, as_json=shared.as_json, is_plan=dry_run)


@static.command(
    "move", epilog="Example: trocket topic static move Orders --broker broker-b --dry-run"
)
def static_move(
    name: TopicName,
    broker: Brokers = None,
    dry_run: DryRun = False,
    cluster: Cluster = "",
    shared: Shared = SHARED,
) -> None:
    """Move the queues of a static topic to some brokers; messages stay where they are."""
    info = administer(
        shared,
        lambda admin: admin.move_static_topic(
            name, broker or (), cluster=cluster or None, dry_run=dry_run
        ),
    )
    _show_static(info, as_json=shared.as_json, is_plan=dry_run)


def _show_static(info: StaticTopicInfo, *, as_json: bool, is_plan: bool = False) -> None:
    """Print the brokers of a static topic's queues."""
    if as_json:
        emit(info)
        return
    show(
        ["Queue", "Broker", "Moved from"],
        [
            [queue_id, leader, info.moved.get(queue_id, "")]
            for queue_id, leader in info.leaders.items()
        ],
        title=f"{info.name} (plan, nothing was changed)" if is_plan else info.name,
    )
