"""`trocket producers`: every connected producer."""

from __future__ import annotations

from typing import Annotated

import typer

from ..common.terminal import show, time_text
from .completion import broker_names
from .session import (
    SHARED,
    OnlyCluster,
    Shared,
    ask_brokers,
    emit,
    end_with,
    note_none,
    usage,
)


def producers(
    group: Annotated[
        str, typer.Argument(metavar="[GROUP]", help="A producer group. Default: all.")
    ] = "",
    broker: Annotated[
        str,
        typer.Option(
            "--broker",
            metavar="BROKER",
            help="Ask only this broker: name or host:port.",
            autocompletion=broker_names,
        ),
    ] = "",
    cluster: OnlyCluster = "",
    shared: Shared = SHARED,
) -> None:
    """List the connected producers of all groups, once for each broker that knows them."""
    if broker and cluster:
        usage("give --broker or --cluster, not both")

    every, error = ask_brokers(
        shared,
        lambda admin: admin.all_producers(broker or None, cluster=cluster or None),
    )
    found = [each for each in every if not group or each.group == group]
    if shared.as_json:
        emit(found)
    else:
        show(
            ["Group", "Client", "Address", "Language", "Version", "Broker", "Last heartbeat"],
            [
                [
                    each.group,
                    each.client_id,
                    each.address,
                    each.language,
                    each.version,
                    each.broker_name,
                    time_text(each.last_heartbeat_ms),
                ]
                for each in found
            ],
        )
    end_with(error)
    note_none(found, f"no producer{f' of the group {group}' if group else ''} is connected")
