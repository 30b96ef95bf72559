"""`trocket cluster`: the brokers, their runtime information, and the settings of all servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from ..common.terminal import say, show
from ..common.texts import one_line
from .session import (
    SHARED,
    BrokerName,
    Shared,
    Yes,
    administer,
    ask_brokers,
    confirm,
    emit,
    end_with,
    read_pairs,
)

app = typer.Typer(help="List the brokers of all clusters.", epilog="Example: trocket cluster list")


@app.callback(invoke_without_command=True)
def cluster(
    context: typer.Context,
    shared: Shared = SHARED,
) -> None:
    """List the brokers of all clusters: names, ids and addresses."""
    if context.invoked_subcommand is None:
        cluster_list(shared)


@app.command("list", epilog="Example: trocket cluster list --json")
def cluster_list(shared: Shared = SHARED) -> None:
    """List the brokers of all clusters: names, ids and addresses."""
    view = administer(shared, lambda admin: admin.cluster())
    if view.warning:
        say(f"trocket: warning: {one_line(view.warning)}")
    if shared.as_json:
        emit(view)
        return
    show(
        ["Cluster", "Broker", "Id", "Address"],
        [
            [broker.cluster, broker.name, broker_id, address]
            for broker in view.brokers
            for broker_id, address in broker.addresses.items()
        ],
        spare=("Cluster",),
    )


@app.command("info", hidden=True, epilog="Example: trocket broker info broker-a")
def cluster_info(broker: BrokerName, shared: Shared = SHARED) -> None:
    """Show a broker's runtime information, by RocketMQ's names."""
    table = administer(shared, lambda admin: admin.broker_runtime_info(broker))
    if shared.as_json:
        emit(table)
    else:
        show(["Name", "Value"], sorted(table.items()), title=broker)


Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change this key (repeatable)."),
]


@app.command(
    "config",
    hidden=True,
    epilog="Example: trocket broker config broker-a --set transactionCheckMax=5",
)
def cluster_config(
    broker: BrokerName,
    setting: Set = None,
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Show a broker's settings by the keys of broker.conf, or change some while it runs."""
    settings = read_pairs(setting or (), "--set")
    if settings:
        confirm(f"This changes settings of the broker {broker}.", yes=yes)
        said = administer(shared, lambda admin: admin.update_broker_config(broker, settings))
        if shared.as_json:
            emit({"changed": settings, "remark": said})
        else:
            show_changes(broker, settings)
            if said:
                say(f"trocket: {broker}: {said}")
        return
    table = administer(shared, lambda admin: admin.broker_config(broker))
    if shared.as_json:
        emit(table)
    else:
        show(["Key", "Value"], sorted(table.items()), title=broker)


def show_changes(where: str, settings: Mapping[str, str]) -> None:
    """Print the settings that were changed, a line each."""
    for key, value in settings.items():
        typer.echo(f"{where}: {key}={value} is in effect")


@app.command(
    "namesrv-config",
    hidden=True,
    epilog="Example: trocket namesrv config --set logLevel=WARNING",
)
def cluster_namesrv_config(
    setting: Set = None,
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Show the settings of all name servers by the keys of namesrv.conf, or change some."""
    settings = read_pairs(setting or (), "--set")
    if settings:
        confirm("This changes settings of all name servers of the URL.", yes=yes)
        administer(shared, lambda admin: admin.update_name_server_config(settings))
        if shared.as_json:
            emit({"changed": settings})
        else:
            show_changes("all name servers", settings)
        return

    tables, error = ask_brokers(shared, lambda admin: admin.name_server_config())
    if shared.as_json:
        emit(tables)
    else:
        show(
            ["Name server", "Key", "Value"],
            [
                [address, key, value]
                for address, table in tables.items()
                for key, value in sorted(table.items())
            ],
        )
    end_with(error)
