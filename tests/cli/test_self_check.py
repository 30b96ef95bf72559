"""The self-check notices what a client would."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from trocket.cli.self_check import TOPIC, check
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemotingError
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_codec import encode_record
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer, open_listener

HOST = host_bytes("127.0.0.1", 10911)


class FakeServers:
    """Name server and broker in one, as bad as the attributes say."""

    def __init__(self) -> None:
        self.route_code = ResponseCode.SUCCESS
        self.send_code = ResponseCode.SUCCESS
        self.change: Callable[[bytes], bytes] = bytes
        self.body = b""

    def route(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        assert request.ext_fields["topic"] == TOPIC
        return request.answer(self.route_code, "no route")

    def send(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        self.body = bytes(request.body)
        return request.answer(self.send_code, "disk full", {"queueOffset": "7"})

    def pull(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        assert request.ext_fields["queueOffset"] == "7"
        body = self.change(self.body)
        record = encode_record(
            TOPIC,
            0,
            7,
            0,
            body,
            b"",
            born_timestamp_ms=1,
            born_host=HOST,
            store_timestamp_ms=2,
            store_host=HOST,
        )
        return request.answer(ResponseCode.SUCCESS, body=bytes(record))

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


async def test_a_message_that_comes_back_is_well() -> None:
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


async def test_another_message_than_the_one_sent_fails() -> None:
    servers = FakeServers()
    servers.change = bytes.upper
    with pytest.raises(RemotingError, match=r"sent b'self-check .* consumed"):
        await servers.checked()


async def test_an_advertised_address_that_leads_nowhere_is_a_warning() -> None:
    closed = open_listener("127.0.0.1", 0)
    advertised = "{}:{}".format(*closed.getsockname())
    closed.close()
    _, warning = await FakeServers().checked(advertised)
    assert f"routes name this broker as {advertised}" in warning
    assert "brokerIP1" in warning
