"""Flags that the commands of `trocket auth` share: which servers, and where a password comes from.

A password never comes from the command line, which other users of the machine can read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from ..completion import broker_names, cluster_names
from ..session import emit, usage

if TYPE_CHECKING:
    from ...client.admin.accounts import Servers

PASSWORD_VARIABLE: Final = "TROCKET_USER_PASSWORD"
"""The environment variable with the password of the user that a command creates or changes."""

OnBroker = Annotated[
    str,
    typer.Option(
        "--broker",
        metavar="BROKER",
        help="Use only this broker: name (the master) or host:port.",
        autocompletion=broker_names,
    ),
]
OnCluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="Use only the masters and slaves of this cluster.",
        autocompletion=cluster_names,
    ),
]
OnNameServers = Annotated[
    bool,
    typer.Option("--name-servers", help="Use the name servers' own accounts (trocket's only)."),
]
PasswordStdin = Annotated[
    bool,
    typer.Option(
        "--password-stdin",
        help=f"Read the password from standard input. Default: {PASSWORD_VARIABLE}, or a prompt.",
    ),
]
UserName = Annotated[str, typer.Argument(metavar="USER", help="The user: its access key.")]

T = TypeVar("T")
Row = TypeVar("Row", bound=tuple[str, ...])


def by_row(found: Mapping[str, Iterable[Row]]) -> dict[Row, list[str]]:
    """Rows of several servers, each once, with the servers that have it.

    Args:
      found: the rows of each server.
    """
    rows: dict[Row, list[str]] = {}
    for server, each in found.items():
        for row in each:
            rows.setdefault(row, []).append(server)
    return rows


def servers(broker: str, cluster: str, *, name_servers: bool) -> Servers:
    """The servers that the flags mean; more than one flag is wrong usage."""
    if bool(broker) + bool(cluster) + name_servers > 1:
        usage("give --broker, --cluster or --name-servers, not several")
    return {"broker": broker or None, "cluster": cluster or None, "name_servers": name_servers}


def read_password(*, from_stdin: bool, is_required: bool = True) -> str | None:
    """The new password of a user: from standard input, the environment, or a prompt without echo.

    Args:
      is_required: without any, ask for it on a terminal, or else report wrong usage.

    Returns: None if it is not required and not given.
    """
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
        if not password.strip():
            usage("--password-stdin: the first line of standard input is blank")
        return password
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if password.strip():
        return password
    if not is_required:
        return None
    if not sys.stdin.isatty():
        usage(f"no password: use --password-stdin, or set {PASSWORD_VARIABLE}")
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))


def report_change(verb: str, name: str, done: Sequence[str], *, as_json: bool) -> None:
    """Print what was changed, and the servers that did it."""
    if as_json:
        emit({verb: name, "servers": done})
    else:
        typer.echo(f"{verb} {name} on {', '.join(done)}")
