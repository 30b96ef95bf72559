"""`trocket namesrv`: a name server, or one of the commands about settings and stored values."""

from __future__ import annotations

from typing import Annotated

import typer

from ..common.terminal import show
from .cluster import cluster_namesrv_config
from .session import (
    SHARED,
    Shared,
    Yes,
    administer,
    confirm,
    emit,
    fail,
)

app = typer.Typer()
kv = typer.Typer(no_args_is_help=True, help="List, show, set and delete values of name servers.")
app.add_typer(kv, name="kv")
app.command("config", epilog="Example: trocket namesrv config --set logLevel=WARNING")(
    cluster_namesrv_config
)

Namespace = Annotated[
    str,
    typer.Argument(metavar="NAMESPACE", help="The namespace, such as ORDER_TOPIC_CONFIG."),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key in the namespace.")]


@kv.command("list", epilog="Example: trocket namesrv kv list ORDER_TOPIC_CONFIG")
def kv_list(
    namespace: Namespace,
    shared: Shared = SHARED,
) -> None:
    """List the keys and values of a namespace."""
    table = administer(shared, lambda admin: admin.kv_configs(namespace))
    if shared.as_json:
        emit(table)
    else:
        show(["Key", "Value"], list(table.items()), title=namespace)


@kv.command("get", epilog="Example: trocket namesrv kv get ORDER_TOPIC_CONFIG Orders")
def kv_get(
    namespace: Namespace,
    key: Key,
    shared: Shared = SHARED,
) -> None:
    """Show a value; status 1 if there is none."""
    value = administer(shared, lambda admin: admin.kv_config(namespace, key))
    if value is None:
        fail(f"the name server keeps nothing under {key} of {namespace}")
    if shared.as_json:
        emit({"value": value})
    else:
        show(["Value"], [[value]])


@kv.command("set", epilog="Example: trocket namesrv kv set ORDER_TOPIC_CONFIG Orders broker-a:4")
def kv_set(
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value.")],
    shared: Shared = SHARED,
) -> None:
    """Set a value at every name server of the URL."""
    administer(shared, lambda admin: admin.put_kv_config(namespace, key, value))
    if shared.as_json:
        emit({"set": key})


@kv.command("delete", epilog="Example: trocket namesrv kv delete ORDER_TOPIC_CONFIG Orders --yes")
def kv_delete(
    namespace: Namespace,
    key: Key,
    yes: Yes = False,
    shared: Shared = SHARED,
) -> None:
    """Delete a value at every name server of the URL."""
    confirm(f"This deletes {key} of {namespace} at the name servers.", yes=yes)
    administer(shared, lambda admin: admin.delete_kv_config(namespace, key))
    if shared.as_json:
        emit({"deleted": key})
