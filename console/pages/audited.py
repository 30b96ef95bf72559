"""Changes with their line in the audit log, whether they succeed or fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...client import ClientError
from ...common.texts import one_line
from .page import Ask


class Audited:
    """The line of a change that is being made.

    Attributes:
      of, before, after: as in the audit log; the block may set them while it knows more.
      number: of the line, once the block has ended.
    """

    def __init__(self, of: dict[str, str], before: Any, after: Any) -> None:
        self.of = of
        self.before = before
        self.after = after
        self.number = 0


@contextmanager
def audited(
    ask: Ask, what: str, of: dict[str, str], *, before: Any = None, after: Any = None
) -> Iterator[Audited]:
    """Write a line when the block ends; with the error, if that is one of the client.

    Other errors mean that the change was not made, and leave no line.
    """
    line = Audited(of, before, after)

    def write(error: str = "") -> None:
        ask.account.samples.expire()
        line.number = ask.console.audit.append(
            ask.person.name, what, line.of, before=line.before, after=line.after, error=error
        ).number

    try:
        yield line
    except ClientError as error:
        write(one_line(error))
        raise
    write()
