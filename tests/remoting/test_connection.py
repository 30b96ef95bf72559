"""Channels, connections, server and client, on memory streams and virtual time; TCP once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import socket

import pytest
import trio
import trio.testing

from trocket.common.connection_policy import ConnectionPolicy
from trocket.remoting.channel import OUTBOX_HIGH_WATER, Channel, Deferred, Processor
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import FrameDecoder, RemotingCommand, decode_frame, encode
from trocket.remoting.connection import ConnectionLimits
from trocket.remoting.errors import (
    RemotingConnectError,
    RemotingTimeoutError,
    RequestRefused,
)
from trocket.remoting.opener import split_address
from trocket.remoting.server import RemotingServer, open_listener
from trocket.remoting.turn import Turn

ECHO, REFUSE, BREAK, LATER, SILENT, RAW, CALL_BACK, UNWRITABLE = range(900, 908)


class FarEnd:
    """The far end of a memory stream: sends frames, reads commands."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder()
        self._commands: list[RemotingCommand] = []

    async def send(self, *commands: RemotingCommand) -> None:
        await self.stream.send_all(b"".join(map(encode, commands)))

    async def receive(self) -> RemotingCommand | None:
        while not self._commands:
            data = await self.stream.receive_some(65_536)
            if not data:
                return None
            self._commands += self._decoder.receive_data(bytes(data))
        return self._commands.pop(0)

    async def ask(self, command: RemotingCommand) -> RemotingCommand | None:
        await self.send(command)
        return await self.receive()


class Service:
    """Some processors, and what they saw."""

    def __init__(self) -> None:
        self.closed: list[Channel] = []
        self.channels: list[Channel] = []
        self.turns = 0
        self.answered: list[int] = []
        self.gate = trio.Event()

    def end_turn(self) -> None:
        self.turns += 1

    def processors(self) -> dict[int, Processor]:
        return {
            ECHO: self.echo,
            REFUSE: self.refuse,
            BREAK: self.break_down,
            LATER: self.later,
            SILENT: self.silent,
            RAW: lambda request, channel: encode(request.answer(0, "raw")),
            CALL_BACK: self.call_back,
            UNWRITABLE: lambda request, channel: request.answer(0, "\ud800"),
        }

    def echo(self, request: RemotingCommand, channel: Channel) -> RemotingCommand:
        self.answered.append(request.opaque)
        return request.answer(0, None, request.ext_fields, request.body)

    def refuse(self, request: RemotingCommand, channel: Channel) -> None:
        raise RequestRefused(17, "no such topic")

    def break_down(self, request: RemotingCommand, channel: Channel) -> None:
        raise KeyError("a bug")

    def later(self, request: RemotingCommand, channel: Channel) -> Deferred:
        async def run() -> RemotingCommand:
            await self.gate.wait()
            if request.body == b"refuse":
                raise RequestRefused(1, "later no")
            if request.body == b"break":
                raise KeyError("a later bug")
            if request.body == b"unwritable":
                return request.answer(0, "\ud800")
            return request.answer(0, "later")

        return Deferred(run)

    def silent(self, request: RemotingCommand, channel: Channel) -> None:
        self.channels.append(channel)

    def call_back(self, request: RemotingCommand, channel: Channel) -> Deferred:
        async def run() -> RemotingCommand:
            response = await channel.call(RemotingCommand(40, {"x": "y"}), timeout_s=5)
            return request.answer(0, response.remark)

        return Deferred(run)


@asynccontextmanager
async def serving(
    service: Service, limits: ConnectionLimits | None = None, *, lockstep: bool = False
) -> AsyncIterator[tuple[RemotingServer, FarEnd]]:
    turn = Turn(service.end_turn)
    server = RemotingServer(
        service.processors(), turn=turn, on_channel_closed=service.closed.append, limits=limits
    )
    # A lockstep stream takes nothing before the far end reads; a memory stream takes everything.
    make = trio.testing.lockstep_stream_pair if lockstep else trio.testing.memory_stream_pair
    near, far = make()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [])
        nursery.start_soon(server.serve_stream, near)
        yield server, FarEnd(far)
        nursery.cancel_scope.cancel()


