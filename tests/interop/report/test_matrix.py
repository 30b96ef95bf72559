"""Cells arranged as rows and columns, and texts that every format can hold."""

from __future__ import annotations

import pytest

from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.report.matrix import alike, arrange, grouped
from trocket.interop.report.text import duration, printable


def cell(feature: str, client: str, broker: str, fault: str = "none", detail: str = "") -> Cell:
    return Cell(Kind.SCENARIO, feature, client, broker, Verdict.PASSED, fault, detail)


def test_columns_are_brokers_with_the_clients_that_they_have() -> None:
    cells = [
        cell("a", "go", "trocket"),
        cell("a", "java", "apache"),
        cell("b", "java", "trocket"),
        Cell(Kind.WIRE, "c", "wire", "trocket", Verdict.PASSED),
    ]
    matrix = arrange(Kind.SCENARIO, cells)
    assert matrix.columns == {"trocket": ["go", "java"], "apache": ["java"]}
    assert matrix.places == [("trocket", "go"), ("trocket", "java"), ("apache", "java")]
    assert [feature.title for feature in matrix.features] == ["a", "b"]
    assert arrange(Kind.STORE, cells).features == []


def test_faults_are_rows_below_their_feature_in_the_order_of_the_run() -> None:
    cells = [cell("a", "go", "trocket", fault) for fault in ("restart", "none", "kill")]
    (feature,) = arrange(Kind.SCENARIO, cells).features
    assert [row.fault for row in feature.rows] == ["none", "restart", "kill"]
    assert list(feature.cells()) == [cells[1], cells[0], cells[2]]


def test_neighbours_of_one_group_stand_together() -> None:
    names = ("PULL 11: one", "PULL 11: two: three", "alone", "other", "SEND 10: one")
    features = arrange(Kind.SCENARIO, [cell(name, "go", "trocket") for name in names]).features
    groups = [(group, [each.title for each in some]) for group, some in grouped(features)]
    assert groups == [
        ("PULL 11", ["one", "two: three"]),
        ("", ["alone"]),
        ("", ["other"]),
        ("SEND 10", ["one"]),
    ]


def test_cells_of_one_reason_are_told_together() -> None:
    cells = [cell(name, "go", "trocket", detail=detail) for name, detail in ("ax", "by", "cx")]
    assert alike(cells) == [("x", [cells[0], cells[2]]), ("y", [cells[1]])]


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
    told = [
        duration(seconds).replace("\N{NO-BREAK SPACE}", " ") for seconds in (0.04, 9.96, 59, 200)
    ]
    assert told == ["0.0 s", "10.0 s", "59 s", "3 min 20 s"]
