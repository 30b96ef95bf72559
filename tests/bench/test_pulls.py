"""The benchmark of pulls: its rounds alternate, and its wakes speak to a real broker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from trocket.bench import pulls
from trocket.bench.kit import running
from trocket.bench.pulls import LOADS, measure, row_of
from trocket.interop.peer import Cluster
from trocket.interop.trocket_peer import TrocketCluster


def test_two_brokers_are_measured_by_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours, theirs = TrocketCluster(tmp_path / "a"), TrocketCluster(tmp_path / "b")
    order: list[Cluster] = []

    class Load:
        def run(self, seconds: float) -> int:
            return 1

    def cost_us(cluster: Cluster, load: Load, seconds: float) -> tuple[float, int]:
        order.append(cluster)
        return (10.0 if cluster is ours else 20.0), 1

    monkeypatch.setattr(pulls, "cost_us", cost_us)
    make: Callable[[Cluster, ExitStack], Load] = lambda cluster, stack: Load()  # noqa: E731
    costs = measure([ours, theirs], make, rounds=2, seconds=1.0)
    assert order == [ours, theirs, theirs, ours]
    assert row_of("wakes", costs) == ["wakes", "10", "20", "0.5"]
    assert row_of("wakes", [[1.0], [3.0]]) == ["wakes", "2 (1 … 3)"]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LOADS))
def test_every_answer_of_a_real_broker_is_the_expected_one(name: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(running(TrocketCluster(tmp_path)))
        assert LOADS[name](cluster, stack).run(0.2) > 0
