"""Small crowds: the measuring program itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from trocket.bench.crowd import (
    COLUMNS,
    Consumer,
    Crowd,
    CrowdResult,
    clients,
    delayed,
    is_settled,
    long_polls,
    pops,
)
from trocket.bench.kit import running
from trocket.interop.trocket_peer import TrocketCluster


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        partial(clients, count=20),
        partial(delayed, count=300),
        partial(long_polls, count=2_000, wait_s=4),
    ],
    ids=["clients", "delayed", "long-polls"],
)
def test_a_small_crowd_loses_nothing(run: partial, tmp_path: Path) -> None:
    with running(TrocketCluster(tmp_path / "cluster")) as cluster:
        (outcome,) = trio.run(run, cluster)
    assert outcome.is_right, outcome
    assert outcome.crowd_mb > 10


@pytest.mark.slow
def test_a_few_waiting_pops_are_measured(tmp_path: Path) -> None:
    with running(TrocketCluster(tmp_path / "cluster")) as cluster:
        phases = trio.run(partial(pops, cluster, 400, seconds=1, stored_s=0))
    assert [one.is_right for one in phases] == [True] * 3, phases
    assert phases[1].notes["popped"] == 400
    assert phases[2].notes["waiting"] == 40
    for one in phases:
        assert one.notes["probes"] > 0
        assert 0 < one.p50_ms <= one.p99_ms <= one.max_ms


def test_what_went_wrong_stands_in_the_table() -> None:
    outcomes = [CrowdResult("clients", right, 1.0, 40.0, 50.0, 2.0) for right in (True, False)]
    assert [COLUMNS["right"](one) for one in outcomes] == ["yes", "NO"]


def test_a_group_is_settled_when_each_member_has_its_share_and_not_before() -> None:
    consumers = [Consumer(number, "b:1", Crowd()) for number in range(10)]
    queues = [(topic, queue) for topic in consumers[0].topics for queue in range(4)]
    consumers[0].queues = set(queues)  # it joined first, and sees no other members
    assert not is_settled(consumers)
    for number, consumer in enumerate(consumers):
        consumer.queues = set(queues[number::10])
    assert is_settled(consumers)
    consumers[1].queues = consumers[0].queues
    assert not is_settled(consumers)


def test_a_queue_that_comes_back_is_not_consumed_twice() -> None:
    started = []

    class Nursery:
        def start_soon(self, consume, peer, queue):
            started.append(queue)

    consumer = Consumer(0, "b:1", Crowd())
    # The first of 3 has queue 6 of the group, the first of 4 has not, the first of 6 has again.
    for count in (3, 4, 6):
        members = [f"consumer-{number:04d}@crowd" for number in range(count)]
        consumer._share(members, None, Nursery())
    assert len(consumer.queues) == 7
    assert len(set(started)) == len(started)
