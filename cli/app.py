"""The typer commands of `trocket`, and its help.

Only the module of the command that runs is imported: the help and the completion of commands' names
need none, and importing all takes longer than a shell should wait.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer

from .. import __version__
from ..common.terminal import say
from . import servers
from .completion import profile_names
from .error_lines import errors_as_json, say_error
from .help_text import EXIT_USAGE, Command, Family, UsageError, settings, usage_line
from .servers import SERVERS
from .tls_flags import with_shared_flags


class Entry(NamedTuple):
    """A command, or a family of commands.

    Attributes:
      panel: its section in the help.
      summary: its line there.
      place: its module and a name in that: of a function, or a Typer; "": it is one of `SERVERS`.
      epilog: printed below its help; a family's Typer has its own.
    """

    panel: str
    summary: str
    place: str = ""
    epilog: str = ""


_SERVERS: Final = "Servers"
_MESSAGES: Final = "Messages"
_TOPICS: Final = "Topics and groups"
_CLUSTER: Final = "The cluster"
_FILES: Final = "Settings and files"
_TESTS: Final = "Measurements and tests"

COMMANDS: Final[dict[str, Entry]] = {
    "up": Entry(_SERVERS, "Run a name server and a broker, or several brokers"),
    "namesrv": Entry(_SERVERS, "Run a name server; its key-value table and settings"),
    "broker": Entry(_SERVERS, "Run a broker; its facts, settings and counters"),
    "controller": Entry(_SERVERS, "Run a controller, which elects masters; the sets under it"),
    "proxy": Entry(_SERVERS, "Run a proxy for gRPC clients in front of a cluster"),
    "filtersrv": Entry(_SERVERS, "Run a filter server beside a broker"),
    "send": Entry(
        _MESSAGES, "Send messages", "send.send",
        "Example: trocket send Orders 'hello' --tag new --key 42",
    ),
    "consume": Entry(
        _MESSAGES, "Print the messages of a topic, or consume them as a group", "consume.consume",
        "Example: trocket consume Orders --from 2h --json | jq .body",
    ),
    "message": Entry(
        _MESSAGES, "Find messages by id, key or time", "message.message",
        "Example: trocket message --topic Orders --key 42",
    ),
    "trace": Entry(
        _MESSAGES, "Show who sent and who consumed a message", "message_trace.trace",
        "Example: trocket trace 7F0000010A3C18B4AAC21B7D5C5D0000",
    ),
    "dlq": Entry(_MESSAGES, "List dead letters, and send them again", "dlq.app"),
    "topic": Entry(_TOPICS, "List, show, create, change and delete topics", "topic.app"),
    "group": Entry(_TOPICS, "List, show, create and delete consumer groups", "group.app"),
    "lag": Entry(
        _TOPICS, "Show how far groups are behind, once or live", "lag.lag",
        "Example: trocket lag billing --watch",
    ),
    "offset": Entry(_TOPICS, "Show, reset and copy offsets", "offset.app"),
    "producers": Entry(
        _TOPICS, "List the connected producers", "producers.producers",
        "Example: trocket producers checkout",
    ),
    "pop": Entry(_TOPICS, "Show popped messages, and set how groups get messages", "pop.app"),
    "filter": Entry(_TOPICS, "List, put and remove classes of class filters", "filter.app"),
    "doctor": Entry(
        _CLUSTER, "Say what is wrong with a cluster, and what to do", "doctor.doctor",
        "Example: trocket doctor rocketmq://127.0.0.1:9876",
    ),
    "top": Entry(
        _CLUSTER, "Show brokers, topics and groups live", "top.top",
        "Example: trocket top --interval 5 --filter Orders",
    ),
    "console": Entry(_CLUSTER, "Serve a web console, also of a stopped store", "console.app"),
    "cluster": Entry(_CLUSTER, "List the brokers of all clusters", "cluster.app"),
    "auth": Entry(_CLUSTER, "Create users, and say what they may do", "auth.command.app"),
    "profile": Entry(
        _FILES, "Name clusters, and choose the one that commands use", "profile_command.app",
    ),
    "keys": Entry(
        _FILES, "List the keys of broker.conf, namesrv.conf and controller.conf", "keys.keys",
        "Example: trocket keys flush",
    ),
    "tls": Entry(_FILES, "Make and show certificates", "tls.command.app"),
    "store": Entry(
        _FILES, "Check, list, export and repair the store of a stopped broker", "store.app",
    ),
    "bench": Entry(
        _TESTS, "Measure sending and reading", "bench.bench",
        "Example: trocket bench --count 50000 --size 1024",
    ),
    "pipeline": Entry(_TESTS, "Run a Spark job over topics or a store's files", "pipeline.app"),
    "interop": Entry(_TESTS, "Compare brokers with Apache's", "interop.command.app"),
}  # fmt: skip
"""Commands by name; in the order of the help: what a new user types first comes first."""

ALL: Final = tuple(COMMANDS)
"""The names of all commands."""


class _Root(Family):
    """The commands of `trocket`; those that were not loaded are known by name and summary."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._loaded = set(self.commands)
        loaded = dict(self.commands)
        self.commands.clear()
        for name, entry in COMMANDS.items():
            self.commands[name] = loaded.get(name) or Command(
                name, help=entry.summary, rich_help_panel=entry.panel, rich_markup_mode=None
            )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a command line, loaded."""
        name = args[0]
        if name in COMMANDS and name not in self._loaded:
            found: Any = typer.main.get_command(make_app((name,)))
            self.commands[name] = found.commands[name]
            self._loaded.add(name)
        return super().resolve_command(ctx, args)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status: 2 for wrong usage."""
    # Before any of them is read: the error may be one of another flag.
    errors_as_json.set("--json" in arguments)
    try:
        status = make_app(())(list(arguments), prog_name="trocket", standalone_mode=False)
    except UsageError as error:
        say_error(usage_line(error))
        return EXIT_USAGE
    except typer.Abort:
        say_error("not confirmed")
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return status if isinstance(status, int) else 0


