"""The facts that are collected of servers: good ones, wrong ones, and one that goes away."""

from __future__ import annotations

import pytest
import trio

from trocket.client import Client
from trocket.operations.doctor.checks import judge
from trocket.operations.doctor.collect import collect
from trocket.operations.doctor.facts import Facts
from trocket.remoting.acceptor import open_listener
from trocket.remoting.bodies import BrokerData, ClusterInfo
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.headers import PutKVConfigRequestHeader, WipeWritePermOfBrokerRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.server import RemotingServer
from trocket.testing import Broker


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
