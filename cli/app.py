"""What `trocket` does besides running servers, as typer commands; also its help.

The servers' commands are listed here for the help only: `main.py` has taken them already. Only the
module of the command that runs is imported; all of them for the help and for shell completion.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Final, NamedTuple

import typer

from .. import __version__
from ..common.config import KnownKey

_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


class _Command(NamedTuple):
    """A command, or a family of commands, in a module of its own.

    Attributes:
      attribute: of the module: a function, or a Typer.
      epilog: what stands below its help; a family has it itself.
    """

    attribute: str
    epilog: str = ""


COMMANDS: Final[dict[str, _Command]] = {
    "send": _Command("send", "Example: trocket send Orders 'hello' --tag new --key 42"),
    "consume": _Command("consume", "Example: trocket consume Orders --from 2h --json | jq .body"),
    "message": _Command("message", "Example: trocket message --topic Orders --key 42"),
    "topic": _Command("app"),
    "group": _Command("app"),
    "lag": _Command("lag", "Example: trocket lag billing --watch"),
    "offset": _Command("app"),
    "filter": _Command("app"),
    "cluster": _Command("app"),
    "bench": _Command("bench", "Example: trocket bench --count 50000 --size 1024"),
    "store": _Command("app"),
    "interop": _Command("app"),
    "pipeline": _Command("app"),
}
"""By their names, which are their modules' too; in the order of the help."""


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit status, 2 for wrong usage."""
    app = make_app(_needed(arguments[0] if arguments else ""))
    try:
        app(list(arguments), prog_name="trocket")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _needed(first: str) -> Collection[str]:
    """Which of COMMANDS a command line needs, by its first word."""
    if first in COMMANDS:
        return (first,)
    return () if first in ("keys", "--version") else COMMANDS


def make_app(names: Collection[str] = tuple(COMMANDS)) -> typer.Typer:
    """The command line.

    Args:
      names: those of COMMANDS that it is to have.
    """
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="RocketMQ in Python: servers, messages, and the administration of any cluster.",
        epilog="Where the name servers are: --url, or ROCKETMQ_URL, or 127.0.0.1:9876.",
    )
    app.callback(invoke_without_command=True)(_main)
    app.command("up", context_settings=_PASSED_ON)(_up)
    app.command("broker", context_settings=_PASSED_ON)(_broker)
    app.command("namesrv", context_settings=_PASSED_ON)(_namesrv)
    app.command("keys")(_keys)
    for name, command in COMMANDS.items():
        if name not in names:
            continue
        found = getattr(import_module(f".{name}", __package__), command.attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, epilog=command.epilog)(found)
    return app


def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        typer.echo(f"trocket {__version__}")
        raise typer.Exit


def _up() -> None:
    """Run name server and broker in one process, or several brokers in processes of their own."""


def _broker() -> None:
    """Run a broker; takes the flags of RocketMQ's mqbroker."""


def _namesrv() -> None:
    """Run a name server; takes the flags of RocketMQ's mqnamesrv."""


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
    from ..common.config import key_of
    from ..namesrv import config as namesrv
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