def make_app(names: Collection[str] = ALL) -> typer.Typer:
    """Build the command line.

    Args:
      names: the commands to load now; others are loaded when they are called.
    """
    app = typer.Typer(
        cls=_Root,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=settings(),
        help="RocketMQ in Python: servers, messages, and the administration of any cluster.",
        epilog="Name servers: --url, ROCKETMQ_URL or the profile in use, else 127.0.0.1:9876.",
    )
    app.callback(invoke_without_command=True)(_main)
    for name in names:
        _add(app, name, COMMANDS[name])
    return app


def _add(app: typer.Typer, name: str, entry: Entry) -> None:
    if name in SERVERS:
        family = servers.add(app, name, panel=entry.panel)
        if family is not None:
            complete_family(family)
        return
    module, _, attribute = entry.place.rpartition(".")
    found = getattr(import_module(f".{module}", __package__), attribute)
    if isinstance(found, typer.Typer):
        complete_family(found)
        app.add_typer(
            found,
            name=name,
            cls=_class_of(found),
            short_help=entry.summary,
            rich_help_panel=entry.panel,
        )
        return
    app.command(
        name,
        cls=Command,
        help=_unwrapped(found),
        short_help=entry.summary,
        epilog=entry.epilog,
        rich_help_panel=entry.panel,
    )(with_shared_flags(found))


def _class_of(family: typer.Typer) -> type[Family]:
    """The class of a family of commands: its own, if it has one."""
    own = family.info.cls
    return own if isinstance(own, type) and issubclass(own, Family) else Family


def complete_family(family: typer.Typer) -> None:
    """Add the flags of TLS to a family's commands, and wrap their help to the terminal's width."""
    for info in family.registered_commands:
        info.cls = Command
        info.help = info.help or _unwrapped(info.callback)
        if info.callback is not None:
            info.callback = with_shared_flags(info.callback)
    alone = family.registered_callback
    if alone is not None and alone.callback is not None:
        alone.help = alone.help or _unwrapped(alone.callback)
        alone.callback = with_shared_flags(alone.callback)
    for group in family.registered_groups:
        if group.typer_instance is not None:
            group.cls = Family
            complete_family(group.typer_instance)


def _unwrapped(function: object) -> str:
    """A docstring's paragraphs as one line each: the help wraps them to the terminal's width."""
    text = inspect.getdoc(function) or ""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _main(
    context: typer.Context,
    url: Annotated[
        str,
        typer.Option(
            "--url",
            "-n",
            metavar="URL",
            help="Use these name servers, or the profile of this name.",
            autocompletion=profile_names,
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", metavar="S", help="Give up a request after S seconds."),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Flags that all commands share stand before or behind a command's name (`Family`)."""
    if version:
        typer.echo(f"trocket {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help())
        raise typer.Exit(EXIT_USAGE)
