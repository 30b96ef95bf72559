"""The self-check notices what a client would."""

from __future__ import annotations

import pytest
import trio

from trocket import Message, Producer
from trocket.cli.self_check import TOPIC, check
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemotingError
from trocket.remoting.message_id import decode_offset_id
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer, open_listener
from trocket.testing import Broker


class FakeServers:
    """Name server and broker in one, as bad as the attributes say."""

    def __init__(self) -> None:
        self.route_code = ResponseCode.SUCCESS
        self.send_code = ResponseCode.INVALID_PARAMETER
        self.pull_code = ResponseCode.PULL_NOT_FOUND

    def route(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        assert request.ext_fields["topic"] == TOPIC
        return request.answer(self.route_code, "no route")

    def send(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return request.answer(self.send_code, "disk full")

    def pull(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return request.answer(self.pull_code, "no such topic")

    async def checked(self, advertised: str = "") -> tuple[float, str]:
        """The outcome of the check against these."""
        listener = open_listener("127.0.0.1", 0)
        address = "{}:{}".format(*listener.getsockname())
        table = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.PULL_MESSAGE: self.pull,
        }
        outcome: tuple[float, str] | RemotingError
        async with trio.open_nursery() as nursery:
            await nursery.start(RemotingServer(table).serve, [listener])
            try:
                outcome = await check(address, address, advertised or address)
            except RemotingError as error:
                outcome = error
            nursery.cancel_scope.cancel()
        if isinstance(outcome, RemotingError):
            raise outcome
        return outcome


async def test_servers_that_answer_are_well() -> None:
    check_ms, warning = await FakeServers().checked()
    assert check_ms > 0
    assert warning == ""


async def test_no_route_fails() -> None:
    servers = FakeServers()
    servers.route_code = ResponseCode.TOPIC_NOT_EXIST
    with pytest.raises(RemotingError, match="GET_ROUTEINFO_BY_TOPIC was answered 17: no route"):
        await servers.checked()


async def test_a_refused_send_fails() -> None:
    servers = FakeServers()
    servers.send_code = ResponseCode.SERVICE_NOT_AVAILABLE
    with pytest.raises(RemotingError, match="SEND_MESSAGE was answered 14: disk full"):
        await servers.checked()


async def test_a_refused_pull_fails() -> None:
    servers = FakeServers()
    servers.pull_code = ResponseCode.TOPIC_NOT_EXIST
    with pytest.raises(RemotingError, match="PULL_MESSAGE was answered 17: no such topic"):
        await servers.checked()


async def test_it_leaves_no_message_in_the_store() -> None:
    async with Broker() as broker:
        check_ms, warning = await check(
            broker.namesrv_address, broker.broker_address, broker.broker_address
        )
        assert broker.messages(TOPIC) == []
        async with Producer(broker.url) as producer:
            first = await producer.send(Message("Orders", "first"))
        assert decode_offset_id(first.offset_message_id).physical_offset == 0
    assert (check_ms > 0, warning) == (True, "")


async def test_an_advertised_address_that_leads_nowhere_is_a_warning() -> None:
    closed = open_listener("127.0.0.1", 0)
    advertised = "{}:{}".format(*closed.getsockname())
    closed.close()
    _, warning = await FakeServers().checked(advertised)
    assert f"routes name this broker as {advertised}" in warning
    assert "brokerIP1" in warning
