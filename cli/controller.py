"""`trocket controller`: a controller, or one of the commands about controllers and their sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.java_integers import INT32_MAX
from ..common.terminal import show
from .cluster import Set, show_changes
from .completion import broker_names
from .session import (
    SHARED,
    Cluster,
    Shared,
    Yes,
    administer,
    ask_brokers,
    confirm,
    emit,
    end_with,
    note_none,
    read_pairs,
    usage,
    whole_or_part,
)

if TYPE_CHECKING:
    from ..client import Admin, ControllerInfo
    from ..remoting.bodies.controller import EpochEntryCache, ReplicasInfo

app = typer.Typer()

Controllers = Annotated[
    str,
    typer.Option(
        "--controllers",
        "-a",
        metavar="ADDRESSES",
        help="Ask these controllers, host:port;host:port. Default: those of the brokers' settings.",
    ),
]
SetName = Annotated[
    str,
    typer.Argument(
        metavar="BROKER",
        help="The name that the brokers of the set share.",
        autocompletion=broker_names,
    ),
]


@app.command("status", epilog="Example: trocket controller status broker-a")
def controller_status(
    broker: Annotated[
        str,
        typer.Argument(
            metavar="[BROKER]",
            help="The name that the brokers of a set share. Default: all sets.",
            autocompletion=broker_names,
        ),
    ] = "",
    controllers: Controllers = "",
    shared: Shared = SHARED,
) -> None:
    """Show which controller leads, and the master and the in-sync brokers of each set."""
    addresses = read_controllers(controllers)

    async def ask(
        admin: Admin,
    ) -> tuple[dict[str, ControllerInfo], dict[str, ReplicasInfo], str]:
        asked = addresses or await admin.controllers(broker or None)
        found, error = await whole_or_part(admin.controller_metadata(asked))
        names = [broker] if broker else None
        return found, await admin.in_sync_sets(names, controllers=asked), error

    found, sets, error = administer(shared, ask)
    if shared.as_json:
        emit({"controllers": list(found.values()), "sets": sets})
    else:
        show(
            ["Controller", "Leads", "Group", "Leader"],
            [
                [each.address, _yes(each.is_leader), each.group, each.leader_address]
                for each in found.values()
            ],
        )
        show(
            ["Set", "Epoch", "Id", "Address", "Role", "Alive", "In sync"],
            [row for name, each in sorted(sets.items()) for row in _members(name, each)],
        )
        note_none(sets, f"the controllers do not know {broker or 'any of the brokers'}")
    end_with(error)


def _members(name: str, replicas: ReplicasInfo) -> list[list[Any]]:
    rows = [
        [
            name,
            replicas.master_epoch,
            each.broker_id,
            each.broker_address,
            "master" if each.broker_id == replicas.master_broker_id else "slave",
            _yes(each.alive),
            _yes(is_in_sync),
        ]
        for is_in_sync, members in (
            (True, replicas.in_sync_replicas),
            (False, replicas.not_in_sync_replicas),
        )
        for each in members
    ]
    return sorted(rows, key=lambda row: row[2])


def _yes(value: bool) -> str:
    return "yes" if value else "no"


@app.command("epochs", epilog="Example: trocket controller epochs broker-a")
def controller_epochs(broker: SetName, shared: Shared = SHARED) -> None:
    """Show under which masters the parts of the log were written, for each broker of a set."""
    found, error = ask_brokers(shared, lambda admin: admin.set_epochs(broker))
    if shared.as_json:
        emit(found)
    else:
        show(
            ["Address", "Role", "Epoch", "Start", "End"],
            [
                [
                    address,
                    _role(cache),
                    entry.epoch,
                    entry.start_offset,
                    _end(cache, entry.end_offset),
                ]
                for address, cache in sorted(found.items())
                for entry in cache.epoch_list
            ],
            title=broker,
        )
    end_with(error)


def _role(cache: EpochEntryCache) -> str:
    return "slave" if cache.broker_id else "master"


def _end(cache: EpochEntryCache, end: int) -> int:
    from ..remoting.bodies.controller import OPEN_END

    return cache.max_offset if end == OPEN_END else end


@app.command("elect", epilog="Example: trocket controller elect broker-a 2 --yes")
def controller_elect(
    broker: SetName,
    controller_id: Annotated[
        int,
        typer.Argument(
            metavar="ID",
            min=1,
            max=INT32_MAX,
            help="The broker's number in its set, as `trocket controller status` shows it.",
        ),
    ],
    controllers: Controllers = "",
    yes: Yes = False,
    cluster: Cluster = "",
    shared: Shared = SHARED,
) -> None:
    """Make one broker of a set its master; it must be alive and in sync.

    The master before becomes a slave. Sends fail for a moment, and are tried again by clients.
    """
    addresses = read_controllers(controllers)
    confirm(f"This makes the broker {controller_id} the master of {broker}.", yes=yes)
    elected = administer(
        shared,
        lambda admin: admin.elect_master(
            broker, controller_id, cluster=cluster or None, controllers=addresses
        ),
    )
    if shared.as_json:
        emit(elected)
    else:
        show(
            ["Set", "Epoch", "Id", "Address", "Changed"],
            [
                [
                    elected.broker_name,
                    elected.epoch,
                    elected.controller_id,
                    elected.address,
                    _yes(elected.is_new),
                ]
            ],
        )


@app.command("clean", epilog="Example: trocket controller clean broker-a 2 --yes")
def controller_clean(
    broker: SetName,
    controller_ids: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="[ID]...",
            min=1,
            max=INT32_MAX,
            help="Numbers of brokers in the set. Default: the whole set.",
        ),
    ] = None,
    living: Annotated[
        bool, typer.Option("--living", help="Also brokers that are alive, and a set with a master.")
    ] = False,
    controllers: Controllers = "",
    yes: Yes = False,
    cluster: Cluster = "",
    shared: Shared = SHARED,
) -> None:
    """Have the controllers forget brokers that will not come back.

    A broker that is forgotten must not start again on its data: the controllers would not know it.
    """
    addresses = read_controllers(controllers)
    ids = sorted(set(controller_ids or ()))
    whom = f"the brokers {', '.join(map(str, ids))} of {broker}" if ids else f"the set {broker}"
    confirm(f"The controllers forget {whom}.", yes=yes)
    administer(
        shared,
        lambda admin: admin.clean_broker_data(
            broker, ids, is_living_too=living, cluster=cluster or None, controllers=addresses
        ),
    )
    if shared.as_json:
        emit({"cleaned": {broker: ids}})


@app.command(
    "config",
    epilog="Example: trocket controller config --set scanNotActiveBrokerInterval=2000",
)
def controller_config(
    setting: Set = None,
    controllers: Controllers = "",
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Show the settings of all controllers by the keys of controller.conf, or change some."""
    addresses = read_controllers(controllers)
    settings = read_pairs(setting or (), "--set")
    if settings:
        confirm("This changes settings of all controllers.", yes=yes)
        administer(
            shared, lambda admin: admin.update_controller_config(settings, controllers=addresses)
        )
        if shared.as_json:
            emit({"changed": settings})
        else:
            show_changes("all controllers", settings)
        return

    tables, error = ask_brokers(shared, lambda admin: admin.controller_config(addresses))
    if shared.as_json:
        emit(tables)
    else:
        show(
            ["Controller", "Key", "Value"],
            [
                [address, key, value]
                for address, table in tables.items()
                for key, value in sorted(table.items())
            ],
        )
    end_with(error)


def read_controllers(text: str) -> tuple[str, ...] | None:
    """The addresses of --controllers; None: the flag is not given. Wrong ones are wrong usage."""
    if not text:
        return None
    from ..common.config import is_address

    found = tuple(dict.fromkeys(filter(None, (each.strip() for each in text.split(";")))))
    for each in found:
        if not is_address(each):
            usage(f"--controllers: {each!r} is not host:port, such as 10.0.0.1:9878")
    if not found:
        usage("--controllers: no address, such as 10.0.0.1:9878")
    return found
