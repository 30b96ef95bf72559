"""Cells grouped by reason, and escaped texts."""

from __future__ import annotations

import pytest

from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.report.markdown import by_reason
from trocket.interop.report.text import duration, printable


def cell(feature: str, client: str, broker: str, fault: str = "none", detail: str = "") -> Cell:
    return Cell(Kind.SCENARIO, feature, client, broker, Verdict.PASSED, fault, detail)


def test_cells_of_one_reason_are_grouped() -> None:
    cells = [cell(name, "go", "trocket", detail=detail) for name, detail in ("ax", "by", "cx")]
    assert by_reason(cells) == [("x", [cells[0], cells[2]]), ("y", [cells[1]])]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ✓ 日本 🙂\n\tnext", "plain ✓ 日本 🙂\n\tnext"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("\x00\x1b[31m\x7f\x85", "\\x00\\x1b[31m\\x7f\\x85"),
        ("\ud800 \ufffe", "\\ud800 \\ufffe"),
    ],
)
def test_what_cannot_be_shown_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_durations_are_for_people() -> None:
    texts = [
        duration(seconds).replace("\N{NO-BREAK SPACE}", " ") for seconds in (0.04, 9.96, 59, 200)
    ]
    assert texts == ["0.0 s", "10.0 s", "59 s", "3 min 20 s"]
