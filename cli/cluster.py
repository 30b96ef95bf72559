"""`trocket cluster`: the brokers, their runtime information and their settings."""

from __future__ import annotations

from typing import Annotated

import typer

from ..common.terminal import one_line, say, show
from .session import (
    DEFAULT_URL,
    AsJson,
    TimeoutS,
    Url,
    Yes,
    administer,
    confirm,
    emit,
    read_pairs,
    usage,
)

app = typer.Typer(
    help="List the brokers; show a broker's runtime information (info) and settings (config).",
    epilog="Example: trocket cluster --json",
)

Broker = Annotated[
    str,
    typer.Argument(metavar="BROKER", help="Ask this broker: its name (the master), or host:port."),
]


@app.callback(invoke_without_command=True)
def cluster(
    context: typer.Context,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    timeout_s: TimeoutS = 3.0,
) -> None:
    """List the brokers of all clusters: names, ids and addresses."""
    if context.invoked_subcommand is not None:
        for name in ("url", "as_json", "timeout_s"):
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                usage(
                    f"put flags after the command: trocket cluster {context.invoked_subcommand} …"
                )
        return
    view = administer(url, timeout_s, lambda admin: admin.cluster())
    if view.warning:
        say(f"trocket: warning: {one_line(view.warning)}")
    if as_json:
        emit(view)
        return
    show(
        ["Cluster", "Broker", "Id", "Address"],
        [
            [broker.cluster, broker.name, broker_id, address]
            for broker in view.brokers
            for broker_id, address in broker.addresses.items()
        ],
    )


@app.command("info", epilog="Example: trocket cluster info broker-a")
def cluster_info(
    broker: Broker, url: Url = DEFAULT_URL, as_json: AsJson = False, timeout_s: TimeoutS = 3.0
) -> None:
    """Show a broker's runtime information, by RocketMQ's names."""
    table = administer(url, timeout_s, lambda admin: admin.broker_runtime_info(broker))
    if as_json:
        emit(table)
    else:
        show(["Name", "Value"], sorted(table.items()), title=broker)


@app.command(
    "config", epilog="Example: trocket cluster config broker-a --set flushDiskType=SYNC_FLUSH"
)
def cluster_config(
    broker: Broker,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change this key (repeatable)."),
    ] = None,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    timeout_s: TimeoutS = 3.0,
) -> None:
    """Show a broker's settings by the keys of broker.conf, or change some while it runs."""
    settings = read_pairs(setting or (), "--set")
    if settings:
        confirm(f"This changes settings of the broker {broker}.", yes=yes)
        administer(url, timeout_s, lambda admin: admin.update_broker_config(broker, settings))
        if as_json:
            emit({"changed": settings})
        return
    table = administer(url, timeout_s, lambda admin: admin.broker_config(broker))
    if as_json:
        emit(table)
    else:
        show(["Key", "Value"], sorted(table.items()), title=broker)