async def test_a_burst_is_answered_in_order_in_one_turn() -> None:
    service = Service()
    async with serving(service) as (_, peer):
        await peer.send(*(RemotingCommand(ECHO, {"n": str(n)}, opaque=n) for n in range(20)))
        answers = [await peer.receive() for _ in range(20)]
    assert [answer and answer.opaque for answer in answers] == list(range(20))
    assert service.turns == 1


async def test_answers_take_the_requests_serialization() -> None:
    async with serving(Service()) as (_, peer):
        for serialize_type in (0, 1):
            answer = await peer.ask(RemotingCommand(ECHO, serialize_type=serialize_type))
            assert answer is not None
            assert answer.serialize_type == serialize_type


@pytest.mark.parametrize(
    ("code", "answer_code", "remark"),
    [
        (REFUSE, 17, "no such topic"),
        (BREAK, 1, "KeyError: 'a bug'"),
        (RAW, 0, "raw"),
        (31_000, 3, " request type 31000 not supported"),
    ],
)
async def test_every_outcome_of_a_processor_is_an_answer(
    code: int, answer_code: int, remark: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Service()) as (_, peer):
        answer = await peer.ask(RemotingCommand(code, opaque=5))
        assert answer is not None
        assert (answer.code, answer.remark, answer.opaque) == (answer_code, remark, 5)
        again = await peer.ask(RemotingCommand(ECHO))
        assert again is not None
        assert again.code == 0


UNANSWERABLE = [
    pytest.param(b'{"code":31000,"opaque":1208925819614629174706176}', id="opaque of 80 bits"),
    pytest.param(b'{code:902,"opaque":7,"extFields":{"x":"\\ud800"}}', id="lone surrogate"),
    pytest.param(b'{code:900,"opaque":7,"extFields":{"x":"\\ud800"}}', id="echoed surrogate"),
]


@pytest.mark.parametrize("header", UNANSWERABLE)
async def test_what_could_not_be_written_back_costs_one_connection_at_most(
    header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    service = Service()
    async with serving(service) as (server, peer):
        await peer.stream.send_all(frame)
        await trio.testing.wait_all_tasks_blocked()
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve_stream, near)
            answer = await FarEnd(far).ask(RemotingCommand(ECHO, opaque=3))
            assert answer is not None
            assert answer.opaque == 3
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("code", "body"), [(UNWRITABLE, b""), (LATER, b"unwritable")])
async def test_an_answer_that_cannot_be_written_is_a_system_error(
    code: int, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service()
    service.gate.set()
    async with serving(service) as (_, peer):
        answer = await peer.ask(RemotingCommand(code, body=body, opaque=5))
        assert answer is not None
        assert (answer.code, answer.opaque) == (1, 5)
        assert "surrogates not allowed" in (answer.remark or "")
        again = await peer.ask(RemotingCommand(ECHO))
        assert again is not None
        assert again.code == 0


async def test_oneway_requests_are_served_and_not_answered() -> None:
    service = Service()
    async with serving(service) as (_, peer):
        await peer.send(
            RemotingCommand(ECHO, opaque=1, flag=2),
            RemotingCommand(REFUSE, opaque=2, flag=2),
            RemotingCommand(ECHO, opaque=3),
        )
        answer = await peer.receive()
    assert answer is not None
    assert answer.opaque == 3
    assert service.answered == [1, 3]


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [(b"", 0, "later"), (b"refuse", 1, "later no"), (b"break", 1, "KeyError: 'a later bug'")],
)
async def test_a_deferred_answer_overtakes_nobody_and_is_overtaken(
    body: bytes, code: int, remark: str
) -> None:
    service = Service()
    async with serving(service) as (_, peer):
        await peer.send(
            RemotingCommand(LATER, body=body, opaque=1), RemotingCommand(ECHO, opaque=2)
        )
        first = await peer.receive()
        service.gate.set()
        second = await peer.receive()
    assert first is not None
    assert second is not None
    assert first.opaque == 2
    assert (second.opaque, second.code, second.remark) == (1, code, remark)


