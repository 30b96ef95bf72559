"""`trocket console`: the web console of a cluster, or of the store of a stopped broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common import parent
from ..common.terminal import say
from .console_extra import NOT_INSTALLED, is_installed
from .help_text import Family
from .session import SHARED, Shared, fail, new_client, usage

if TYPE_CHECKING:
    from ..client import Client
    from ..console.console import Console
    from ..console.settings import ConsoleSettings
    from ..remoting.signature import Credentials


class PathFamily(Family):
    """A family whose first word may be a path in the place of a command's name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Hand a path on as the option --store, and what follows it as further options."""
        rest = self.make_parser(ctx).parse_args(list(args))[1]
        if rest and rest[0] not in self.commands:
            args = [*args[: len(args) - len(rest)], "--store", *rest]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="Serve a web console of a cluster, or of a stopped broker's store.",
    invoke_without_command=True,
    subcommand_metavar="[PATH]",
    cls=PathFamily,
)

_ROLES = ("look", "operate", "administer")


@app.callback(
    invoke_without_command=True, epilog="Example: trocket console -n 10.0.0.7:9876 --port 8082"
)
def console(
    context: typer.Context,
    host: Annotated[str, typer.Option("--host", help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Listen on this port; 0: any free one.")
    ] = 8082,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Also answer requests to this name (repeatable)."
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="PATH", help="Path of the console behind a proxy.")
    ] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change.")] = False,
    passwords: Annotated[
        Path | None,
        typer.Option("--passwords", metavar="FILE", help="People and roles; see `password`."),
    ] = None,
    trust_header: Annotated[
        str,
        typer.Option("--trust-header", metavar="NAME", help="The proxy's header with the person."),
    ] = "",
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trust-proxy", metavar="IP", help="Take that header from this address (repeatable)."
        ),
    ] = None,
    trust_role: Annotated[
        str, typer.Option("--trust-role", metavar="ROLE", help="Role of people with that header.")
    ] = "look",
    cluster_accounts: Annotated[
        bool,
        typer.Option(
            "--cluster-accounts",
            help="Let people log in with accounts of the cluster, which decides what they may do.",
        ),
    ] = False,
    audit_log: Annotated[
        Path | None,
        typer.Option("--audit-log", metavar="FILE", help="Append each change to this file."),
    ] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask", metavar="TOPIC:PATH", help="Hide this part of bodies, such as orders:$.card."
        ),
    ] = None,
    decoder: Annotated[
        str,
        typer.Option(
            "--decoder", metavar="PACKAGE:FUNCTION", help="Show bodies by this function, too."
        ),
    ] = "",
    exit_with_parent: Annotated[
        bool,
        typer.Option(
            "--exit-with-parent",
            help="Stop when the process that started this one has ended, however it ended.",
        ),
    ] = False,
    store: Annotated[
        str,
        typer.Option("--store", metavar="PATH", help="Show the store of a stopped broker: PATH."),
    ] = "",
    conf: Annotated[
        str,
        typer.Option("-c", "--conf", metavar="FILE", help="Take PATH's settings from this file."),
    ] = "",
    shared: Shared = SHARED,
) -> None:
    """Serve a web console of a cluster, trocket's or Apache's from 4.9 on, or of a store.

    It says where a message is and why it is not consumed. Without --passwords, --cluster-accounts
    and --trust-header it listens on loopback only, and prints a token to log in with.

    With PATH, the data folder of a stopped broker, it shows what the files hold. They are only
    read, and no broker can open them meanwhile.
    """
    if context.invoked_subcommand is not None:
        return
    _check_installed()
    from ..console.settings import ConsoleSettings

    if bool(trust_header) != bool(trust_proxy):
        usage("give --trust-header and --trust-proxy together")
    if trust_role not in _ROLES:
        usage(f"--trust-role is one of {', '.join(_ROLES)}")
    if cluster_accounts and (passwords is not None or trust_header):
        usage("give --cluster-accounts without --passwords and --trust-header")
    if cluster_accounts and store:
        usage("a stopped broker's store has no accounts: leave out --cluster-accounts")
    has_people = cluster_accounts or passwords is not None or bool(trust_header)
    if not has_people and host not in ("127.0.0.1", "::1", "localhost"):
        usage(
            "listen on loopback, or say who may use it: --passwords, --cluster-accounts, or "
            "--trust-header"
        )
    if conf and not store:
        usage("--conf is for a stopped broker's store: give its PATH")
    settings = ConsoleSettings(
        host="127.0.0.1" if host == "localhost" else host,
        port=port,
        allowed_hosts=frozenset(each.lower() for each in allow_host or ()),
        prefix="/" + prefix.strip("/") if prefix.strip("/") else "",
        is_read_only=read_only,
        passwords=passwords,
        trusted_header=trust_header,
        trusted_proxies=frozenset(trust_proxy or ()),
        trusted_role=trust_role,
        cluster_accounts=cluster_accounts,
        audit_log=audit_log,
        masks=tuple(mask or ()),
        decoder=decoder,
    )
    if store:
        _serve_store(settings, store, conf, shared)
    else:
        from ..console.settings import SILENT_TIMEOUT_S

        def open_client(account: Credentials | None = None) -> Client:
            return new_client(
                shared.url,
                shared.timeout_s,
                account=account,
                silent_timeout_s=SILENT_TIMEOUT_S,
            )

        _serve(settings, open_client, exit_with_parent, open_client)


