"""Salvage of a damaged table file: the entries that can be read, without those that cannot.

Used when neither a file nor its `.bak` is a table. RocketMQ's broker begins with an empty table
then. Pure.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ...disk.json_config import parse
from .table_numbers import whole_number

logger = logging.getLogger(__name__)

Decode = Callable[[bytes], int]
"""Replaces a table by a file's text. Raises ValueError."""

LINES_MAX: Final = 20
"""Entries that are left out with a log line each; the rest is counted."""

_NO_VALUE: Final = re.compile(rb'(:\s*)([^\s"{\[,}][^,}\]\s]*)')
"""A value that is not a string, object or array."""

_VALUE: Final = re.compile(rb"-?[0-9]{1,19}|true|false|null")

VERSION: Final = "dataVersion"


def salvage(name: str, text: bytes, members: tuple[str, ...], decode: Decode) -> int:
    """Read the entries of a damaged table that can be read alone; each other one is logged.

    Args:
      name: of the file, for the log.
      text: its JSON, without a seal.
      members: of the object, whose entries are tried one by one.
      decode: of the table; called last with all good entries.

    Returns: the number of good entries.

    Raises:
      ValueError: it is no JSON object, or has none of these members; or no entry can be read.
    """
    try:
        tree = parse(text)
    except ValueError:
        # One damaged number makes all of the JSON unreadable; as null it costs only its entry.
        tree = parse(_NO_VALUE.sub(_null, text))
    if not any(isinstance(tree.get(member), dict) for member in members):
        raise ValueError(f"it has no table ({', '.join(members)})")
    good: dict[str, Any] = {}
    if VERSION in tree and not _problem({VERSION: tree[VERSION]}, decode):
        good[VERSION] = tree[VERSION]
    bad: list[str] = []
    for member in members:
        entries = tree.get(member)
        if not isinstance(entries, dict):
            continue
        good[member] = _whole_entries(member, entries, decode, bad)
    # A table of 100,000 entries must not fill the log.
    for line in bad[:LINES_MAX]:
        logger.error("%(file)s: %(entry)s; it is left out", {"file": name, "entry": line})
    if len(bad) > LINES_MAX:
        logger.error(
            "%(file)s: %(more)d more entries are left out",
            {"file": name, "more": len(bad) - LINES_MAX},
        )
    if bad and not any(good.get(member) for member in members):
        raise ValueError("none of its entries can be read")
    return decode(_text(good))


def _whole_entries(
    member: str, entries: dict[str, Any], decode: Decode, bad: list[str]
) -> dict[str, Any]:
    """The good entries; of an entry with numbers by queue or level, its good numbers."""
    found: dict[str, Any] = {}
    for key, value in entries.items():
        problem = _problem({member: {key: value}}, decode)
        if not problem:
            found[key] = value
            continue
        numbers = _whole_numbers(value) if isinstance(value, dict) else {}
        if numbers and not _problem({member: {key: numbers}}, decode):
            found[key] = numbers
            lost = sorted(map(str, value.keys() - numbers.keys()))
            bad.append(f"{key}: {', '.join(lost)} is not a whole number")
        else:
            bad.append(f"{key}: {problem}")
    return found


def _whole_numbers(value: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key, number in value.items():
        try:
            whole_number(key)
            found[key] = whole_number(number)
        except ValueError:
            continue
    return found


def _problem(tree: dict[str, Any], decode: Decode) -> str:
    try:
        decode(_text(tree))
    except ValueError as error:
        return str(error)
    return ""


def _null(found: re.Match[bytes]) -> bytes:
    """Null in the place of a word that is no value of JSON, such as a damaged number."""
    return found[0] if _VALUE.fullmatch(found[2]) else found[1] + b"null"


def _text(tree: dict[str, Any]) -> bytes:
    return msgspec.json.encode(tree)