async def test_more_deferred_answers_than_allowed_are_refused_as_busy() -> None:
    service = Service()
    async with serving(
        service, ConnectionLimits(policy=ConnectionPolicy(requests_in_flight_max=1))
    ) as (_, peer):
        await peer.send(RemotingCommand(LATER, opaque=1), RemotingCommand(LATER, opaque=2))
        answer = await peer.receive()
    assert answer is not None
    assert (answer.opaque, answer.code) == (2, 2)


async def test_the_server_calls_the_client_too() -> None:
    async with serving(Service()) as (_, peer):
        await peer.send(RemotingCommand(CALL_BACK, opaque=8))
        request = await peer.receive()
        assert request is not None
        assert request.code == 40
        assert not request.is_response
        await peer.send(request.answer(0, "heard"))
        answer = await peer.receive()
    assert answer is not None
    assert (answer.opaque, answer.remark) == (8, "heard")


async def test_bad_bytes_close_the_connection_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service()
    with caplog.at_level(logging.WARNING):
        async with serving(service) as (server, peer):
            await peer.stream.send_all(encode(RemotingCommand(ECHO, opaque=1)) + b"GET / HTTP/1.1")
            first = await peer.receive()
            assert await peer.receive() is None
            await trio.testing.wait_all_tasks_blocked()
            assert server.channels == []
    assert first is not None
    assert first.opaque == 1
    assert len(caplog.records) == 1
    assert "HTTP" in caplog.text
    assert len(service.closed) == 1


async def test_a_slow_first_frame_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    frame = encode(RemotingCommand(ECHO))
    async with serving(Service()) as (_, peer):
        start_s = trio.current_time()

        async def trickle() -> None:
            for byte in frame:
                await peer.stream.send_all(bytes([byte]))
                await trio.sleep(1)

        with pytest.raises(trio.BrokenResourceError):
            await trickle()
        # Looked at once a second, twice a second late at most.
        assert 10 < trio.current_time() - start_s <= 13


async def test_an_idle_connection_is_closed_after_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    service = Service()
    async with serving(service) as (_, peer):
        start_s = trio.current_time()
        assert await peer.ask(RemotingCommand(ECHO)) is not None
        assert await peer.receive() is None
        assert 120 < trio.current_time() - start_s < 123
    assert "nothing was received" in service.closed[0].close_reason


