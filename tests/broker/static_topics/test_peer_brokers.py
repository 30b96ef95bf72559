"""Requests to other brokers, whose addresses come from name servers that may be gone."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.static_topics.peer_brokers import PeerBrokers
from trocket.remoting.bodies import BrokerData, ClusterInfo
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemotingTimeoutError, RequestRefused

NAMESRV, BROKER = "192.0.2.1:9876", "192.0.2.2:10911"


class Network:
    """Answers for a name server and a broker, of which those in `silent` say nothing."""

    def __init__(self) -> None:
        self.silent: set[str] = set()

    async def call(self, address: str, command: RemotingCommand, timeout_s: float) -> Any:
        if address in self.silent:
            await trio.sleep(timeout_s)
            raise RemotingTimeoutError(f"{address} does not answer")
        if address == NAMESRV:
            data = BrokerData(cluster="C", broker_name="a", broker_addrs={0: BROKER})
            body = ClusterInfo(broker_addr_table={"a": data}).to_body()
            return command.answer(body=body)
        return command.answer(remark="served")


async def test_a_known_broker_is_asked_although_no_name_server_answers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    network = Network()
    peers = PeerBrokers(BrokerConfig(namesrv_addr=NAMESRV), network)  # type: ignore[arg-type]
    assert (await peers.call("a", RemotingCommand(11))).remark == "served"
    network.silent = {NAMESRV, BROKER}
    with pytest.raises(RequestRefused, match="broker a"):
        await peers.call("a", RemotingCommand(11))
    await trio.sleep(10)
    network.silent = {NAMESRV}
    for _ in range(2):
        assert (await peers.call("a", RemotingCommand(11))).remark == "served"
