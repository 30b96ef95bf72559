"""The cells of gRPC: RocketMQ's clients on the broker's port, in each way."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.interop.grpc_jobs import WAYS, jobs
from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.scenarios.grpc_table import GROUP_NAMES, GRPC_BY_NAME, WITH_ACCOUNTS
from trocket.interop.scenarios.table import GRPC_CLIENTS, GRPC_JAVA, JAVA_5

QUICK = ("grpc_simple", "grpc_fifo", "grpc_transaction")
"""Of the ways that differ from a plain connection in the connection alone."""

FAILED = (Verdict.FAILED, Verdict.QUIRK)


def test_each_scenario_has_one_cell_in_each_way() -> None:
    found = jobs(["trocket"])
    assert len(found) == len(WAYS)
    cells = [cell for job in found for cell in job.owed]
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.kind for cell in cells} == {Kind.GRPC}
    assert {cell.client for cell in cells} == set(GRPC_CLIENTS)
    for way, job in zip(WAYS, found, strict=True):
        of_java = [cell.feature for cell in job.owed if cell.client == GRPC_JAVA]
        assert of_java == [f"{name}{way.end}" for name in way.names]
    assert jobs(["trocket"], clients=[JAVA_5]) == []


def test_brokers_of_apache_have_the_same_cells_if_their_proxy_can() -> None:
    assert jobs(["apache-5.3.3", "apache-4.9.7", "docker-5.3.3", "rocketmq://127.0.0.1:1"]) == []
    ours, apaches = (
        [(cell.feature, cell.client) for job in jobs([broker]) for cell in job.owed]
        for broker in ("trocket", "apache-5.5.0")
    )
    assert ours == apaches


def test_the_tables_name_scenarios_that_exist() -> None:
    assert {*GROUP_NAMES, *WITH_ACCOUNTS, *QUICK} <= GRPC_BY_NAME.keys()


@pytest.mark.interop
@pytest.mark.usefixtures("short_polls")
@pytest.mark.parametrize(
    ("number", "names"),
    [
        pytest.param(0, tuple(GRPC_BY_NAME), id="plain"),
        pytest.param(1, QUICK, id="by TLS"),
        pytest.param(2, QUICK, id="by another port"),
        pytest.param(3, WITH_ACCOUNTS, id="with accounts"),
        pytest.param(1, tuple(GRPC_BY_NAME), id="all by TLS", marks=pytest.mark.matrix),
        pytest.param(2, tuple(GRPC_BY_NAME), id="all by another port", marks=pytest.mark.matrix),
    ],
)
def test_clients_work_without_a_proxy(tmp_path: Path, number: int, names: tuple[str, ...]) -> None:
    job = jobs(["trocket"])[number]
    features = [f"{name}{WAYS[number].end}" for name in names]
    chosen = job.selected(lambda cell: cell.feature in features)
    assert chosen is not None
    found: list[Cell] = []
    chosen.play(chosen.owed, tmp_path, found.append)
    assert {cell.name for cell in found} == {cell.name for cell in chosen.owed}
    # A client whose tools are missing is skipped.
    bad = [(cell.client, cell.feature, cell.detail) for cell in found if cell.verdict in FAILED]
    assert bad == []