async def test_a_peer_that_never_reads_is_not_read_from_either() -> None:
    service = Service()
    body = bytes(OUTBOX_HIGH_WATER // 2)
    async with serving(service, lockstep=True) as (_, peer), trio.open_nursery() as nursery:
        commands = [RemotingCommand(ECHO, opaque=n, body=body) for n in range(6)]
        nursery.start_soon(peer.send, *commands)
        await trio.testing.wait_all_tasks_blocked()
        assert 2 <= len(service.answered) <= 4
        # Reading again, it gets everything.
        answers = [await peer.receive() for _ in range(6)]
    assert [answer and answer.opaque for answer in answers] == list(range(6))
    assert len(service.answered) == 6


async def test_unasked_writes_to_a_peer_that_never_reads_end_in_a_close() -> None:
    service = Service()
    async with serving(service, lockstep=True) as (_, peer):
        await peer.send(RemotingCommand(SILENT))
        await trio.testing.wait_all_tasks_blocked()
        channel = service.channels[0]
        for _ in range(ConnectionPolicy().unread_answers_max // 2**22 + 2):
            channel.write(bytes(2**22))
            await trio.testing.wait_all_tasks_blocked()
        assert channel.closed
        assert "does not read" in channel.close_reason
        channel.write(b"dropped")
        assert channel.outbox_size == 0


async def test_a_call_gets_its_answer_or_the_reason(
    autojump_clock: trio.testing.MockClock,
) -> None:
    service = Service()
    async with serving(service) as (_, peer):
        await peer.send(RemotingCommand(SILENT))
        await trio.testing.wait_all_tasks_blocked()
        channel = service.channels[0]
        with pytest.raises(RemotingTimeoutError, match="did not answer request 40 within 2 s"):
            await channel.call(RemotingCommand(40), timeout_s=2)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                with pytest.raises(RemotingConnectError, match="in the middle of a frame, after 5"):
                    await channel.call(RemotingCommand(40), timeout_s=2)

            await trio.testing.wait_all_tasks_blocked()
            await peer.stream.send_all(bytes([0, 0, 1, 0, 0]))
            await peer.stream.aclose()
        with pytest.raises(RemotingConnectError):
            await channel.call(RemotingCommand(40), timeout_s=2)


def listening() -> tuple[list[socket], str]:
    listener = open_listener("127.0.0.1", 0)
    return [listener], f"127.0.0.1:{listener.getsockname()[1]}"


async def test_client_and_server_talk_over_tcp() -> None:
    service = Service()
    server = RemotingServer(
        service.processors(), turn=Turn(service.end_turn), on_channel_closed=service.closed.append
    )
    calls: list[RemotingCommand] = []

    def heard(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        calls.append(request)
        return request.answer(0, "from the client")

    client = RemotingClient({40: heard})
    listeners, address = listening()
    body = bytes(range(256)) * 4096
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            await nursery.start(client.run)
            answer = await client.call(address, RemotingCommand(ECHO, {"a": "b"}, body), 5)
            assert (answer.body, dict(answer.ext_fields)) == (body, {"a": "b"})
            back = await client.call(address, RemotingCommand(CALL_BACK), 5)
            assert back.remark == "from the client"
            await client.send_oneway(address, RemotingCommand(SILENT))
            while not service.channels:
                await trio.testing.wait_all_tasks_blocked(0.001)
            # Several buffers at once, more than a socket takes without waiting.
            parts = [decode_frame(encode(RemotingCommand(ECHO))).body] + [bytes(2**20)] * 3
            frame = encode(RemotingCommand(1, body=b"".join(parts), flag=1))
            service.channels[0].write([memoryview(frame)[:1000], memoryview(frame)[1000:]])
            assert (await client.call(address, RemotingCommand(ECHO), 5)).code == 0
            assert len(server.channels) == 1
            nursery.cancel_scope.cancel()
    assert len(calls) == 1
    assert len(service.closed) == 1


async def test_a_second_listener_on_a_taken_port_says_so() -> None:
    listeners, address = listening()
    port = int(address.rpartition(":")[2])
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}.*choose another port"):
        open_listener("127.0.0.1", port)
    listeners[0].close()


async def test_the_client_says_why_it_cannot_connect() -> None:
    listeners, address = listening()
    listeners[0].close()
    client = RemotingClient()
    with pytest.raises(RemotingConnectError, match="not running"):
        await client.call(address, RemotingCommand(1), 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        with pytest.raises(RemotingConnectError, match=f"cannot connect to {address}"):
            await client.call(address, RemotingCommand(1), 1)
        nursery.cancel_scope.cancel()


async def test_connections_past_the_limit_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    server = RemotingServer(
        Service().processors(),
        limits=ConnectionLimits(policy=ConnectionPolicy(connections_max=1)),
    )
    client, second = RemotingClient(), RemotingClient()
    listeners, address = listening()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            await nursery.start(client.run)
            await nursery.start(second.run)
            assert (await client.call(address, RemotingCommand(ECHO), 5)).code == 0
            with pytest.raises(RemotingConnectError):
                await second.call(address, RemotingCommand(ECHO), 5)
            nursery.cancel_scope.cancel()
    assert "the connection is refused, because 1 are open" in caplog.text


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:70000"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_address(address)


def test_addresses_split_into_host_and_port() -> None:
    assert split_address(" localhost:9876 ") == ("localhost", 9876)
    assert split_address("[::1]:9876") == ("::1", 9876)
