"""Small crowds: the measuring program itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from trocket.bench.crowd import CASES, COLUMNS, Consumer, Crowd, CrowdResult, is_settled, long_polls
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
