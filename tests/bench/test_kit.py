"""The parts that the benches share."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

from trocket.bench.kit import Columns, chosen, make_cluster, percentile, show, table
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
