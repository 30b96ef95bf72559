"""The load generator's arithmetic and its closed loop, against a tiny answering socket."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import typer

from trocket.bench.frames import ROCKETMQ_TYPE
from trocket.bench.kit import table
from trocket.bench.load import CASES, Case
from trocket.bench.wire import (
    COLUMNS,
    CaseResult,
    check_options,
    checkout_cluster,
    compare,
    load_of,
    report_ratios,
    requests_of,
)
from trocket.interop.peer import Cluster
from trocket.interop.trocket_peer import TrocketCluster


def test_the_cases_are_those_of_the_documentation() -> None:
    shapes = [(case.connections, case.in_flight) for case in CASES]
    assert shapes == [(1, 1), (1, 64), (1, 1024), (64, 1)]


def test_the_table_has_one_row_for_each_case() -> None:
    outcome = CaseResult("1 in flight", 10, 0, 5_000.0, 25.0, 1.0, 2.0, 3.0, 0.5, 50.0)
    assert table(COLUMNS, [outcome, outcome], "title").row_count == 2


def test_two_checkouts_are_measured_by_turns_and_each_round_gives_a_ratio(tmp_path: Path) -> None:
    ours, theirs = TrocketCluster(tmp_path / "a"), TrocketCluster(tmp_path / "b")
    order: list[Cluster] = []

    def run(cluster: Cluster, case: Case) -> CaseResult:
        order.append(cluster)
        cost_us = 10.0 if cluster is ours else 20.0
        return CaseResult(case.name, 10, 0, 1e6 / cost_us, cost_us, 1.0, 2.0, 3.0, 0.5, 50.0)

    pairs = compare((ours, theirs), run, rounds=2)
    assert order == [ours, theirs] * len(CASES) + [theirs, ours] * len(CASES)
    columns = report_ratios(pairs, "title").columns
    assert [str(next(iter(column.cells))) for column in columns] == [
        "1 in flight", "10.0", "20.0", "0.5", "2"
    ]  # fmt: skip


@pytest.mark.parametrize("other", [{"acl": True}, {"is_beside": True}])
def test_tls_is_measured_alone(other: dict[str, bool]) -> None:
    options = {"acl": False, "is_beside": False, **other}
    with pytest.raises(typer.BadParameter):
        check_options("json", "sends", tls=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("spin", [False, True])
def test_a_broker_that_never_answers_is_named(spin: bool) -> None:
    requests = requests_of("sends", ROCKETMQ_TYPE)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        load_of([server.getsockname()], CASES[1], requests, spin=spin) as load,
        pytest.raises(TimeoutError, match=r"no answer in 0.1 s, after 0 of 64 in flight"),
    ):
        load.run(0.0, timeout_s=0.1)


def test_another_checkout_needs_its_virtual_environment(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="is missing"):
        checkout_cluster(tmp_path, tmp_path)
