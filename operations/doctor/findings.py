"""Findings of `trocket doctor`: how bad something is, what it is, whom it is about. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from .kinds import Kind, Word

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


class Names(NamedTuple):
    """The first few of some names, and how many more there are."""

    shown: tuple[str, ...]
    more: int = 0


class Pair(NamedTuple):
    """A name and what belongs to it; a name "" is left out."""

    name: str | Word
    of: str | Word | Names


class Pairs(NamedTuple):
    """Names with what belongs to them."""

    pairs: tuple[Pair, ...]


Value = str | int | Word | Names | Pairs
"""A value of a sentence."""


class About(NamedTuple):
    """Whom a finding is about; "": nothing of this kind, or several."""

    broker: str = ""
    topic: str = ""
    group: str = ""


NOTHING: Final = About()


class Finding(NamedTuple):
    """Something that a check found.

    Attributes:
      severity: WARNING, PROBLEM; SKIPPED: it could not be looked at.
      kind: what it is.
      values: of the kind's sentences.
      about: where its cause is.
    """

    severity: Severity
    kind: Kind
    values: Mapping[str, Value]
    about: About = NOTHING

    @property
    def text(self) -> str:
        """What is wrong, in English."""
        return self.kind.value.text.format(**in_english(self.values))

    @property
    def advice(self) -> str:
        """What to do, in English."""
        return self.kind.value.advice.format(**in_english(self.values))


def problem(kind: Kind, about: About = NOTHING, **values: Value) -> Finding:
    """A finding that keeps clients from working."""
    return Finding(Severity.PROBLEM, kind, values, about)


def warning(kind: Kind, about: About = NOTHING, **values: Value) -> Finding:
    """A finding that may do harm, or may be meant."""
    return Finding(Severity.WARNING, kind, values, about)


def skipped(kind: Kind, about: About = NOTHING, **values: Value) -> Finding:
    """Something that could not be looked at."""
    return Finding(Severity.SKIPPED, kind, values, about)


def some(names: Iterable[str]) -> Names:
    """The first few names in their order, and how many more there are."""
    listed = sorted(names)
    shown = tuple(listed[:NAMES_SHOWN_MAX])
    return Names(shown, len(listed) - len(shown))


def only(names: Names) -> str:
    """The name, if there is one only; else ""."""
    return names.shown[0] if len(names.shown) == 1 else ""


def in_english(values: Mapping[str, Value]) -> dict[str, str]:
    """The values of a sentence as English text."""
    return in_words(values, lambda word: word.value, lambda count: f"and {count} more")


def in_words(
    values: Mapping[str, Value], word: Callable[[Word], str], more: Callable[[int], str]
) -> dict[str, str]:
    """The values of a sentence as texts of a language.

    Args:
      word: gives a word.
      more: says how many names are not listed.
    """

    def said(value: Value) -> str:
        if isinstance(value, Word):
            return word(value)
        if isinstance(value, int):
            return f"{value:,}"
        if isinstance(value, Names):
            shown = ", ".join(value.shown)
            return f"{shown} {more(value.more)}" if value.more else shown
        if isinstance(value, Pairs):
            return "; ".join(
                f"{said(each.name)}: {said(each.of)}" if each.name else said(each.of)
                for each in value.pairs
            )
        return value

    return {name: said(value) for name, value in values.items()}
