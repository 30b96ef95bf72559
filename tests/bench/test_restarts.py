"""Two restarts under load, one by SIGKILL and one by SIGTERM, with every client.

TROCKET_ENDURANCE_S=300 pytest tests/bench/test_restarts.py    a restart every 10 s for 5 minutes
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trocket.bench.kit import running
from trocket.bench.restarts import MUST_BE_NOTHING, Failure, make_cluster, run, violations

EVERY_S = 10.0
ENDURANCE_S = float(os.environ.get("TROCKET_ENDURANCE_S", "0"))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/fd")


@pytest.mark.slow
def test_every_client_rides_through_restarts(tmp_path: Path) -> None:
    count, every_s = (round(ENDURANCE_S / EVERY_S), EVERY_S) if ENDURANCE_S else (2, 0.0)
    with running(make_cluster(tmp_path / "cluster", with_namesrv=False)) as cluster:
        figures = run(cluster, count, every_s, rate=20)
    assert {name: figures[name] for name in violations(figures)} == {}
    assert figures["restarts"] == count
    assert len(figures["confirmed"]) == len(figures["consumed"]) == 6


def test_what_is_a_violation() -> None:
    figures = dict.fromkeys(MUST_BE_NOTHING, 0)
    assert violations(figures) == []
    assert violations(figures | {"failed_early": 1, "failed_late": 1}) == ["failed_early"]
    assert Failure("send", 2.0, "refused").is_early
    assert not Failure("send", 10.0, "refused").is_early
