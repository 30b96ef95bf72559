"""Errors of commands: a line on standard error, or an object for scripts."""

from __future__ import annotations

from contextvars import ContextVar

from ..common.terminal import say

errors_as_json: ContextVar[bool] = ContextVar("errors_as_json", default=False)
"""Whether the command that runs has --json."""


def say_error(line: str, *, program: str = "trocket") -> None:
    """Print an error on standard error: as an object with the member `error`, if --json is given.

    Args:
      line: the error, in one line.
      program: what says it, for people.
    """
    if errors_as_json.get():
        import json

        say(json.dumps({"error": line}, ensure_ascii=False, separators=(",", ":")))
    else:
        say(f"{program}: {line}")
