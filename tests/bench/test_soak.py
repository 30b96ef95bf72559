"""Two restarts under load, one by SIGKILL and one by SIGTERM, with every client.

TROCKET_ENDURANCE_S=300 pytest tests/bench/test_soak.py    a restart every 10 s for 5 minutes
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trocket.bench.kit import running
from trocket.bench.soak import (
    MUST_BE_NOTHING,
    Sample,
    growth,
    make_cluster,
    run,
    violations,
)
from trocket.bench.soak_clients import SENDERS, Failure, Marks

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
    assert all(figures["confirmed"].values())
    assert figures["second_half_max"]["resident_mb"] > 10


def test_a_mark_counts_once_and_may_lie_beyond_the_room() -> None:
    confirmed, consumed = Marks(4), Marks(4)
    for number in (0, 3, 9):
        confirmed.add(f"{SENDERS[0]} {number}".ljust(128))
    confirmed.add(f"{SENDERS[1]} 3")
    for number in (3, 3, 5):
        consumed.add(f"{SENDERS[0]} {number}")
    assert (confirmed.count, confirmed.again) == (4, 0)
    assert (consumed.count, consumed.again) == (2, 1)
    assert confirmed.without(consumed) == 3


def test_growth_is_of_the_halves_after_the_warm_up() -> None:
    samples = [Sample(at_s, 90.0 - at_s, tasks, 7) for at_s, tasks in enumerate((9, 9, 2, 3, 5, 4))]
    found = growth(samples)
    assert found["first_half_max"] == {"resident_mb": 88.0, "tasks": 3, "files": 7}
    assert found["second_half_max"] == {"resident_mb": 86.0, "tasks": 5, "files": 7}


def test_what_is_a_violation() -> None:
    figures = dict.fromkeys(MUST_BE_NOTHING, 0)
    assert violations(figures) == []
    assert violations(figures | {"failed_early": 1, "failed_late": 1}) == ["failed_early"]
    assert Failure("send", 2.0, "refused").is_early
    assert not Failure("send", 10.0, "refused").is_early
