"""301: registered and removed filter servers, and the lists that the name servers get."""

from __future__ import annotations

import trio
import trio.testing

from trocket.broker.filter_servers.filter_server_manager import EXPIRED_S
from trocket.remoting.bodies import RegisterBrokerBody
from trocket.remoting.channel import Channel
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.transport import StreamTransport
from trocket.remoting.turn import Turn

from ...kit import Broker, Client, broker_and_client, broker_client, embedded_broker

REGISTER_FILTER_SERVER, REGISTER_BROKER = 301, 103
ADDRESS = "127.0.0.1:40747"
RECORDED = (
    b'{"code":301,"extFields":{"filterServerAddr":"127.0.0.1:40747"},"flag":0,"language":"JAVA",'
    b'"opaque":61,"serializeTypeCurrentRPC":"JSON","version":252}'
)
"""What Apache's filter server 4.2.0 sent, behind the two lengths."""


async def register(client: Client, address: str = ADDRESS) -> RemotingCommand:
    return await client.ask(REGISTER_FILTER_SERVER, {"filterServerAddr": address})


def addresses(broker: Broker) -> tuple[str, ...]:
    return broker.controller.filter_servers.addresses


async def test_the_recorded_frame_of_420_is_answered_as_its_broker_answered(autojump_clock):
    assert len(RECORDED) == 149
    async with broker_and_client(broker_name="broker-f") as (broker, client):
        await client.stream.send_all(b"\0\0\0\x99\0\0\0\x95" + RECORDED)
        answer = await client.answer(61)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext_fields == {"brokerName": "broker-f", "brokerId": "0"}
        assert (answer.remark, answer.body) == (None, b"")
        assert addresses(broker) == (ADDRESS,)


async def test_one_that_repeats_itself_stays_and_a_silent_one_is_dropped_and_closed(autojump_clock):
    async with embedded_broker() as broker:
        alive, silent = await broker.connect(), await broker.connect()
        await register(silent, "h:1")
        await register(alive, "h:2")
        await trio.sleep(EXPIRED_S - 5)
        await register(alive, "h:2")
        assert addresses(broker) == ("h:1", "h:2")
        await trio.sleep(15.1)  # the scan is every 10 s
        assert addresses(broker) == ("h:2",)
        assert await silent.stream.receive_some(1) == b""
        assert (await register(alive, "h:2")).code == ResponseCode.SUCCESS


async def test_one_whose_connection_closes_is_gone_at_once(autojump_clock):
    async with broker_and_client() as (broker, client):
        await register(client)
        await client.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert addresses(broker) == ()


async def test_what_is_no_address_is_refused_in_words(autojump_clock):
    async with broker_client() as client:
        answer = await register(client, "$(reboot)")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "illegal filter server address: '$(reboot)' is not host:port"
        answer = await client.ask(REGISTER_FILTER_SERVER, {})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "filterServerAddr" in (answer.remark or "")


class NameServer(RemotingClient):
    """Takes a broker's registrations in place of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: list[tuple[float, list[str]]] = []
        self._connection = Channel(StreamTransport(trio.testing.memory_stream_pair()[0]), Turn())

    async def channel(self, address: str) -> Channel:
        return self._connection

    async def call(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        if command.code == REGISTER_BROKER:
            body = RegisterBrokerBody.from_body(command.body)
            self.lists.append((trio.current_time(), body.filter_server_list))
        return command.answer()


async def test_changed_filter_servers_are_registered_at_once(autojump_clock):
    name_server = NameServer()
    async with embedded_broker(client=name_server, namesrv_addr="n:1") as broker:
        await trio.sleep(7)
        client = await broker.connect()
        await register(client)
        await trio.sleep(1)
        await client.stream.aclose()
        await trio.sleep(1)
        assert name_server.lists == [(0, []), (7, [ADDRESS]), (8, [])]
        await trio.sleep(30)
        assert len(name_server.lists) == 4  # and as often as ever
