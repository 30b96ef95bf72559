"""`trocket doctor` against servers of our own: good ones, wrong ones, and one that goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import trio

from trocket.client import Message, Producer, PushConsumer
from trocket.remoting.acceptor import open_listener
from trocket.testing import Broker

from .conftest import Ended, Run


def found(ended: Ended, check: str) -> list[tuple[str, str]]:
    """The results and texts of a check in JSON."""
    (result,) = [each for each in json.loads(ended.out)["checks"] if each["check"] == check]
    return [(each["result"], each["text"]) for each in result["findings"]]


def test_a_good_cluster(run: Run, broker: Broker) -> None:
    tree = run("doctor", "--json").json
    assert tree["result"] == "ok"
    assert tree["nameServers"] == [broker.url.removeprefix("rocketmq://")]
    assert {each["result"] for each in tree["checks"]} <= {"ok", "skipped"}
    rows = run("doctor", broker.url).rows
    assert rows[0][:2] == ["name servers", "ok"]
    assert run("doctor", broker.url, "--url", broker.url).status == 2


def test_health_is_asked_where_the_metrics_are(run: Run) -> None:
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    config = {"metricsExporterType": "PROM", "metricsPromExporterPort": port}
    with Broker(config=config) as other:
        ended = run("doctor", other.url, "--json")
    assert ended.status == 0
    assert found(ended, "health") == [("ok", "all brokers that tell it are ready")]


@pytest.mark.slow
def test_what_is_wrong_with_topics_and_groups(run: Run, broker: Broker) -> None:
    assert run("topic", "create", "Few", "--queues", "4", "--read-queues", "2").status == 0
    assert run("topic", "create", "Left", "--queues", "1").status == 0
    assert run("group", "create", "gone").status == 0
    run("consume", "Left", "--group", "gone", "--from", "begin", "--idle", "0.05")
    run("send", "Left", "hello", "--count", "3")
    ended = run("doctor", "--json")
    assert ended.status == 1
    assert any("more write queues" in text and "Few" in text for _, text in found(ended, "topics"))
    run("topic", "delete", "Few", "--yes")
    run("topic", "delete", "Left", "--yes")


@pytest.mark.slow
async def test_members_of_a_group_disagree(broker: Broker) -> None:
    async with Producer(broker.url) as producer:
        await producer.send(Message("Both", b"x"))

    def member(selector: str) -> PushConsumer:
        return PushConsumer(broker.url, group="divided", subscriptions={"Both": selector})

    async with member("*"), member("A"):
        out = await trio.to_thread.run_sync(_doctor, broker.url)
    assert out.status == 1
    ((severity, text),) = found(out, "subscriptions")
    assert severity == "problem"
    assert "the topic Both" in text
    assert "TAG 'A'" in text


def _doctor(url: str) -> Ended:
    """Run the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "trocket.cli.main", "doctor", url, "--json", "--timeout", "2"],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def test_a_wrong_port_and_nothing_at_all(run: Run, broker: Broker) -> None:
    with open_listener("127.0.0.1", 0) as listener:
        free = listener.getsockname()[1]
    ended = run("doctor", f"127.0.0.1:{free}", "--json")
    assert ended.status == 1
    assert [each["check"] for each in json.loads(ended.out)["checks"]] == ["name servers"]
    ended = run("doctor", broker.broker_address, "--json")
    assert ended.status == 1
    assert "Is this a broker's port?" in found(ended, "name servers")[0][1]
    assert run("doctor", "not a url").status == 2
