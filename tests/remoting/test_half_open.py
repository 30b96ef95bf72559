"""A peer that is gone without a word: who calls it notices, and connects anew."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import FrameDecoder, RemotingCommand, encode
from trocket.remoting.errors import RemotingTimeoutError

ADDRESS = "192.0.2.1:9876"
ANSWERED, NOT_ANSWERED = 1, 2


class SilentServer:
    """Answers requests of one code; counts connections."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.connections = 0
        self.is_gone = False
        self._nursery = nursery

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.connections += 1
        near, far = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, near, self.connections)
        return far

    async def _serve(self, stream: trio.StapledStream, number: int) -> None:
        decoder = FrameDecoder()
        while data := await stream.receive_some(65_536):
            if self.is_gone and number == 1:
                continue
            for command in decoder.receive_data(bytes(data)):
                if command.code == ANSWERED:
                    await stream.send_all(encode(command.answer(0, "")))


@pytest.fixture
async def peer(autojump_clock):
    async with trio.open_nursery() as nursery:
        yield SilentServer(nursery)
        nursery.cancel_scope.cancel()


@pytest.fixture
async def client(peer):
    async with trio.open_nursery() as nursery:
        client = RemotingClient(open_stream=peer.open_stream)
        await nursery.start(client.run)
        yield client
        nursery.cancel_scope.cancel()


async def test_after_a_call_in_silence_the_next_one_has_a_new_connection(
    peer, client, autojump_clock
):
    await client.call(ADDRESS, RemotingCommand(ANSWERED), 3)
    peer.is_gone = True
    with pytest.raises(RemotingTimeoutError):
        await client.call(ADDRESS, RemotingCommand(ANSWERED), 3)
    assert (await client.call(ADDRESS, RemotingCommand(ANSWERED), 3)).code == 0
    assert peer.connections == 2


async def test_a_peer_that_answers_others_keeps_its_connection(peer, client, autojump_clock):
    async with trio.open_nursery() as nursery:

        async def call_in_vain() -> None:
            with pytest.raises(RemotingTimeoutError):
                await client.call(ADDRESS, RemotingCommand(NOT_ANSWERED), 3)

        nursery.start_soon(call_in_vain)
        await trio.sleep(1)
        await client.call(ADDRESS, RemotingCommand(ANSWERED), 3)
    await client.call(ADDRESS, RemotingCommand(ANSWERED), 3)
    assert peer.connections == 1
