"""`trocket topic static` and Admin with two brokers, and the Python client on a moved topic."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from trocket.blocking import Admin, Producer, PushConsumer
from trocket.client import ConfigurationError, ConsumeFromWhere, Message, NotFoundError

from .conftest import Command, Run
from .test_up_cluster import Start, conf, read, up

__all__ = ["conf", "up"]  # fixtures

pytestmark = pytest.mark.slow

TOPIC = "Orders"


@pytest.fixture
def url(up: Start, home: Path) -> str:
    command: Command = up("--brokers", "2")
    return f"rocketmq://{command.ready()['namesrv']}"


@pytest.fixture
def broker(url: str) -> SimpleNamespace:
    """What commands that run in this process need of a cluster."""
    return SimpleNamespace(url=url)


def send(url: str, begin: int, count: int) -> set[int]:
    """Send messages with numbers; return the queues in which they are."""
    with Producer(url) as producer:
        results = [
            producer.send(Message(TOPIC, str(number))) for number in range(begin, begin + count)
        ]
    assert {result.queue.broker_name for result in results} == {"__syslo__global__"}
    return {result.queue.queue_id for result in results}


def reader(url: str, group: str) -> PushConsumer:
    return PushConsumer(
        url,
        group=group,
        subscriptions={TOPIC: "*"},
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )


def test_nothing_is_lost_when_a_static_topic_moves(url: str) -> None:
    with Admin(url) as admin:
        plan = admin.create_static_topic(TOPIC, 4, dry_run=True)
        assert plan.leaders == {0: "broker-a", 1: "broker-b", 2: "broker-a", 3: "broker-b"}
        with pytest.raises(NotFoundError, match="no broker has a static topic Orders"):
            admin.static_topic(TOPIC)
        assert admin.create_static_topic(TOPIC, 4).leaders == plan.leaders
        assert admin.static_topic(TOPIC).leaders == plan.leaders
        with pytest.raises(ConfigurationError, match="Cannot decrease the queue num"):
            admin.create_static_topic(TOPIC, 3)
        with pytest.raises(ConfigurationError, match="Can't find addr for broker nosuch"):
            admin.move_static_topic(TOPIC, ["nosuch"])
        assert send(url, 0, 40) == {0, 1, 2, 3}
        with reader(url, "always") as always:
            read(always, set(range(20)))
            moved = admin.move_static_topic(TOPIC, ["broker-b"])
            assert moved.moved == {0: "broker-a", 2: "broker-a"}
            assert set(moved.leaders.values()) == {"broker-b"}
            assert send(url, 40, 40) == {0, 1, 2, 3}
            read(always, set(range(40, 80)))
        with reader(url, "later") as later:
            read(later, set(range(80)))
            positions = {queue.queue_id: offset for queue, offset in later.positions.items()}
        assert {queue_id: offset >= 10_000 for queue_id, offset in positions.items()} == {
            0: True, 1: False, 2: True, 3: False,
        }  # fmt: skip


def test_a_static_topic_by_commands(run: Run) -> None:
    create = ("topic", "static", "create", TOPIC, "--queues", "3")
    plan = run(*create, "--dry-run")
    assert [row[:2] for row in plan.rows] == [
        ["0", "broker-a"],
        ["1", "broker-b"],
        ["2", "broker-a"],
    ]
    assert f"there is no topic {TOPIC!r}" in run("topic", "static", "show", TOPIC).err
    assert run(*create, "-b", "broker-a").status == 0
    shown = run("topic", "static", "show", TOPIC, "--json")
    assert shown.json["leaders"] == dict.fromkeys("012", "broker-a")
    move = run("topic", "static", "move", TOPIC, "-b", "broker-b")
    assert move.out.count("broker-a") == 3
    again = run(*create)
    assert again.status != 0
    assert "The topic queue num is equal the existed queue num" in again.err
