"""What `trocket` does besides running servers, as typer commands; also its help.

The servers' commands are listed here for the help only: `main.py` has taken them already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from .. import __version__
from ..remoting.config import KnownKey
from .store import app as store_app

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="RocketMQ in Python: name server and broker for the official clients.",
)

app.add_typer(store_app, name="store")

_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit status, 2 for wrong usage."""
    try:
        app(list(arguments), prog_name="trocket")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        typer.echo(f"trocket {__version__}")
        raise typer.Exit


@app.command("up", context_settings=_PASSED_ON)
def _up() -> None:
    """Run name server and broker in one process."""


@app.command("broker", context_settings=_PASSED_ON)
def _broker() -> None:
    """Run a broker; takes the flags of RocketMQ's mqbroker."""


@app.command("namesrv", context_settings=_PASSED_ON)
def _namesrv() -> None:
    """Run a name server; takes the flags of RocketMQ's mqnamesrv."""


@app.command("keys")
def _keys(
    name: Annotated[str, typer.Argument(help="Only keys whose name contains this.")] = "",
) -> None:
    """List the keys of broker.conf and namesrv.conf: type, default, and what they do here.

    Into a pipe: a line per key, tabs between.
    """
    rows = [
        (file, key, fact.kind, fact.default, "supported" if key in supported else fact.effect)
        for file, known, supported in _key_tables()
        for key, fact in sorted(known.items())
        if name.lower() in key.lower()
    ]
    if not sys.stdout.isatty():
        typer.echo("\n".join("\t".join(row) for row in rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("File", "Key", "Type", "RocketMQ's default", "Here")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _key_tables() -> list[tuple[str, Mapping[str, KnownKey], set[str]]]:
    from dataclasses import fields

    from ..broker import config as broker
    from ..namesrv import config as namesrv
    from ..remoting.config import key_of
    from ..store.config import MessageStoreConfig

    of_broker = (*fields(broker.BrokerConfig), *fields(MessageStoreConfig))
    return [
        ("broker.conf", broker.known_keys(), {key_of(field) for field in of_broker}),
        (
            "namesrv.conf",
            namesrv.known_keys(),
            {key_of(field) for field in fields(namesrv.NamesrvConfig)},
        ),
    ]
