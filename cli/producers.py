"""`trocket producers`: every connected producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..common.terminal import show, time_text
from .session import (
    DEFAULT_URL,
    AsJson,
    OnlyCluster,
    TimeoutS,
    Url,
    administer,
    emit,
    end_with,
    usage,
    whole_or_part,
)

if TYPE_CHECKING:
    from ..client import Admin, ProducerInfo


def producers(
    group: Annotated[
        str, typer.Argument(metavar="[GROUP]", help="A producer group. Default: all.")
    ] = "",
    broker: Annotated[
        str,
        typer.Option("--broker", metavar="BROKER", help="Ask only this broker: name or host:port."),
    ] = "",
    cluster: OnlyCluster = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    timeout_s: TimeoutS = 3.0,
) -> None:
    """List the connected producers of all groups, once for each broker that knows them."""
    if broker and cluster:
        usage("give --broker or --cluster, not both")

    async def ask(admin: Admin) -> tuple[list[ProducerInfo], str]:
        found, error = await whole_or_part(
            admin.all_producers(broker or None, cluster=cluster or None)
        )
        return [each for each in found if not group or each.group == group], error

    found, error = administer(url, timeout_s, ask)
    if as_json:
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
