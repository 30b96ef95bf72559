"""A short run of failover: each fault once, with all features, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.bench.failover import KEYS, run
from trocket.interop.controller_mode import OURS, ControlledSet, Mix

FAULTS = ["kill-master", "kill-controller", "freeze-master", "kill-both"]


@pytest.mark.slow
def test_nothing_is_lost_whatever_ends(tmp_path: Path) -> None:
    with ControlledSet(Mix((OURS, OURS), OURS), tmp_path, keys=KEYS) as brokers:
        report = run(
            brokers,
            FAULTS,
            rate=100.0,
            seed=1,
            with_features=True,
            on_round=lambda fault, one: None,
        )
    assert report.problems == []
    assert report.verdict.is_good, report.verdict
    assert [one.fault for one in report.rounds] == FAULTS
    assert report.verdict.confirmed > 0
    assert report.features.keys() == {"Delays", "Transactions", "Pops", "Retries"}
    switched = {one.fault for one in report.rounds if one.switch_s is not None}
    assert switched == {"kill-master", "freeze-master", "kill-both"}
