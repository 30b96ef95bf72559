"""Command lines of the servers: a table of flags, which two parsers read.

`python -m trocket.broker` and a quick start of `trocket up` parse with argparse. The `trocket`
command has typer show help, errors and completions of the same table (`cli/servers.py`): importing
typer takes a sixth of the time in which `trocket up` is ready.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")


class Flag(NamedTuple):
    """One flag.

    Attributes:
      names: as it is written: `("-c", "--configFile")`.
      dest: the attribute of the parsed options.
      help: an imperative sentence, without a period.
      metavar: the name of its value; "": it is a switch, and has none.
      kind: the value's type: str or int.
      default: the value without the flag; a switch has False.
      choices: the allowed values; empty: any.
      is_repeatable: it may be given several times, and its value is a list.
      panel: the heading of its group in the help; "": none.
    """

    names: tuple[str, ...]
    dest: str
    help: str
    metavar: str = ""
    kind: type = str
    default: Any = None
    choices: tuple[str, ...] = ()
    is_repeatable: bool = False
    panel: str = ""


class Program(NamedTuple):
    """A server's command line.

    Attributes:
      name: the command: `trocket broker`.
      summary: the first line of its help.
      flags: in the order of the help.
      epilog: an example, at the end of the help of `trocket`.
    """

    name: str
    summary: str
    flags: tuple[Flag, ...]
    epilog: str


CONFIG_FROM_STDIN: Final = Flag(
    ("--config-from-stdin",),
    "from_stdin",
    "Read the keys from standard input, up to an empty line, and end when it ends",
)
"""For children: no value is ever part of their command line."""


def log_level(default: str = "info") -> Flag:
    """`--log-level`, which RocketMQ sets in its logback files."""
    return Flag(
        ("--log-level",),
        "log_level",
        f"Log this level and above on standard error ({default})",
        metavar="LEVEL",
        default=default,
        choices=LOG_LEVELS,
    )


LOG_FORMAT: Final = Flag(
    ("--log-format",),
    "log_format",
    "Log lines for people, or JSON objects for log collectors (text)",
    metavar="FORMAT",
    default="text",
    choices=LOG_FORMATS,
)


EXIT_WITH_PARENT: Final = Flag(
    ("--exit-with-parent",),
    "exit_with_parent",
    "Stop when the process that started this one has ended, however it ended: for tests",
)


PRINT_ALL: Final = Flag(
    ("-p", "--printConfigItem"),
    "print_all",
    "Print the configuration as it would be used, and exit",
)


APACHE_FLAGS: Final = (
    Flag(
        ("-c", "--configFile"),
        "config_file",
        "Read this properties file, such as RocketMQ's broker.conf",
        metavar="FILE",
    ),
    Flag(
        ("-n", "--namesrvAddr"),
        "namesrv_addr",
        "Use these name servers, such as 192.168.0.1:9876;192.168.0.2:9876",
        metavar="ADDRESSES",
    ),
    PRINT_ALL,
    EXIT_WITH_PARENT,
    log_level(),
    LOG_FORMAT,
)
"""The flags that RocketMQ's `mqbroker` and `mqnamesrv` have both, and those of all servers here.

Source: RocketMQ 5.5.0 srvutil/ServerUtil.java buildCommandlineOptions."""


class UnusualError(Exception):
    """The words are wrong, or ask for help."""


class _Parser(argparse.ArgumentParser):
    """A parser that leaves help and errors to the caller."""

    def error(self, message: str) -> NoReturn:
        raise UnusualError(message)


def parse(program: Program, words: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line; wrong words, and --help, end the process.

    Args:
      words: without the program's name; None: those of this process.
    Raises: SystemExit: status 2 for wrong words, 0 for --help.
    """
    parser = argparse.ArgumentParser(
        program.name, description=program.summary, epilog=program.epilog, allow_abbrev=False
    )
    return _with_flags(parser, program.flags).parse_args(words)


def parse_usual(program: Program, words: Sequence[str]) -> argparse.Namespace | None:
    """Parse a right command line; None: it is wrong, or asks for help."""
    parser = _Parser(program.name, allow_abbrev=False, add_help=False)
    try:
        return _with_flags(parser, program.flags).parse_args(words)
    except UnusualError:
        return None


def _with_flags(parser: argparse.ArgumentParser, flags: Sequence[Flag]) -> argparse.ArgumentParser:
    groups: dict[str, Any] = {"": parser}
    for flag in flags:
        if flag.panel not in groups:
            groups[flag.panel] = parser.add_argument_group(flag.panel)
        if flag.metavar:
            values: dict[str, Any] = {
                "metavar": flag.metavar,
                "type": flag.kind,
                "choices": flag.choices or None,
                "action": "append" if flag.is_repeatable else "store",
                "default": [] if flag.is_repeatable else flag.default,
            }
        else:
            values = {"action": "store_true"}
        groups[flag.panel].add_argument(*flag.names, dest=flag.dest, help=flag.help, **values)
    return parser
