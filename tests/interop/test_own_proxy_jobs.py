"""The cells of `trocket proxy`: who runs what before which broker."""

from __future__ import annotations

from trocket.interop.own_proxy_jobs import jobs
from trocket.interop.report.cells import Kind
from trocket.interop.scenarios.grpc_table import GRPC_BY_NAME, WITH_ACCOUNTS
from trocket.interop.scenarios.table import GRPC_JAVA


def test_every_scenario_runs_before_brokers_that_pop() -> None:
    for broker in ("trocket", "apache-5.5.0"):
        plain, signed = jobs([broker], clients=[GRPC_JAVA])
        assert [cell.feature for cell in plain.owed] == [
            name for name, each in GRPC_BY_NAME.items() if GRPC_JAVA in each.clients
        ]
        features = [f"{name}, with accounts" for name in WITH_ACCOUNTS]
        assert [cell.feature for cell in signed.owed] == features
        assert {cell.kind for cell in (*plain.owed, *signed.owed)} == {Kind.OWN_PROXY}
    assert jobs(["apache-4.9.7", "rocketmq://127.0.0.1:9876"]) == []
