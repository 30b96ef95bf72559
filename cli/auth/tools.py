"""Commands of `trocket auth` beyond users and policies: init, test, copy, migrate."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...common.config import property_line
from ...common.terminal import say, show
from ..session import (
    EXIT_FAILED,
    SHARED,
    Shared,
    administer,
    emit,
    end_with,
    fail,
    usage,
    whole_or_part,
)
from .options import (
    OnBroker,
    OnCluster,
    OnNameServers,
    PasswordStdin,
    UserName,
    read_password,
    servers,
)

if TYPE_CHECKING:
    from ...auth.accounts import Accounts
    from ...auth.model import Action, Address, Resource
    from ...auth.plain_acl import PlainAcl
    from ...auth.verdict import Verdict
    from ...client import AclInfo, Admin, UserInfo
    from ...client.admin.accounts import Servers

    _Users = dict[str, UserInfo]
    _Acls = dict[str, AclInfo]

GENERATED_BYTES: Final = 24
"""Random bytes of a generated password, which has 32 characters then."""

Server = Annotated[
    str,
    typer.Argument(help="A broker (name or host:port), or the host:port of a name server."),
]


def auth_init(
    name: Annotated[
        str, typer.Option("--user", metavar="USER", help="The first super user's name.")
    ] = "admin",
    inner: Annotated[
        str,
        typer.Option("--inner", metavar="USER", help="The account of servers among themselves."),
    ] = "inner",
    password_stdin: PasswordStdin = False,
) -> None:
    """Print the lines for broker.conf and namesrv.conf that switch access control on.

    They make two super users when the server starts: the first administrator, and the account with
    which brokers sign their requests to each other and to name servers. Passwords are generated;
    the administrator's may be given instead. Use the same lines for all servers of a cluster, and
    keep the files readable for their owner only.
    """
    import msgspec

    if not name.strip() or not inner.strip() or name == inner:
        usage("--user and --inner are two different names")
    password = read_password(from_stdin=password_stdin, is_required=False)
    first = {"username": name, "password": password or secrets.token_urlsafe(GENERATED_BYTES)}
    own = {"accessKey": inner, "secretKey": secrets.token_urlsafe(GENERATED_BYTES)}
    lines = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": msgspec.json.encode(first).decode(),
        "innerClientAuthenticationCredentials": msgspec.json.encode(own).decode(),
    }
    for key, value in lines.items():
        typer.echo(property_line(key, value), nl=False)
    say(
        "trocket: these lines have passwords: append them to broker.conf and namesrv.conf of all "
        "servers, and make the files readable for their owner only (chmod 600)"
    )


def auth_test(
    name: UserName,
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help="Pub, Sub, Create, Update, Delete, Get or List.")
    ],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="Topic:NAME, Group:NAME or Cluster:NAME.")
    ],
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="ADDRESS",
            help="The client's address. Without it, entries for addresses do not count.",
        ),
    ] = "",
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Say whether a user may do something, and which entry of its policies decides.

    The answer comes from the policies that the servers return; nothing is done in the user's name.
    The exit status is 0 if the user may do it on all servers that were asked, and 1 if not.
    """
    from ...auth.model import Action, Resource, ResourcePattern, parse_address

    at = servers(broker, cluster, name_servers=name_servers)
    asked, wanted = Resource.parse(resource), Action.of(action)
    if asked is None or asked.pattern is ResourcePattern.PREFIXED:
        usage(f"{resource!r} is not Topic:NAME, Group:NAME or Cluster:NAME")
    if wanted is None or wanted in (Action.ALL, Action.ANY):
        usage(f"{action!r} is not Pub, Sub, Create, Update, Delete, Get or List")
    address = parse_address(source) if source else None
    if source and address is None:
        usage(f"--source: {source!r} is not an address")

    async def ask(admin: Admin) -> tuple[tuple[_Users, str], tuple[_Acls, str]]:
        users = await whole_or_part(admin.user(name, **at))
        return users, await whole_or_part(admin.acl(name, **at))

    (users, first), (acls, second) = administer(shared, ask)
    verdicts = {
        server: _verdict(user, acls[server], asked, wanted, address)
        for server, user in users.items()
        if server in acls
    }
    if shared.as_json:
        emit([_as_json(server, each) for server, each in verdicts.items()])
    else:
        rows = [
            [server, "allowed" if each.is_allowed else "denied", each.reason]
            for server, each in verdicts.items()
        ]
        show(["Server", "Answer", "Reason"], rows)
    end_with(first, second)
    if not all(each.is_allowed for each in verdicts.values()):
        raise typer.Exit(EXIT_FAILED)


