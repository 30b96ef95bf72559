"""`trocket doctor` against servers of our own: good ones, wrong ones, and one that goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import trio

from trocket.cli.doctor.checks import judge
from trocket.cli.doctor.collect import collect
from trocket.cli.doctor.facts import Facts
from trocket.client import Client, Message, Producer, PushConsumer
from trocket.remoting.acceptor import open_listener
from trocket.remoting.bodies import BrokerData, ClusterInfo
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.headers import PutKVConfigRequestHeader, WipeWritePermOfBrokerRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.server import RemotingServer
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


async def test_what_name_servers_say_of_permissions_and_orders() -> None:
    with Broker() as other:
        async with Client(other.url) as client:
            (name_server,) = client.url.name_servers
            wipe = WipeWritePermOfBrokerRequestHeader(broker_name="broker-a")
            await client.request(name_server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe)
            order = PutKVConfigRequestHeader(
                namespace="ORDER_TOPIC_CONFIG", key="Ordered", value="broker-a:4"
            )
            await client.request(name_server, RequestCode.PUT_KV_CONFIG, order)
            facts = await collect(client, lambda what, done, total: None)
    assert facts.write_perms_taken == {"broker-a"}
    assert facts.ordered == {"Ordered": "broker-a:4"}
    assert any("its write permission was taken away" in text for text in texts(facts))
    assert any("the order of the topic Ordered" in text for text in texts(facts))


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


class Servers:
    """A name server and a broker in one, which ends the connection at a request.

    Attributes:
      brokers: addresses by broker id.
    """

    def __init__(self, ends_at: RequestCode | None = None) -> None:
        self.ends_at = ends_at
        self.brokers: dict[int, str] = {}

    def cluster(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        data = BrokerData(cluster="C", broker_name="a", broker_addrs=self.brokers)
        info = ClusterInfo(broker_addr_table={"a": data}, cluster_addr_table={"C": ["a"]})
        return request.answer(0, body=info.to_body())

    def table(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        if request.code == self.ends_at:
            channel.close("the broker ends")
            return None
        return request.answer(0, body=b'{"table":{"commitLogDiskRatio":"0.95"}}')

    async def looked_at(self, brokers: dict[int, str] | None = None) -> Facts:
        """The facts that are collected of these servers."""
        listener = open_listener("127.0.0.1", 0)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.brokers = {0: address} if brokers is None else brokers
        served = (
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_ALL_TOPIC_CONFIG,
        )
        server = RemotingServer(
            {RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster, **dict.fromkeys(served, self.table)}
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, [listener])
            async with Client(address, timeout_s=2.0) as client:
                facts = await collect(client, lambda what, done, total: None)
            nursery.cancel_scope.cancel()
        return facts


def texts(facts: Facts) -> list[str]:
    return [finding.text for result in judge(facts) for finding in result.findings]


@pytest.mark.parametrize(
    "ends_at",
    [RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG,
     RequestCode.GET_ALL_TOPIC_CONFIG],
)  # fmt: skip
async def test_a_broker_that_ends_in_the_middle_is_told_of(ends_at: RequestCode) -> None:
    facts = await Servers(ends_at).looked_at()
    (broker,) = facts.brokers
    if ends_at == RequestCode.GET_BROKER_RUNTIME_INFO:
        assert "the broker ends" in broker.error or "closed" in broker.error
    else:
        assert ends_at.name in broker.gaps
        assert any("95 % full: sends are refused" in text for text in texts(facts))
    assert RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG.name in broker.gaps or broker.error


async def test_a_broker_that_is_gone_and_one_that_answers_as_another() -> None:
    with open_listener("127.0.0.1", 0) as listener:
        gone = f"127.0.0.1:{listener.getsockname()[1]}"
    facts = await Servers().looked_at({0: gone})
    assert any(f"a ({gone}) cannot be reached" in text for text in texts(facts))
    facts = await Servers().looked_at({})
    assert any("no broker is registered" in text for text in texts(facts))
