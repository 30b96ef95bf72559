"""The official Java clients: delayed messages, retries, dead letters.

What is expected below was seen with Apache's broker 5.5.0: run this with TROCKET_INTEROP_PEER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from trocket.interop.java_program import run_java
from trocket.interop.peer import Cluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TIMEOUT_S = 120.0
EXPECTED = [
    "delayed 1 false Delayed",
    "delayed 2 false Delayed",
    "delayed 3 false Delayed",
    "tried 0 Failing key",
    "tried 1 Failing key",
    "tried 2 Failing key",
    "dead 3 Failing true",
    "ordered 0",
    "ordered 1",
    "ordered-next",
]
ORDERED_DEAD = {"5.5.0": "ordered-dead 2", "4.9.7": "ordered-dead 1"}
"""5.x clients count the try that made them give up, too."""

NOT_DELAYED = "delayed 0 false Delayed"
IN_ORDER = ("delayed", "tried")


@pytest.mark.parametrize("version", ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)])
def test_what_is_delayed_or_fails_comes_again_as_from_apache(
    make_cluster: Callable[[], Cluster], tmp_path: Path, version: str
) -> None:
    cluster = make_cluster()
    cluster.start()
    expected = [*EXPECTED, NOT_DELAYED, ORDERED_DEAD[version]]
    lines = run_java(
        version,
        "Retry",
        cluster.namesrv_address,
        folder=tmp_path / "client",
        timeout_s=TIMEOUT_S,
        is_done=lambda _, lines: set(expected) <= set(lines),
        options=("-Drocketmq.client.rebalance.waitInterval=1000",),
    )
    words = {line.split()[0] for line in expected}
    seen = [line for line in lines if line.partition(" ")[0] in words]
    assert Counter(seen) == Counter(expected)
    in_order = [line for line in seen if line != NOT_DELAYED]
    for word in IN_ORDER:
        assert [line for line in in_order if line.startswith(word)] == [
            line for line in EXPECTED if line.startswith(word)
        ]
