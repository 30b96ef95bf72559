"""`trocket up --failover`: a controller and brokers as processes, of which any may be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trocket.blocking import Admin, Producer
from trocket.client import Message

from ..kit.waiting import wait_until
from .conftest import Command

pytestmark = pytest.mark.slow

QUICK = (
    "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"
    "brokerHeartbeatInterval=200\ncontrollerHeartBeatTimeoutMills=2000\n"
)
Start = Callable[..., Command]


@pytest.fixture
def up(start: Start, home: Path, tmp_path: Path) -> Start:
    conf = tmp_path / "quick.conf"
    conf.write_text(QUICK)

    def up(*more: str) -> Command:
        ports = ("--namesrv-port", "0", "--broker-port", "0")
        return start("up", "--home", str(home), *ports, "-c", str(conf), "--failover", *more)

    return up


def roles(facts: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {each["name"]: (each["brokerRole"], each["brokerId"]) for each in facts["brokers"]}


def in_sync(facts: dict[str, Any]) -> list[int]:
    """The permanent ids of the in-sync set."""
    with Admin(f"rocketmq://{facts['namesrv']}") as admin:
        sets = admin.in_sync_sets(["broker-a"], controllers=[facts["controller"]])
    return sorted(each.broker_id for each in sets["broker-a"].in_sync_replicas)


def test_another_broker_takes_the_place_of_a_killed_master(up: Start) -> None:
    command = up("--json")
    facts = command.ready()
    assert roles(facts) == {"broker-a": ("SYNC_MASTER", 0), "broker-a-1": ("SLAVE", 2)}
    assert facts["controllerPid"] > 0
    wait_until(lambda: in_sync(facts) == [1, 2], "both brokers in sync")
    with Producer(f"rocketmq://{facts['namesrv']}") as producer:
        first = producer.send(Message("Orders", b"before"))
        os.kill(facts["brokers"][0]["pid"], signal.SIGKILL)
        second = producer.send(Message("Orders", b"after"))
        assert (first.status.name, second.status.name) == ("SEND_OK", "SEND_OK")
    assert in_sync(facts) == [2]


def test_roles_of_an_earlier_run_stay(up: Start) -> None:
    first = up("--json")
    facts = first.ready()
    wait_until(lambda: in_sync(facts) == [1, 2], "both brokers in sync")
    os.kill(facts["brokers"][0]["pid"], signal.SIGKILL)
    wait_until(lambda: in_sync(facts) == [2], "the other one is the master")
    first.end(signal.SIGTERM)
    again = up("--json").ready()
    assert roles(again) == {"broker-a": ("SLAVE", 1), "broker-a-1": ("SYNC_MASTER", 0)}


def test_a_producer_finds_the_master_that_an_operator_has_moved(up: Start) -> None:
    facts = up("--json").ready()
    wait_until(lambda: in_sync(facts) == [1, 2], "both brokers in sync")
    url = f"rocketmq://{facts['namesrv']}"
    with Producer(url) as producer, Admin(url) as admin:
        before = producer.send(Message("Orders", b"before"))
        admin.elect_master("broker-a", 2, controllers=[facts["controller"]])
        after = producer.send(Message("Orders", b"after"))
    assert [before.status.name, after.status.name] == ["SEND_OK", "SEND_OK"]
    assert in_sync(facts) in ([2], [1, 2])
