"""The parts that the benches share."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from trocket.bench.kit import (
    Columns,
    Spread,
    by_turns,
    chosen,
    make_cluster,
    number_text,
    percentile,
    percentiles,
    round_ratios,
    show,
    spread_text,
    table,
)
from trocket.interop.trocket_peer import TrocketCluster

KNOWN = {"a": 1, "b": 2, "c": 3}


@dataclass
class Rate:
    """An outcome."""

    case: str
    per_s: float


COLUMNS: Columns[Rate] = {
    "case": lambda one: one.case,
    "msg/s": lambda one: f"{one.per_s:,.0f}",
}
RATES = [Rate("first", 1234.5), Rate("second", 2.0)]


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)]
)
def test_a_percentile_is_the_value_below_which_the_share_lies(
    share: float, expected: float
) -> None:
    assert percentile(array("d", range(1, 101)), share) == expected


def test_without_a_version_our_own_broker_is_measured(tmp_path: Path) -> None:
    cluster = make_cluster("trocket", tmp_path)
    assert isinstance(cluster, TrocketCluster)
    assert cluster.label == "trocket"
    assert cluster.pids == []


@pytest.mark.parametrize("names", [None, []])
def test_without_names_all_cases_are_chosen(names: list[str] | None) -> None:
    assert chosen(names, KNOWN, "--case") == KNOWN


def test_cases_are_chosen_in_the_order_of_their_names_each_once() -> None:
    assert [*chosen(["c", "a", "c"], KNOWN, "--case").items()] == [("c", 3), ("a", 1)]


def test_an_unknown_case_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(typer.BadParameter, match="--case is one of a, b, c, not 'd'"):
        chosen(["a", "d"], KNOWN, "--case")


def test_a_table_has_a_row_for_each_outcome() -> None:
    columns = table(COLUMNS, RATES).columns
    assert [[str(cell) for cell in column.cells] for column in columns] == [
        ["first", "second"],
        ["1,234", "2"],
    ]


def test_programs_get_the_outcomes_and_what_is_true_of_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cases = [{"case": "first", "per_s": 1234.5}, {"case": "second", "per_s": 2.0}]
    show(RATES, COLUMNS, as_json=True)
    assert json.loads(capsys.readouterr().out) == cases
    show(RATES, COLUMNS, as_json=True, facts={"seconds": 5})
    assert json.loads(capsys.readouterr().out) == {"seconds": 5, "cases": cases}


@pytest.mark.parametrize(
    ("values", "reference", "expected"),
    [
        ([3.0, 4.0], [2.0, 4.0], [1.5, 1.0]),
        ([3.0, 4.0], [0.0, 4.0], [1.0]),
        ([None, 4.0], [2.0, 8.0], [0.5]),
        ([3.0, 4.0], [None, 8.0], [0.5]),
        ([3.0, 4.0], [2.0], [1.5]),
        ([], [], []),
    ],
    ids=["each", "zero", "not measured", "no reference", "ended early", "none"],
)
def test_ratios_are_of_the_same_round(
    values: list[float | None], reference: list[float | None], expected: list[float]
) -> None:
    assert round_ratios(values, reference) == expected


@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        (Spread(36512.4, 36100.0, 37400.0), "36,512 (36,100 … 37,400)"),
        (Spread(1.234, 1.234, 1.234), "1.23"),
        (None, ""),
    ],
)
def test_a_cell_has_the_spread_where_there_is_one(spread: Spread | None, expected: str) -> None:
    assert spread_text(spread) == expected


def test_numbers_are_rounded_to_what_a_reader_needs() -> None:
    assert [number_text(one) for one in (286_400.7, 999.6, 0.03712, 0.0)] == [
        "286,401",
        "1,000",
        "0.0371",
        "0",
    ]


def test_percentiles_are_scaled_and_those_of_nothing_are_zero() -> None:
    assert percentiles(range(1000, 0, -1), 0.5) == (250.5, 495.5, 500.0, 500.0)
    assert percentiles([]) == (0.0, 0.0, 0.0, 0.0)


def test_every_second_round_begins_with_the_other_side() -> None:
    assert [*by_turns("ab", 3)] == ["ab", "ba", "ab"]
