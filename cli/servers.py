"""The servers' commands: quick with right flags, by typer for help, errors and completion."""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Callable, Sequence
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from ..common.command_line import Flag, Program, parse_usual

if TYPE_CHECKING:
    import typer


class Server(NamedTuple):
    """The modules of a server's command, relative to `trocket`.

    Attributes:
      program: has `PROGRAM`, its command line.
      run: has `run`, which runs it.
      administration: has `app`, a Typer with commands that administer running servers of this
        kind: `trocket broker stats`. "": there are none.
    """

    program: str
    run: str
    administration: str = ""


SERVERS: Final[dict[str, Server]] = {
    "up": Server(".cli.up.flags", ".cli.up.command"),
    "broker": Server(".broker.settings.command_line", ".broker.__main__", ".cli.broker"),
    "namesrv": Server(".namesrv.command_line", ".namesrv.__main__", ".cli.namesrv"),
    "controller": Server(".controller.command_line", ".controller.__main__", ".cli.controller"),
    "proxy": Server(".proxy.command_line", ".proxy.__main__"),
    "filtersrv": Server(".filtersrv.command_line", ".filtersrv.__main__"),
}
"""Servers by the name of the command, in the order of the help."""

_ROOT: Final = __package__.rpartition(".")[0]


def run_usual(words: Sequence[str]) -> int | None:
    """Run a server whose command line is right, without importing typer.

    Returns: its exit status; None: another command, wrong flags, or a request for help.
    """
    server = SERVERS.get(words[0]) if words else None
    if server is None:
        return None
    options = parse_usual(program_of(server), words[1:])
    return None if options is None else run_of(server)(options)


def program_of(server: Server) -> Program:
    """The command line of a server."""
    program: Program = import_module(server.program, _ROOT).PROGRAM
    return program


def run_of(server: Server) -> Callable[[Namespace], int]:
    """The function that runs a server and returns the exit status."""
    run: Callable[[Namespace], int] = import_module(server.run, _ROOT).run
    return run


def add(app: typer.Typer, name: str, *, panel: str) -> typer.Typer | None:
    """Add a server's command to the command line.

    Returns: the commands that administer such servers; None if there are none.
    """
    import typer

    from .help_text import Command, Family

    server = SERVERS[name]
    program = program_of(server)

    def command(context: typer.Context, **values: Any) -> None:
        if context.invoked_subcommand is not None:
            _check_no_flags(context)
            return
        plain = {
            dest: value.value if isinstance(value, Enum) else value
            for dest, value in values.items()
        }
        # The server's own command line reads the same flags, so both ways start it alike.
        raise typer.Exit(run_of(server)(Namespace(**plain)))

    parameters = [
        inspect.Parameter(
            "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
        ),
        *(_parameter(flag) for flag in program.flags),
    ]
    # typer reads the options from a signature; the server has them as a table.
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    if not server.administration:
        app.command(
            name,
            cls=Command,
            help=program.summary,
            epilog=program.epilog,
            rich_help_panel=panel,
        )(command)
        return None
    family: typer.Typer = import_module(server.administration, _ROOT).app
    family.callback(invoke_without_command=True)(command)
    app.add_typer(
        family,
        name=name,
        cls=Family,
        help=program.summary,
        epilog=program.epilog,
        rich_help_panel=panel,
    )
    return family


def _check_no_flags(context: typer.Context) -> None:
    """A server's flags say nothing to the commands that administer one."""
    from .session import usage

    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            words = f"{context.command_path} {context.invoked_subcommand}"
            usage(f"put flags after the command: {words} …")


def _parameter(flag: Flag) -> inspect.Parameter:
    import typer

    kind: Any = bool
    default: Any = False
    if flag.metavar:
        default = flag.default
        kind = Enum("Value", {each: each for each in flag.choices}) if flag.choices else flag.kind
        if flag.choices:
            default = kind(default)
        if flag.is_repeatable:
            kind, default = list[kind], []
        elif default is None:
            kind |= None
    option = typer.Option(
        *flag.names,
        metavar=flag.metavar or None,
        help=f"{flag.help}.",
        show_default=False,
        rich_help_panel=flag.panel or None,
    )
    return inspect.Parameter(
        flag.dest,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )
