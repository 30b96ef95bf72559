"""The cells of gRPC on the broker's port: RocketMQ's clients, without and with accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.interop.grpc_jobs import jobs
from trocket.interop.proxy_jobs import GRPC_SCENARIOS, WITH_ACCOUNTS
from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.scenarios.table import GRPC_CLIENTS, GRPC_JAVA, JAVA_5


def test_each_scenario_has_one_cell_on_our_brokers_only() -> None:
    plain, signed = jobs(["trocket", "apache-5.5.0"])
    assert {cell.kind for cell in (*plain.owed, *signed.owed)} == {Kind.GRPC}
    of_java = [cell.feature for cell in plain.owed if cell.client == GRPC_JAVA]
    assert of_java == [each.name for each in GRPC_SCENARIOS]
    assert {cell.client for cell in plain.owed} == set(GRPC_CLIENTS)
    assert len(signed.owed) == len(WITH_ACCOUNTS) * len(GRPC_CLIENTS)
    assert jobs(["trocket"], clients=[JAVA_5]) == []


@pytest.mark.interop
@pytest.mark.parametrize("number", [0, 1], ids=["plain", "with accounts"])
def test_clients_work_without_a_proxy(tmp_path: Path, number: int) -> None:
    job = jobs(["trocket"])[number]
    found: list[Cell] = []
    job.play(job.owed, tmp_path, found.append)
    assert {cell.name for cell in found} == {cell.name for cell in job.owed}
    assert [cell.feature for cell in found if cell.verdict is not Verdict.PASSED] == [], [
        (cell.client, cell.feature, cell.detail) for cell in found if cell.detail
    ]
