"""The typer commands of `trocket`, and its help.

Only the module of the command that runs is imported; all of them for the help and for shell
completion.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer

from .. import __version__
from ..common.config import KnownKey
from . import servers
from .servers import SERVERS
from .tls_flags import with_tls_flags


class _Command(NamedTuple):
    """A command, or a family of commands, in the module of its name.

    Attributes:
      attribute: of the module: a function, or a Typer.
      epilog: printed below its help; a family's Typer has its own.
    """

    attribute: str
    epilog: str = ""


COMMANDS: Final[dict[str, _Command]] = {
    "send": _Command("send", "Example: trocket send Orders 'hello' --tag new --key 42"),
    "consume": _Command("consume", "Example: trocket consume Orders --from 2h --json | jq .body"),
    "message": _Command("message", "Example: trocket message --topic Orders --key 42"),
    "trace": _Command("trace", "Example: trocket trace 7F0000010A3C18B4AAC21B7D5C5D0000"),
    "dlq": _Command("app"),
    "topic": _Command("app"),
    "group": _Command("app"),
    "producers": _Command("producers", "Example: trocket producers checkout"),
    "lag": _Command("lag", "Example: trocket lag billing --watch"),
    "offset": _Command("app"),
    "pop": _Command("app"),
    "top": _Command("top", "Example: trocket top --interval 5 --filter Orders"),
    "filter": _Command("app"),
    "auth": _Command("app"),
    "cluster": _Command("app"),
    "doctor": _Command("doctor", "Example: trocket doctor rocketmq://127.0.0.1:9876"),
    "profile": _Command("app"),
    "tls": _Command("app"),
    "bench": _Command("bench", "Example: trocket bench --count 50000 --size 1024"),
    "store": _Command("app"),
    "interop": _Command("app"),
    "pipeline": _Command("app"),
}
"""Commands by name, which is also the module's name; in the order of the help."""

ALL: Final = (*SERVERS, *COMMANDS)
"""The names of all commands except `keys`."""


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status: 2 for wrong usage."""
    app = make_app(_needed(arguments[0] if arguments else ""))
    try:
        app(list(arguments), prog_name="trocket")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _needed(first: str) -> Collection[str]:
    """The names in ALL that a command line with this first word needs."""
    if first in ALL:
        return (first,)
    return () if first in ("keys", "--version") else ALL


def make_app(names: Collection[str] = ALL) -> typer.Typer:
    """Build the command line.

    Args:
      names: the names in ALL to include.
    """
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="RocketMQ in Python: servers, messages, and the administration of any cluster.",
        epilog="Name servers: --url, ROCKETMQ_URL or the profile in use, else 127.0.0.1:9876.",
    )
    app.callback(invoke_without_command=True)(_main)
    for name in SERVERS:
        if name in names:
            family = servers.add(app, name)
            if family is not None:
                complete_family(family)
    app.command("keys")(_keys)
    for name, command in COMMANDS.items():
        if name not in names:
            continue
        found = getattr(import_module(f".{name}", __package__), command.attribute)
        if isinstance(found, typer.Typer):
            complete_family(found)
            app.add_typer(found, name=name)
        else:
            text = _unwrapped(found)
            app.command(name, help=text, epilog=command.epilog)(with_tls_flags(found))
    return app


def complete_family(family: typer.Typer) -> None:
    """Add the flags of TLS to a family's commands, and wrap their help to the terminal's width."""
    for info in family.registered_commands:
        info.help = info.help or _unwrapped(info.callback)
        if info.callback is not None:
            info.callback = with_tls_flags(info.callback)
    alone = family.registered_callback
    if alone is not None and alone.callback is not None:
        alone.help = alone.help or _unwrapped(alone.callback)
        alone.callback = with_tls_flags(alone.callback)
    for group in family.registered_groups:
        if group.typer_instance is not None:
            complete_family(group.typer_instance)


def _unwrapped(function: object) -> str:
    """A docstring's paragraphs as one line each: rich wraps them to the terminal's width."""
    text = inspect.getdoc(function) or ""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"trocket {__version__}")
        raise typer.Exit


def _keys(
    name: Annotated[str, typer.Argument(help="List only keys whose name contains this.")] = "",
) -> None:
    """List the keys of broker.conf and namesrv.conf: type, default, and what they do here.

    Without a terminal, print one line per key, separated by tabs.
    """
    rows = [
        (file, key, fact.kind, fact.default, supported.get(key, fact.effect))
        for file, known, supported in _key_tables()
        for key, fact in sorted(known.items())
        if name.lower() in key.lower()
    ]
    if not rows:
        typer.echo(f"trocket keys: {_no_key(name)}", err=True)
        raise typer.Exit(1)
    if not sys.stdout.isatty():
        typer.echo("\n".join("\t".join(row) for row in rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("File", "Key", "Type", "RocketMQ's default", "Here")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _no_key(name: str) -> str:
    """That no key has a text in its name, with the file that has it, or with keys that are near."""
    from difflib import get_close_matches

    from ..common.config import other_file_of

    other = other_file_of(name)
    if other is not None:
        return f"{name} is a key of {other}: it has no effect here"
    known = sorted({key for _, keys, _ in _key_tables() for key in keys})
    near = get_close_matches(name, known, n=3)
    hint = f"; near it are {', '.join(near)}" if near else ""
    return f"no key of broker.conf or namesrv.conf has {name!r} in its name{hint}"


def _key_tables() -> list[tuple[str, Mapping[str, KnownKey], Mapping[str, str]]]:
    """By file: its name, RocketMQ's keys, and the text of each one that is supported."""
    from dataclasses import fields

    from ..broker import config as broker
    from ..common.config import key_of
    from ..namesrv import config as namesrv
    from ..store.config import MessageStoreConfig

    def supported(*configs: Any) -> dict[str, str]:
        return {
            key_of(field): "supported, also while it runs"
            if "live" in field.metadata
            else "supported"
            for config in configs
            for field in fields(config)
        }

    return [
        (
            "broker.conf",
            broker.known_keys(),
            supported(broker.BrokerConfig, MessageStoreConfig),
        ),
        ("namesrv.conf", namesrv.known_keys(), supported(namesrv.NamesrvConfig)),
    ]
