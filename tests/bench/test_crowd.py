"""Small crowds: the measuring program itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from trocket.bench.crowd import CASES, Outcome, long_polls, report
from trocket.interop.trocket_peer import TrocketCluster


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "count", "more"),
    [("clients", 20, {}), ("delayed", 300, {}), ("long-polls", 2_000, {"wait_s": 4})],
)
def test_a_small_crowd_loses_nothing(case: str, count: int, more: dict, tmp_path: Path) -> None:
    cluster = TrocketCluster(tmp_path / "cluster")
    try:
        cluster.start()
        run = long_polls if case == "long-polls" else CASES[case]
        outcome = trio.run(partial(run, cluster, count, **more))
    finally:
        cluster.close()
    assert outcome.is_right, outcome
    assert outcome.case == case
    assert outcome.crowd_mb > 10


def test_what_went_wrong_stands_in_the_table() -> None:
    outcomes = [Outcome("clients", right, 1.0, 40.0, 50.0, 2.0) for right in (True, False)]
    assert report(outcomes).row_count == 2
    assert list(report(outcomes).columns[1].cells) == ["yes", "NO"]
