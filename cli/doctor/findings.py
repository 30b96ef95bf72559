"""Findings of `trocket doctor`: how bad something is, what it is, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

NAMES_SHOWN_MAX: Final = 5


class Severity(IntEnum):
    """How bad something is; `name` in small letters is its text."""

    SKIPPED = 0
    OK = 1
    WARNING = 2
    PROBLEM = 3

    @property
    def text(self) -> str:
        """For people and scripts."""
        return self.name.lower()


class Finding(NamedTuple):
    """Something that a check found.

    Attributes:
      severity: WARNING, PROBLEM; SKIPPED: it could not be looked at.
      text: what is wrong, and about whom.
      advice: what to do.
    """

    severity: Severity
    text: str
    advice: str = ""


def problem(text: str, advice: str) -> Finding:
    """A finding that keeps clients from working."""
    return Finding(Severity.PROBLEM, text, advice)


def warning(text: str, advice: str) -> Finding:
    """A finding that may do harm, or may be meant."""
    return Finding(Severity.WARNING, text, advice)


def some(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    listed = sorted(names)
    more = len(listed) - NAMES_SHOWN_MAX
    shown = ", ".join(listed[:NAMES_SHOWN_MAX])
    return f"{shown} and {more} more" if more > 0 else shown
