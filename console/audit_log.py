"""The audit log: who changed what, from what to what, as lines of JSON."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

LOG = logging.getLogger(__name__)

LINE_SIZE_MAX = 1 << 20
"""Longer lines of a file are not read: no change is so long."""
CHANGES_MAX = 10_000
"""Changes that are kept in memory, the newest; the file has all."""


class Change(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A change that a person made.

    Attributes:
      number: of the line; those of a file grow by 1.
      time_ms: when it was made.
      person: who made it.
      what: the name of the change, such as "reset".
      of: what was changed, such as a group.
      before, after: its values, as JSON.
      error: why it failed; "": it did not.
    """

    number: int
    time_ms: int
    person: str
    what: str
    of: dict[str, str]
    before: Any = None
    after: Any = None
    error: str = ""


class AuditLog:
    """Changes, in a file or in memory.

    Args:
      path: the file, which is appended to; None: memory only.
      wall_ms: the time of day, ms since 1970.

    Raises: OSError: the file cannot be opened.
    """

    def __init__(self, path: Path | None, wall_ms: Callable[[], int]) -> None:
        self._path = path
        self._wall_ms = wall_ms
        kept = _read(path) if path is not None else ()
        self._changes: deque[Change] = deque(kept, CHANGES_MAX)
        self._file = None
        if path is not None:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._file = os.fdopen(descriptor, "ab")

    def append(
        self,
        person: str,
        what: str,
        of: dict[str, str],
        *,
        before: Any = None,
        after: Any = None,
        error: str = "",
    ) -> Change:
        """Write a change; it is on disk when this returns."""
        number = self._changes[-1].number + 1 if self._changes else 1
        change = Change(
            number=number,
            time_ms=self._wall_ms(),
            person=person,
            what=what,
            of=of,
            before=before,
            after=after,
            error=error,
        )
        self._changes.append(change)
        if self._file is not None:
            self._file.write(msgspec.json.encode(change) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        return change

    def newest(self, count: int) -> list[Change]:
        """The newest changes, the newest first."""
        return list(islice(reversed(self._changes), count))

    def find(self, number: int) -> Change | None:
        """The change with this number; None: there is none."""
        return next((each for each in self._changes if each.number == number), None)

    def of(self, what: str) -> list[Change]:
        """The changes of one kind, the oldest first."""
        return [each for each in self._changes if each.what == what]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _read(path: Path) -> Iterator[Change]:
    """The changes in a file; a line that cannot be read is logged and left out."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Change)
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE_SIZE_MAX), b""), 1):
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                LOG.warning(
                    "%s: line %d is no change of the audit log; it is left out", path, number
                )
