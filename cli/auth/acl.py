"""`trocket auth acl`: the policies of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...common.terminal import show
from ..session import (
    SHARED,
    Shared,
    Yes,
    administer,
    ask_brokers,
    confirm,
    emit,
    end_with,
    note_none,
    usage,
)
from .options import OnBroker, OnCluster, OnNameServers, UserName, by_row, report_change, servers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ...client import AclInfo

acl = typer.Typer(
    no_args_is_help=True, help="Say what users may do: set, delete, list and show policies."
)

IsDefault = Annotated[
    bool,
    typer.Option("--default", help="A default entry: it decides where no custom entry matches."),
]


@acl.command(
    "set", epilog="Example: trocket auth acl set alice Topic:Orders* Group:billing --allow Pub,Sub"
)
def acl_set(
    name: UserName,
    resources: Annotated[
        list[str],
        typer.Argument(
            metavar="RESOURCE...",
            help="Topic:NAME, Group:NAME, Cluster:NAME; NAME* for all that begin so; * for all.",
        ),
    ],
    allow: Annotated[
        str,
        typer.Option(
            "--allow",
            metavar="ACTIONS",
            help="Allow these: Pub,Sub,Create,Update,Delete,Get,List,All.",
        ),
    ] = "",
    deny: Annotated[str, typer.Option("--deny", metavar="ACTIONS", help="Deny these.")] = "",
    source_ips: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="ADDRESS",
            help="Only for this address or network, 10.0.0.7 or 10.0.0.0/8 (repeatable).",
        ),
    ] = None,
    is_default: IsDefault = False,
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Allow or deny a user actions; an entry replaces that of the same resource."""
    from ...client import PolicyEntryInfo

    at = servers(broker, cluster, name_servers=name_servers)
    if bool(allow) == bool(deny):
        usage("give --allow or --deny")
    actions = [each.strip() for each in (allow or deny).split(",") if each.strip()]
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=actions,
            source_ips=source_ips or None,
            decision="Allow" if allow else "Deny",
        )
        for resource in resources
    ]
    policy_type = _policy_type(is_default=is_default)
    done = administer(
        shared, lambda admin: admin.set_acl(name, entries, policy_type=policy_type, **at)
    )
    report_change("changed", name, done, as_json=shared.as_json)


@acl.command("delete", epilog="Example: trocket auth acl delete alice Topic:Orders* --yes")
def acl_delete(
    name: UserName,
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="Whose entry; without it, all policies.")
    ] = "",
    is_default: IsDefault = False,
    yes: Yes = False,
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Delete an entry of a user's policies, or all of them."""
    at = servers(broker, cluster, name_servers=name_servers)
    if is_default and not resource:
        usage("--default needs a resource: without one, the policies of both types are deleted")
    what = f"the entry for {resource}" if resource else "all policies"
    confirm(f"This deletes {what} of user {name}.", yes=yes)
    policy_type = _policy_type(is_default=is_default)
    done = administer(
        shared,
        lambda admin: admin.delete_acl(name, resource or None, policy_type=policy_type, **at),
    )
    report_change("deleted", f"{what} of {name}", done, as_json=shared.as_json)


@acl.command("list", epilog="Example: trocket auth acl list --resource Orders")
def acl_list(
    user: Annotated[
        str, typer.Option("--user", metavar="TEXT", help="Only users whose names contain this.")
    ] = "",
    resource: Annotated[
        str, typer.Option("--resource", metavar="TEXT", help="Only resources that contain this.")
    ] = "",
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """List the policies of all users."""
    at = servers(broker, cluster, name_servers=name_servers)
    found, error = ask_brokers(shared, lambda admin: admin.acls(user, resource, **at))
    _show_acls(found, as_json=shared.as_json)
    end_with(error)
    note_none([each for acls in found.values() for each in acls], "no server has such a policy")


@acl.command("show", epilog="Example: trocket auth acl show alice")
def acl_show(
    name: UserName,
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Show the policies of a user."""
    at = servers(broker, cluster, name_servers=name_servers)
    found, error = ask_brokers(shared, lambda admin: admin.acl(name, **at))
    _show_acls({server: [each] for server, each in found.items()}, as_json=shared.as_json)
    end_with(error)


def _policy_type(*, is_default: bool) -> str:
    return "Default" if is_default else "Custom"


def _show_acls(found: Mapping[str, Sequence[AclInfo]], *, as_json: bool) -> None:
    """Print the entries, those that are equal on several servers once."""
    rows = by_row({server: _rows(acls) for server, acls in found.items()})
    if as_json:
        names = ("username", "policyType", "resource", "actions", "sourceIps", "decision")
        items: list[dict[str, Any]] = []
        for row, on in rows.items():
            item: dict[str, Any] = dict(zip(names, row, strict=True))
            for name in ("actions", "sourceIps"):
                item[name] = item[name].split(",") if item[name] else []
            items.append({**item, "servers": on})
        emit(items)
        return
    show(
        ["User", "Type", "Resource", "Actions", "From", "Decision", "On"],
        [[*row, " ".join(on)] for row, on in rows.items()],
    )


def _rows(acls: Iterable[AclInfo]) -> Iterator[tuple[str, ...]]:
    """The entries of some users' policies, as strings."""
    for each in acls:
        for policy in each.policies or ():
            for entry in policy.entries or ():
                yield (
                    (each.subject or "").removeprefix("User:"),
                    policy.policy_type or "",
                    entry.resource or "",
                    ",".join(entry.actions or ()),
                    ",".join(entry.source_ips or ()),
                    entry.decision or "",
                )