def _check_installed() -> None:
    if not is_installed():
        fail(NOT_INSTALLED)


def _serve_store(settings: ConsoleSettings, path: str, conf: str, shared: Shared) -> None:
    """Serve the console of a stopped broker's store."""
    import msgspec

    from ..common.config import ConfigError
    from ..disk.errors import StoreError
    from .stopped_store.files import read_conf_file
    from .stopped_store.serving import opened_store
    from .stopped_store.shown import client_of, shown_store

    root = str(Path(path).expanduser().absolute())
    if sys.stderr.isatty():  # after a kill it may take minutes
        say(f"opening {root}")
    try:
        with opened_store(root, read_conf_file(conf) if conf else None) as store:
            settings = msgspec.structs.replace(settings, stopped=shown_store(store))
            _serve(settings, lambda: client_of(store, shared.timeout_s))
    except (StoreError, ConfigError) as error:
        fail(error)


def _serve(
    settings: ConsoleSettings,
    client_of: Callable[[], Client],
    exit_with_parent: bool = False,
    open_client: Callable[[Credentials], Client] | None = None,
) -> None:
    import anyio

    from ..client import Admin, ClientError, ConfigurationError
    from ..console.server import listener, serve

    try:
        sock = listener(settings)
    except OSError as error:
        fail(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}")

    def ready(console: Console) -> None:
        typer.echo(console.login_address(sock.getsockname()[1]))

    async def main() -> None:
        async with (
            client_of() as client,
            Admin(client) as admin,
            anyio.create_task_group() as tasks,
        ):
            if exit_with_parent:
                tasks.start_soon(end_with_parent, tasks.cancel_scope)
            await serve(settings, admin, sock, ready, open_client=open_client)
            tasks.cancel_scope.cancel()

    async def end_with_parent(scope: anyio.CancelScope) -> None:
        while not parent.has_ended():  # noqa: ASYNC110 - nothing tells of it on every system
            await anyio.sleep(parent.LOOK_S)
        scope.cancel()

    with sock:
        try:
            anyio.run(main, backend="asyncio")
        except (ClientError, ConfigurationError, OSError) as error:
            fail(error)
        except KeyboardInterrupt:
            return


@app.command("password", epilog="Example: trocket console password ann --role operate")
def password(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The person's name.")],
    role: Annotated[str, typer.Option("--role", help="look, operate or administer.")] = "look",
) -> None:
    """Print a line for the file of --passwords; the password is asked for."""
    from ..console.passwords import hash_password

    if role not in _ROLES:
        usage(f"--role is one of {', '.join(_ROLES)}")
    if not name or ":" in name or name != name.strip():
        usage("a name has no colon, and no space at its ends")
    secret = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    typer.echo(f"{name}:{role}:{hash_password(secret)}")
