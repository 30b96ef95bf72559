"""A client that sends hundreds of slow requests at once delays others by one of its bursts only."""

from __future__ import annotations

import pytest
import trio

from trocket.remoting import connection
from trocket.remoting.channel import Channel
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.connection import READ_SIZE_MIN, SLOW_BURST_S
from trocket.remoting.server import RemotingServer, open_listener
from trocket.remoting.turn import Turn

from ..kit.client import Client

COUNT = 1_000
REQUEST_S = 0.001


async def test_after_a_slow_burst_less_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = 0.0
    served = 0
    bursts: list[int] = []

    def slow(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        nonlocal clock_s, served
        clock_s += REQUEST_S
        served += 1
        return request.answer(0)

    def end_turn() -> None:
        nonlocal served
        bursts.append(served)
        served = 0

    monkeypatch.setattr(connection, "perf_counter", lambda: clock_s)
    server = RemotingServer({900: slow}, turn=Turn(end_turn))
    listener = open_listener("127.0.0.1", 0)
    frames = [encode(RemotingCommand(900, body=bytes(100), opaque=at)) for at in range(COUNT)]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, [listener])
            stream = await trio.open_tcp_stream("127.0.0.1", listener.getsockname()[1])
            client = Client(stream)
            await client.write(b"".join(frames))
            for at in range(COUNT):
                assert (await client.answer(at)).code == 0
            await stream.aclose()
            nursery.cancel_scope.cancel()
    sizes = [size for size in bursts if size]
    assert sum(sizes) == COUNT
    slowest = max(SLOW_BURST_S / REQUEST_S, READ_SIZE_MIN / len(frames[0]))
    assert sizes[0] > 2 * slowest  # nothing was known of them yet
    assert max(sizes[1:]) <= 2 * slowest + 2