def _verdict(
    user: UserInfo, acl: AclInfo, asked: Resource, action: Action, address: Address | None
) -> Verdict:
    """The verdict by what a server returned. Other servers may have values that ours refuse."""
    from ...auth.conversion import acl_of
    from ...auth.model import User, UserStatus, UserType
    from ...auth.verdict import verdict
    from ...remoting.errors import RequestRefused

    value = User(
        user.username or "",
        "",
        UserType.of(user.user_type) or UserType.NORMAL,
        UserStatus.of(user.user_status) or UserStatus.ENABLE,
    )
    try:
        policies = acl_of(acl) if acl.policies else None
    except RequestRefused as refusal:
        fail(f"the policies of {value.subject} cannot be read: {refusal.remark}")
    return verdict(value, policies, asked, action, address)


def _as_json(server: str, found: Verdict) -> dict[str, object]:
    from ...auth.conversion import entry_info

    return {
        "server": server,
        "isAllowed": found.is_allowed,
        "reason": found.reason,
        "policyType": found.policy_type and found.policy_type.value,
        "entry": found.entry and entry_info(found.entry),
    }


def auth_copy(
    source: Server,
    target: Server,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="USER...", help="Only these users. Default: all.")
    ] = None,
    shared: Shared = SHARED,
) -> None:
    """Copy users, with passwords and policies, from one server to another.

    Your account must be a super user of both. A user that the target has takes the source's
    password, type and status, and gets the source's entries beside its own.
    """

    async def copy(admin: Admin) -> list[str]:
        return await admin.copy_accounts(source, target, names or None)

    copied = administer(shared, copy)
    if shared.as_json:
        emit({"copied": copied})
    else:
        typer.echo(f"copied {', '.join(copied) or 'nothing'} from {source} to {target}")


def auth_migrate(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A plain_acl.yml, or the folder that has it and acl/*.yml."
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be created, and change nothing.")
    ] = False,
    broker: OnBroker = "",
    cluster: OnCluster = "",
    name_servers: OnNameServers = False,
    shared: Shared = SHARED,
) -> None:
    """Create users and policies for the accounts of ACL 1.0.

    A user that one of the servers has stays as it is. What means something else in ACL 2.0, such as
    white addresses, is printed on standard error.
    """
    from ...auth.accounts import Accounts
    from ...auth.migration import migrate

    at = servers(broker, cluster, name_servers=name_servers)
    accounts = Accounts()
    report = migrate(_plain_acl(path), accounts)
    existing: set[str] = set()
    if not dry_run:
        existing = administer(shared, partial(_upload, accounts=accounts, at=at))
    rows = []
    for name in sorted(accounts.users):
        user = accounts.users[name]
        acl = accounts.acls.get(user.subject)
        count = 0 if acl is None else sum(len(policy.entries) for policy in acl.policies)
        outcome = "exists" if name in existing else ("planned" if dry_run else "created")
        rows.append((name, user.user_type.value, count, outcome))
    if shared.as_json:
        names = ("username", "userType", "entries", "outcome")
        emit([dict(zip(names, row, strict=True)) for row in rows])
    else:
        show(["User", "Type", "Entries", "Outcome"], [list(row) for row in rows])
    for remark in report.remarks:
        say(f"trocket: {remark}")
    end_with(*(f"{name} is not migrated: {why}" for name, why in report.refused.items()))


def _plain_acl(path: Path) -> PlainAcl:
    """The accounts of a file or a folder of ACL 1.0; what cannot be read ends the command."""
    from ...auth.plain_acl import PlainAcl, read_file
    from ...auth.plain_acl_files import PlainAclFiles
    from ...common.clock import SystemClock
    from ...common.config import ConfigError
    from ...disk.os_disk import OsDisk

    try:
        if path.is_dir():
            files = PlainAclFiles(str(path), clock=SystemClock(), disk=OsDisk())
            files.load()
            return files.acl
        return PlainAcl([read_file(path.read_bytes(), str(path))])
    except (OSError, ConfigError) as error:
        fail(error)


async def _upload(admin: Admin, accounts: Accounts, at: Servers) -> set[str]:
    """Create users that no server has, with their policies. Returns: those that one has."""
    from ...auth.conversion import acl_info

    found = await admin.users(**at)
    existing = {user.username or "" for users in found.values() for user in users}
    for name, user in accounts.users.items():
        if name in existing:
            continue
        await admin.create_user(name, user.password, user_type=user.user_type.value, **at)
        acl = accounts.acls.get(user.subject)
        for policy in acl_info(acl).policies or () if acl is not None else ():
            kind = policy.policy_type or "Custom"
            await admin.set_acl(name, policy.entries or (), policy_type=kind, **at)
    return existing & accounts.users.keys()
