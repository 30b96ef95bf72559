"""Help and words of commands: plain text in sections, without rich.

Importing rich's formatter takes longer than a help should. The help of a command has its options in
sections by `rich_help_panel`, a value's name beside each, and no types.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ..common.terminal import say

# The flags that all commands share, which may stand before or behind a command's name.

WITH_VALUE: Final = frozenset({"--url", "-n", "--timeout", "--tls-ca", "--tls-cert", "--tls-key"})
SWITCHES: Final = frozenset({"--json", "--tls", "--tls-no-verify"})


def split_shared(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The shared flags at the beginning of a command line, and the rest."""
    index = 0
    while index < len(words):
        name = words[index].partition("=")[0]
        if name in SWITCHES or (name in WITH_VALUE and name != words[index]):
            index += 1
        elif name in WITH_VALUE:
            index += 2
        else:
            break
    return list(words[:index]), list(words[index:])


WIDTH_MAX: Final = 100
"""Columns of a help, at most."""
EXIT_USAGE: Final = 2

RENAMED: Final[Mapping[str, str]] = {
    "--count": "--limit",
    "--time": "--since",
    "--message": "--id",
    "--from": "--source",
    "--ca": "--tls-ca",
    "--out": "--output",
    "--json": "--results",
    "-t": "--topic",
    "-g": "--group",
    "-b": "--broker",
    "-a": "--attribute",
    "-s": "--select",
}
"""Names of options of earlier versions, and those of mqadmin, which still work where no other
option has the name."""

_KINDS: Final = {"bool": "", "int": "N", "int range": "N", "float": "N", "float range": "N"} | {
    "str": "TEXT", "list[str]": "TEXT", "path": "PATH", "file": "FILE", "directory": "DIR",
}  # fmt: skip
"""The name of a value by the name of its type, for options that name no value."""
_TYPE: Final = re.compile(r" ?<([^<>]*)>")
_HEADING: Final = re.compile(r"^(\S.*:)$|^(Usage:)", re.MULTILINE)
_AT_LEAST: Final = re.compile(r"(?:; |(?<=\[))x>=?[-.\d]+")
_BETWEEN: Final = re.compile(r"([-.\d]+)<=x<=([-.\d]+)")
_DEFAULT_NONE: Final = re.compile(r"(?:; )?default: 0(?:\.0)?(?=[];])|(?<=\d)\.0(?=\])")
_REQUIRED: Final = re.compile(r" *\[required\]|; required(?=\])")


class Command(TyperCommand):
    """A command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words; an option may have the name of an earlier version."""
        _take_texts(self, ctx)
        return super().parse_args(ctx, _with_new_names(args, _option_names(self, ctx)))

    def get_help(self, ctx: Any) -> str:
        """The help; on a terminal with bold headings."""
        return _bold(super().get_help(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the command's name: `[OPTIONS] TOPIC [BODY]`."""
        return ["[OPTIONS]", *_arguments(self, ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        _write_parameters(self, ctx, formatter)


class Family(TyperGroup):
    """Commands with a common first word; flags that all share may stand before the second one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words up to the command's name; shared flags before it become its own."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            say(ctx.get_help())
            ctx.exit(EXIT_USAGE)
        shared, rest = split_shared(args)
        if shared and rest and rest[0] in self.commands:
            args = [rest[0], *shared, *rest[1:]]
        _take_texts(self, ctx)
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """The help; on a terminal with bold headings."""
        return _bold(super().get_help(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        _write_parameters(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                panel = _text(getattr(command, "rich_help_panel", None)) or "Commands"
                sections.setdefault(panel, []).append((name, command.get_short_help_str(1_000)))
        width = max((len(name) for rows in sections.values() for name, _ in rows), default=0)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", summary) for name, summary in rows])


def settings() -> dict[str, Any]:
    """The context settings of the command line."""
    return {"max_content_width": WIDTH_MAX, "help_option_names": ["--help", "-h"]}


def _take_texts(command: Any, ctx: Any) -> None:
    """Accept strings, and values that have their type already, as they are.

    Typer has pydantic convert even these, and importing pydantic takes longer than a help or a
    completion should.
    """
    for each in command.get_params(ctx):
        each.process_value = partial(_taken, each, type(each).process_value)


def _taken(parameter: Any, convert: Any, ctx: Any, value: Any) -> Any:
    """The value of a parameter; for a shell's completion, what is written."""
    if ctx.resilient_parsing:
        return value
    is_text = getattr(getattr(parameter, "type_descriptor", None), "annotation", None) is str
    is_several = parameter.multiple or parameter.nargs != 1
    if (
        is_several
        or (value is None and parameter.required)
        or (isinstance(value, str) and not is_text)
    ):
        return convert(parameter, ctx, value)
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def _option_names(command: Any, ctx: Any) -> set[str]:
    return {
        name
        for each in command.get_params(ctx)
        if each.param_type_name == "option"
        for name in (*each.opts, *each.secondary_opts)
    }


def _with_new_names(words: Sequence[str], known: set[str]) -> list[str]:
    found: list[str] = []
    for index, word in enumerate(words):
        if word == "--":
            return [*found, *words[index:]]
        name, is_joined, value = word.partition("=")
        new = RENAMED.get(name, "")
        found.append(f"{new}{is_joined}{value}" if new in known and name not in known else word)
    return found


def _arguments(command: Any, ctx: Any) -> list[str]:
    pieces = []
    for each in command.get_params(ctx):
        if each.param_type_name == "argument" and not getattr(each, "hidden", False):
            name = each.metavar or each.name.upper()
            if each.nargs != 1 and not name.endswith("..."):
                name += "..."
            pieces.append(name if each.required or name.startswith("[") else f"[{name}]")
    return pieces


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for each in command.get_params(ctx):
        record = each.get_help_record(ctx)
        if record is None:
            continue
        is_argument = each.param_type_name == "argument"
        heading = "Arguments" if is_argument else "Options"
        panel = _text(getattr(each, "rich_help_panel", None)) or heading
        left = _TYPE.sub("", record[0]) if is_argument else _TYPE.sub(_value_name, record[0])
        sections.setdefault(panel, []).append((left.strip(), _effect(record[1])))
    for heading, rows in sections.items():
        if rows:
            with formatter.section(heading):
                formatter.write_dl(rows)


def _value_name(found: re.Match[str]) -> str:
    name = _KINDS.get(found[1], found[1])
    return f" {name}" if name else ""


def _effect(text: str) -> str:
    """The help of a parameter, without what its usage or a person's sense says already."""
    text = _REQUIRED.sub("", _AT_LEAST.sub("", text))
    return (
        _BETWEEN.sub(r"\1 to \2", text).replace("[; ", "[").replace("  [", " [").replace("[]", "")
    )


def _text(value: object) -> str:
    """A panel's name; typer has an own object for none."""
    return value if isinstance(value, str) else ""


def _bold(text: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return _HEADING.sub("\x1b[1m\\g<0>\x1b[0m", text)


UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
"""The error for wrong words; some versions of typer bundle click, others need it."""


def usage_line(error: Exception) -> str:
    """What is wrong with the words, in one line, with the help that says more."""
    text = " ".join(getattr(error, "format_message", error.__str__)().split())
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "trocket"
    return f"{text.rstrip('.')}; see {path} --help"
