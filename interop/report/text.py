"""Text shared by reports: signs of verdicts, escaping, durations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from .cells import Cell, Verdict

SIGNS: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.PASSED: "✓",
        Verdict.QUIRK: "≈",
        Verdict.FAILED: "✗",
        Verdict.SKIPPED: "\N{EN DASH}",
    }
)

MEANINGS: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.PASSED: "as with Apache",
        Verdict.QUIRK: "deliberately different",
        Verdict.FAILED: "differs, or an error",
        Verdict.SKIPPED: "not run",
    }
)

_NOT_IN_XML = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain or HTML would drop: controls, lone surrogates."""


def printable(text: str) -> str:
    """Text with unprintable characters escaped as `\\x00` or `\\ud800`; newlines are kept."""
    return _NOT_IN_XML.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 20 s`, with non-breaking spaces."""
    if seconds < 10:
        return f"{seconds:.1f}\N{NO-BREAK SPACE}s"
    minutes, rest = divmod(round(seconds), 60)
    text = f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def explained(cell: Cell) -> str:
    """A cell's detail and frames, line by line."""
    return printable("\n".join(filter(None, (cell.detail, *cell.frames))))
