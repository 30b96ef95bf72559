"""The cells of Apache's proxy: who runs what before which broker, and two of them with peers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trocket.interop.apache_proxy import ApacheProxy
from trocket.interop.peer import Cluster
from trocket.interop.peers import open_cluster
from trocket.interop.process import PeerError
from trocket.interop.proxy_jobs import (
    NOT_SERVED,
    PROXY_CLIENTS,
    PROXY_SCENARIOS,
    jobs,
    reason_not_to_run,
)
from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.scenarios.grpc_table import (
    GROUPS,
    GRPC_SCENARIOS,
    MESSAGE_TYPES,
    WITH_ACCOUNTS,
)
from trocket.interop.scenarios.table import GRPC_JAVA, JAVA_5, PYTHON, SCENARIOS

NAMES = [scenario.name for scenario in PROXY_SCENARIOS]


def cells(broker: str = "trocket", *clients: str) -> list[Cell]:
    return [cell for job in jobs([broker], clients=clients or None) for cell in job.owed]


def test_every_client_of_a_scenario_has_one_cell() -> None:
    found = cells()
    assert len({cell.name for cell in found}) == len(found)
    assert {cell.kind for cell in found} == {Kind.PROXY}
    assert {cell.client for cell in found} == set(PROXY_CLIENTS)
    assert {cell.feature for cell in cells("trocket", GRPC_JAVA)} == {
        *(scenario.name for scenario in GRPC_SCENARIOS),
        *(f"{name}, with accounts" for name in WITH_ACCOUNTS),
    }
    assert {cell.client for cell in cells("apache-5.5.0", JAVA_5)} == {JAVA_5}


def test_only_brokers_that_pop_have_a_proxy() -> None:
    for broker in ("apache-4.9.7", "apache-4.2.0", "docker-5.3.3", "rocketmq://127.0.0.1:9876"):
        assert cells(broker) == []


def test_what_the_proxy_does_not_serve_is_skipped_with_the_reason() -> None:
    for cell in cells("trocket", JAVA_5, *PYTHON):
        reason = reason_not_to_run(cell)
        if cell.feature in NOT_SERVED:
            assert reason == NOT_SERVED[cell.feature]


def test_the_tables_name_scenarios_that_exist() -> None:
    assert MESSAGE_TYPES.keys() | GROUPS.keys() | NOT_SERVED.keys() <= set(NAMES)
    assert len(NAMES) == len(set(NAMES))
    assert not {scenario.name for scenario in SCENARIOS} & {each.name for each in GRPC_SCENARIOS}


@pytest.mark.interop
def test_a_simple_consumer_of_a_new_group_receives_hides_and_acknowledges(tmp_path: Path) -> None:
    job, _ = jobs(["trocket"], clients=[GRPC_JAVA])
    chosen = job.selected(lambda cell: cell.feature in ("grpc_simple", "grpc_push"))
    assert chosen is not None
    found: list[Cell] = []
    chosen.play(chosen.owed, tmp_path, found.append)
    passed = [replace(cell, verdict=Verdict.PASSED) for cell in chosen.owed]
    assert {cell.name for cell in found} == {cell.name for cell in passed}
    assert {cell.verdict for cell in found} == {Verdict.PASSED}, [cell.detail for cell in found]


@pytest.mark.interop
def test_a_proxy_before_no_cluster_says_why_it_does_not_start(tmp_path: Path) -> None:
    cluster: Cluster = open_cluster("trocket", tmp_path / "cluster")
    proxy = ApacheProxy(cluster, tmp_path / "proxy")
    with pytest.raises(PeerError, match="proxy ended without the line"):
        proxy.start()
    assert proxy.pids == []
