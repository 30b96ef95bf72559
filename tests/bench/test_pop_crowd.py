"""A few waiting pops: the measuring program itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from trocket.bench.kit import running
from trocket.bench.pop_crowd import COLUMNS, measure
from trocket.interop.trocket_peer import TrocketCluster
from trocket.remoting.response_codes import ResponseCode


@pytest.mark.slow
def test_a_few_waiting_pops_are_measured(tmp_path: Path) -> None:
    with running(TrocketCluster(tmp_path / "cluster")) as cluster:
        phases, answers = trio.run(
            partial(measure, waiting=40, invisible=50, seconds=1, settle_s=0),
            cluster.broker_address,
            cluster.pids[0],
        )
    assert [(one.waiting, one.invisible) for one in phases] == [(0, 0), (0, 50), (40, 50)]
    assert set(answers) <= {ResponseCode.POLLING_TIMEOUT}
    for one in phases:
        assert one.probes > 0
        assert 0 < one.p50_ms <= one.p99_ms <= one.max_ms
        assert len([cell(one) for cell in COLUMNS.values()]) == len(COLUMNS)
