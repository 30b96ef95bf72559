"""`trocket group`: consumer groups, their settings and their connected clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.terminal import show
from .group_members import group_consume, group_status, group_topics
from .lag import NO_GROUP, lag
from .session import (
    SHARED,
    Cluster,
    GroupName,
    Shared,
    Yes,
    administer,
    ask_brokers,
    confirm,
    emit,
    end_with,
    expect_names,
    note_none,
    read_pairs,
    usage,
    whole_or_part,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..client import Admin, ClientInfo, GroupClients, GroupInfo

app = typer.Typer(no_args_is_help=True, help="List, show, create and delete consumer groups.")


@app.command("list", epilog="Example: trocket group list")
def group_list(
    is_all: Annotated[bool, typer.Option("--all", help="List RocketMQ's own groups, too.")] = False,
    shared: Shared = SHARED,
) -> None:
    """List the consumer groups."""
    names, error = ask_brokers(shared, lambda admin: admin.groups(is_all=is_all))
    if shared.as_json:
        emit(names)
    else:
        show(["Group"], [[name] for name in names])
    end_with(error)
    note_none(names, NO_GROUP)


@app.command("show", epilog="Example: trocket group show billing")
def group_show(name: GroupName, shared: Shared = SHARED) -> None:
    """Show a group's settings on each broker, its members and its subscriptions."""

    async def ask(admin: Admin) -> tuple[tuple[GroupInfo, str], tuple[GroupClients, str]]:
        info = await whole_or_part(admin.group(name))
        return info, await whole_or_part(admin.clients(name))

    (info, first), (clients, second) = administer(shared, ask)
    if shared.as_json:
        emit({"name": info.name, "settings": info.settings, "members": clients})
    else:
        show(
            ["Broker", "Consumes", "Orderly", "Broadcasts", "Retries", "Retry queues"],
            [
                [
                    broker,
                    _yes(settings.consume_enable),
                    _yes(settings.consume_message_orderly),
                    _yes(settings.consume_broadcast_enable),
                    settings.retry_max_times,
                    settings.retry_queue_nums,
                ]
                for broker, settings in info.settings.items()
            ],
            title=info.name,
        )
        show_clients(clients.clients)
        show(
            ["Topic", "Type", "Wants"],
            [[s.topic, s.expression_type, s.expression] for s in clients.subscriptions],
        )
    end_with(first, second)


@app.command("clients", epilog="Example: trocket group clients billing --producers")
def group_clients(
    name: GroupName,
    producers: Annotated[
        bool, typer.Option("--producers", help="List producers of this group, not consumers.")
    ] = False,
    topic: Annotated[
        str, typer.Option("--topic", help="With --producers, ask only this topic's brokers.")
    ] = "",
    shared: Shared = SHARED,
) -> None:
    """List the connected clients of a group."""
    if topic and not producers:
        usage("--topic needs --producers")

    async def ask(admin: Admin) -> tuple[Sequence[ClientInfo], str]:
        if producers:
            return await whole_or_part(admin.producers(name, topic or None))
        found, error = await whole_or_part(admin.clients(name))
        return found.clients, error

    clients, error = administer(shared, ask)
    if not clients and not producers:
        expect_names()
    if shared.as_json:
        emit(clients)
    else:
        show_clients(clients)
    end_with(error)
    kind = "producer" if producers else "consumer"
    note_none(clients, f"no {kind} of the group {name} is connected")


def show_clients(clients: Sequence[ClientInfo]) -> None:
    """Print a table of connected clients."""
    show(
        ["Client", "Address", "Language", "Version", "Brokers"],
        [
            [each.client_id, each.address, each.language, each.version, " ".join(each.brokers)]
            for each in clients
        ],
    )


@app.command("create", epilog="Example: trocket group create billing --retries 3")
def group_create(
    name: GroupName,
    retries: Annotated[
        int | None, typer.Option("--retries", help="Retry a message this often. Default: 16.")
    ] = None,
    orderly: Annotated[bool, typer.Option("--orderly", help="Consume in order.")] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set any field by RocketMQ's name, such as consumeEnable=false (repeatable).",
        ),
    ] = None,
    cluster: Cluster = "",
    shared: Shared = SHARED,
) -> None:
    """Create a group on every broker of a cluster, or replace its settings there."""
    settings = _settings(read_pairs(setting or (), "--set"))
    if retries is not None:
        settings["retry_max_times"] = retries
    if orderly:
        settings["consume_message_orderly"] = True
    administer(
        shared,
        lambda admin: admin.create_group(name, cluster=cluster or None, **settings),
    )
    if shared.as_json:
        emit({"created": name})


@app.command("delete", epilog="Example: trocket group delete billing --yes --with-topics")
def group_delete(
    name: GroupName,
    yes: Yes = False,
    keep_offsets: Annotated[
        bool, typer.Option("--keep-offsets", help="Keep its offsets for a new group of this name.")
    ] = False,
    with_topics: Annotated[
        bool,
        typer.Option("--with-topics", help="Delete its retry and DLQ topics and their messages."),
    ] = False,
    cluster: Cluster = "",
    shared: Shared = SHARED,
) -> None:
    """Delete a group and its offsets."""
    confirm(f"This deletes group {name}.", yes=yes)
    administer(
        shared,
        lambda admin: admin.delete_group(
            name,
            cluster=cluster or None,
            keep_offsets=keep_offsets,
            with_topics=with_topics,
        ),
    )
    if shared.as_json:
        emit({"deleted": name})


app.command("progress", hidden=True, epilog="Example: trocket lag billing --owners")(lag)
app.command("topics", epilog="Example: trocket group topics billing")(group_topics)
app.command("status", epilog="Example: trocket group status billing --stacks")(group_status)
app.command(
    "consume",
    epilog="Example: trocket group consume billing 7F00000124A551B6EF5F6C42A3AC0000 --yes",
)(group_consume)


def _settings(pairs: dict[str, str]) -> dict[str, Any]:
    """Convert the strings to the types of the settings' fields."""
    import msgspec

    from ..remoting.bodies import SubscriptionGroupConfig

    fields = {field.encode_name: field for field in msgspec.structs.fields(SubscriptionGroupConfig)}
    found = {}
    for name, text in pairs.items():
        field = fields.get(name)
        if field is None or name == "groupName":
            known = ", ".join(sorted(fields.keys() - {"groupName"}))
            usage(f"--set: a group has no setting {name!r}; known settings: {known}")
        try:
            if text[:1] in ("{", "["):
                found[field.name] = msgspec.json.decode(text, type=field.type)
            else:
                found[field.name] = msgspec.convert(text, field.type, strict=False)
        except msgspec.MsgspecError as error:
            usage(f"--set {name}={text}: {error}")
    return found


def _yes(value: bool) -> str:
    return "yes" if value else "no"
