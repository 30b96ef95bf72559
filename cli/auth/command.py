"""`trocket auth`: users and access control lists of brokers and name servers."""

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
from .acl import acl
from .options import (
    OnBroker,
    OnCluster,
    OnNameServers,
    PasswordStdin,
    UserName,
    by_row,
    read_password,
    report_change,
    servers,
)
from .tools import auth_copy, auth_init, auth_migrate, auth_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...client import UserInfo

app = typer.Typer(
    no_args_is_help=True,
    help="Create users, say what they may do, and ask what a user may do: docs/access_control.md.",
)
user = typer.Typer(no_args_is_help=True, help="Create, change, delete, list and show users.")
app.add_typer(user, name="user")
app.add_typer(acl, name="acl")
app.command("test", epilog="Example: trocket auth test alice Pub Topic:Orders --from 10.0.0.7")(
    auth_test
)
app.command("copy", epilog="Example: trocket auth copy broker-a broker-b alice")(auth_copy)
app.command("migrate", epilog="Example: trocket auth migrate conf/plain_acl.yml --dry-run")(
    auth_migrate
)
app.command("init", epilog="Example: trocket auth init >> broker.conf")(auth_init)

IsSuper = Annotated[
    bool, typer.Option("--super", help="A super user, who may do everything. Default: Normal.")
]


@user.command("create", epilog="Example: trocket auth user create alice")
def user_create(
    name: UserName,
    is_super: IsSuper = False,
    password_stdin: PasswordStdin = False,
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Create a user on all masters and slaves, or on the servers of the flags."""
    at = servers(broker, cluster, name_servers=name_servers)
    password = read_password(from_stdin=password_stdin) or ""
    kind = "Super" if is_super else "Normal"
    done = administer(shared, lambda admin: admin.create_user(name, password, user_type=kind, **at))
    report_change("created", name, done, as_json=shared.as_json)


@user.command("update", epilog="Example: trocket auth user update alice --disable")
def user_update(
    name: UserName,
    password: Annotated[
        bool, typer.Option("--password", help="Change the password; it is asked for.")
    ] = False,
    password_stdin: PasswordStdin = False,
    kind: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="Make it a Super or a Normal user.")
    ] = "",
    is_enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Accept or refuse its requests.")
    ] = None,
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Change a user's password, type or status; the rest stays."""
    at = servers(broker, cluster, name_servers=name_servers)
    if not (password or password_stdin or kind or is_enabled is not None):
        usage("give --password, --password-stdin, --type, --enable or --disable")
    is_asked = password or password_stdin
    new = read_password(from_stdin=password_stdin) if is_asked else None
    status = None if is_enabled is None else ("enable" if is_enabled else "disable")
    done = administer(
        shared,
        lambda admin: admin.update_user(
            name, password=new, user_type=kind or None, user_status=status, **at
        ),
    )
    report_change("changed", name, done, as_json=shared.as_json)


@user.command("delete", epilog="Example: trocket auth user delete alice --yes")
def user_delete(
    name: UserName,
    yes: Yes = False,
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Delete a user and its policies."""
    at = servers(broker, cluster, name_servers=name_servers)
    confirm(f"This deletes user {name} and its policies.", yes=yes)
    done = administer(shared, lambda admin: admin.delete_user(name, **at))
    report_change("deleted", name, done, as_json=shared.as_json)


@user.command("list", epilog="Example: trocket auth user list --filter ali")
def user_list(
    filter_text: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only names that contain this.")
    ] = "",
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """List the users, with the servers that have them."""
    at = servers(broker, cluster, name_servers=name_servers)
    found, error = ask_brokers(shared, lambda admin: admin.users(filter_text, **at))
    _show_users(found, as_json=shared.as_json)
    end_with(error)
    note_none([each for users in found.values() for each in users], "no server has such a user")


@user.command("show", epilog="Example: trocket auth user show alice --json")
def user_show(
    name: UserName,
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Show a user as the servers have it; never its password."""
    at = servers(broker, cluster, name_servers=name_servers)
    found, error = ask_brokers(shared, lambda admin: admin.user(name, **at))
    _show_users({server: [each] for server, each in found.items()}, as_json=shared.as_json)
    end_with(error)


def _show_users(found: Mapping[str, Sequence[UserInfo]], *, as_json: bool) -> None:
    """Print users without their passwords, those that are equal on several servers once."""
    rows = by_row({server: map(_row, users) for server, users in found.items()})
    if as_json:
        names = ("username", "userType", "userStatus")
        items: list[dict[str, Any]] = [
            {**dict(zip(names, row, strict=True)), "servers": on}
            for row, on in sorted(rows.items())
        ]
        emit(items)
        return
    show(
        ["User", "Type", "Status", "On"],
        [[*row, " ".join(on)] for row, on in sorted(rows.items())],
    )


def _row(user: UserInfo) -> tuple[str, str, str]:
    return (user.username or "", user.user_type or "", user.user_status or "")
