"""Options of a format: declared as a dataclass, parsed from Spark's strings. Pure.

A field `pull_batch_size: int` is the option `pullBatchSize`. Spark does not keep the case of keys,
so it is ignored. An unknown option is refused, with the most similar known name: silently ignored
options have cost users data before.

A secret is a `Secret`, which prints as asterisks.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from ..common.java_integers import INT64_MAX
from .errors import OptionError, nearest

T = TypeVar("T")

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DURATION: Final = re.compile(r"([0-9]{1,12})\s*(ms|s|m|h|d)?", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([kmg]?)i?b?", re.ASCII | re.IGNORECASE)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
NO_OTHER_NAMES: Final[Mapping[str, str]] = types.MappingProxyType({})
_SHOWN_MAX: Final = 64
"""Characters of a refused value in an error text."""


class Secret(str):
    """A string that prints as asterisks; `reveal` returns it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __str__(self) -> str:
        return "***"

    def __format__(self, _: str) -> str:
        return "***"

    def reveal(self) -> str:
        return str.__str__(self)


class DurationMs(int):
    """Milliseconds, parsed from `200`, `200ms`, `30s`, `15m`, `2h`, `1d`."""


class SizeBytes(int):
    """Bytes, parsed from `1024`, `64k`, `4m`, `1g` (with or without `b` or `ib`)."""


class TimeMs(int):
    """A time in ms since 1970, parsed from that number or from ISO 8601 (UTC without a zone)."""


def key_of(field_name: str) -> str:
    """The option of a field: `pull_batch_size` is `pullBatchSize`."""
    head, *rest = field_name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def read_options(
    kind: type[T],
    given: Mapping[str, str],
    what: str,
    other_names: Mapping[str, str] = NO_OTHER_NAMES,
) -> T:
    """Parse the options of a format.

    Args:
      kind: a dataclass; a field without default is required. `metadata["minimum"]` bounds numbers.
        Its `__post_init__` may check combinations of options.
      given: the user's options, keys in any case.
      what: the format, for error messages.
      other_names: names, in lower case, that other sources have for an option: for hints.

    Raises:
      OptionError: an unknown key, a missing one, or an invalid value.
    """
    hints = typing.get_type_hints(kind)
    fields = {key_of(field.name).lower(): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key in given:
        if key.startswith("__"):
            continue  # Spark's own, such as __partition_columns
        field = fields.get(key.lower())
        if field is None:
            names = [key_of(field.name) for field in fields.values()]
            other = other_names.get(key.lower())
            hint = f"; here it is {other}" if other else nearest(key, names)
            raise OptionError(f"{what} has no option {key[:_SHOWN_MAX]!r}{hint}")
        values[field.name] = _value(field, hints[field.name], str(given[key]), what)
    for field in fields.values():
        is_required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if is_required and field.name not in values:
            meaning = field.metadata.get("meaning", "")
            raise OptionError(
                f"{what} needs the option {key_of(field.name)}{f': {meaning}' if meaning else ''}"
            )
    return kind(**values)


def _value(field: dataclasses.Field[Any], hint: Any, text: str, what: str) -> Any:
    kinds = [hint]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        kinds = [each for each in typing.get_args(hint) if each is not type(None)]
    kind = kinds[0]
    name = key_of(field.name)
    if kind is Secret:
        return Secret(text)
    try:
        value = _READERS[kind](text) if kind in _READERS else _choice(kind, text)
    except ValueError as error:
        raise OptionError(
            f"{what}: {name} must be {error}, not {text.strip()[:_SHOWN_MAX]!r}"
        ) from None
    minimum = field.metadata.get("minimum")
    if minimum is not None and value < minimum:
        raise OptionError(f"{what}: {name} must be at least {minimum}, not {value}")
    return value


def _choice(kind: type[enum.Enum], text: str) -> enum.Enum:
    for member in kind:
        if member.value == text.strip().lower():
            return member
    raise ValueError(f"one of {', '.join(str(member.value) for member in kind)}")


def _bool(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ValueError("true or false")
    return found


def _int(text: str) -> int:
    if not _NUMBER.fullmatch(text.strip()):
        raise ValueError("a whole number")
    return int(text)


def _duration(text: str) -> DurationMs:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("a time such as 200ms, 30s, 15m")
    return DurationMs(int(found[1]) * _UNITS_MS[found[2] or "ms"])


def _size(text: str) -> SizeBytes:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("a number of bytes such as 65536, 64k, 4m")
    return SizeBytes(int(found[1]) << 10 * " kmg".index(found[2].lower() or " "))


def _time(text: str) -> TimeMs:
    text = text.strip()
    # The ms after it, with which a range ends, must be a number of 64 bits, too.
    if _NUMBER.fullmatch(text) and abs(int(text)) < INT64_MAX:
        return TimeMs(int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("ms since 1970 or ISO 8601, such as 2026-11-22T10:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return TimeMs(round(moment.timestamp() * 1000))


_READERS: Final[dict[Any, Any]] = {
    str: lambda text: text.strip(),
    bool: _bool,
    int: _int,
    DurationMs: _duration,
    SizeBytes: _size,
    TimeMs: _time,
}


def exact_tags(subscription: str) -> frozenset[str] | None:
    """The tags that `TagA || TagB` names, for an exact comparison; None: any."""
    tags = frozenset(tag for part in subscription.split("||") if (tag := part.strip()))
    return None if tags <= {"*"} else tags


def names(text: str) -> tuple[str, ...]:
    """The names in a list separated by commas, without surrounding blanks."""
    return tuple(name for part in text.split(",") if (name := part.strip()))
