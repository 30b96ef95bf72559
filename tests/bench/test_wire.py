"""The load generator's arithmetic and its closed loop, against a tiny answering socket."""

from __future__ import annotations

from array import array

import pytest

from trocket.bench.wire import CASES, Outcome, make_cluster, percentile, report
from trocket.interop.trocket_peer import TrocketCluster


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)]
)
def test_a_percentile_is_the_value_below_which_the_share_lies(
    share: float, expected: float
) -> None:
    assert percentile(array("d", range(1, 101)), share) == expected


def test_the_cases_are_those_of_the_documentation() -> None:
    shapes = [(case.connections, case.in_flight) for case in CASES]
    assert shapes == [(1, 1), (1, 64), (1, 1024), (64, 1)]


def test_the_table_has_one_row_for_each_case() -> None:
    outcome = Outcome("1 in flight", 10, 0, 5_000.0, 25.0, 1.0, 2.0, 3.0, 0.5, 50.0)
    table = report([outcome, outcome], "title")
    assert table.row_count == 2


def test_without_a_version_our_own_broker_is_measured(tmp_path) -> None:
    cluster = make_cluster("trocket", tmp_path)
    assert isinstance(cluster, TrocketCluster)
    assert cluster.label == "trocket"
    assert cluster.pids == []
