"""A connection whose client is in the same process, and turns whose flushes write to others."""

from __future__ import annotations

import trio
import trio.testing

from trocket.remoting.address_limits import PeerAddress
from trocket.remoting.channel import Buffer, Channel
from trocket.remoting.codec import FrameDecoder, RemotingCommand, encode
from trocket.remoting.loop_transport import LoopTransport
from trocket.remoting.server import RemotingServer
from trocket.remoting.turn import Turn

ECHO = 1


class Sink:
    """A transport that keeps what is sent."""

    remote_address = local_address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.sends: list[bytes] = []

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        self.sends.append(b"".join(buffers))
        return []

    async def send_all(self, buffers: list[Buffer]) -> None:
        self.send_nowait(buffers)

    def abort(self) -> None:
        pass


class Relay:
    """A writer whose flush writes to a channel."""

    def __init__(self, target: Channel, data: bytes) -> None:
        self._target, self._data = target, data

    def flush(self) -> None:
        self._target.write(self._data)

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def test_what_flushes_write_to_one_channel_is_one_send() -> None:
    turn, sink = Turn(), Sink()
    target = Channel(sink, turn)
    with turn:
        turn.dirty += [Relay(target, b"one"), Relay(target, b" two")]
    assert sink.sends == [b"one two"]
    with turn:
        target.write(b"three")
        turn.dirty.append(Relay(target, b" four"))
    assert b"".join(sink.sends) == b"one twothree four"


async def test_a_client_inside_is_served_in_the_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers: list[bytes] = []
    events: list[str] = []

    def echo(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        return request.answer(0, channel.remote_address, {}, request.body)

    server = RemotingServer({ECHO: echo})
    transport = LoopTransport(
        "192.0.2.1:5",
        "127.0.0.1:9",
        on_started=lambda: events.append("started"),
        on_data=answers.append,
        on_closed=lambda: events.append("closed"),
    )
    connection = server.loop_connection(transport, PeerAddress("192.0.2.1"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        await trio.testing.wait_all_tasks_blocked()
        assert events == ["started"]
        with server.turn:
            connection.take(encode(RemotingCommand(ECHO, body=b"1", opaque=1)))
            connection.take(encode(RemotingCommand(ECHO, body=b"2", opaque=2)))
            assert answers == []
        (data,) = answers
        found = FrameDecoder().receive_data(data)
        assert [(each.opaque, each.body) for each in found] == [(1, b"1"), (2, b"2")]
        assert {each.remark for each in found} == {"192.0.2.1:5"}
        connection.channel.close("done")
        await trio.testing.wait_all_tasks_blocked()
        assert events == ["started", "closed"]
