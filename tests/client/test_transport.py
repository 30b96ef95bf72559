"""TCP transports on both loops: sending at once, waiting for the peer, and each way to end."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import pytest

from trocket import Client, ConnectError
from trocket.client.connection.transport import StreamTransport, Transport, connect_tcp

from .conftest import Play

LOST = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Transport, socket.socket]]:
    """A transport, and the peer's socket, which blocks."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = await connect_tcp("127.0.0.1", server.getsockname()[1])
        peer, _ = server.accept()
    try:
        with peer:
            yield transport, peer
    finally:
        await transport.aclose()


def tcp(play: Play, test: Callable[[Transport, socket.socket], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connected() as (transport, peer):
            await test(transport, peer)

    play(run)


def test_bytes_are_sent_in_the_call_itself(play: Play):
    async def test(transport: Transport, peer: socket.socket) -> None:
        assert not transport.send_nowait(b"frame")
        assert peer.recv(100) == b"frame"

    tcp(play, test)


def test_what_was_received_before_is_kept_until_it_is_taken(play: Play):
    async def test(transport: Transport, peer: socket.socket) -> None:
        peer.sendall(b"early")
        await anyio.lowlevel.checkpoint()
        received: list[bytes] = []

        def take(data: bytes) -> bool:
            received.append(data)
            return False

        await transport.receive(take)
        assert received == [b"early"]

    tcp(play, test)


def test_receiving_ends_with_the_peers_end(play: Play):
    async def test(transport: Transport, peer: socket.socket) -> None:
        received = bytearray()
        peer.sendall(b"last words")
        peer.close()

        def take(data: bytes) -> bool:
            received.extend(data)
            return True

        await transport.receive(take)
        assert received == b"last words"

    tcp(play, test)


def test_an_error_of_the_receiver_ends_receiving(play: Play):
    async def test(transport: Transport, peer: socket.socket) -> None:
        def take(data: bytes) -> bool:
            raise ZeroDivisionError(data)

        peer.sendall(b"x")
        with pytest.raises(ZeroDivisionError):
            await transport.receive(take)

    tcp(play, test)


def test_a_slow_peer_makes_sending_wait_and_gets_every_byte_in_order(play: Play):
    async def test(transport: Transport, peer: socket.socket) -> None:
        pieces = [bytes([number]) * 100_000 for number in range(200)]

        async def send_all() -> None:
            for piece in pieces:
                rest = transport.send_nowait(piece)
                if rest:
                    is_waiting.set()
                    await transport.send(rest)

        def read_all() -> bytes:
            received = bytearray()
            while len(received) < 20_000_000:
                received += peer.recv(1 << 20)
            return bytes(received)

        is_waiting = anyio.Event()  # 20 MB are more than the buffers of any system take
        async with anyio.create_task_group() as group:
            group.start_soon(send_all)
            await is_waiting.wait()
            received = await anyio.to_thread.run_sync(read_all)
        assert received == b"".join(pieces)

    tcp(play, test)


def test_a_lost_connection_sends_nothing_at_once_and_says_so_to_those_who_wait(play: Play):
    async def test(transport: Transport, peer: socket.socket) -> None:
        def take(data: bytes) -> bool:
            return True

        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()  # resets the connection
        with pytest.raises(LOST):
            await transport.receive(take)
        assert transport.send_nowait(b"frame") == b"frame"
        with pytest.raises(LOST):
            await transport.send(b"frame")

    tcp(play, test)


class GoneStream(anyio.abc.ByteStream):
    """Of TLS whose peer has gone."""

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        raise anyio.EndOfStream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint()
        raise anyio.EndOfStream

    async def send_eof(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()


def test_a_send_to_a_peer_of_tls_that_has_gone_fails_as_on_a_lost_connection(play: Play):
    async def run() -> None:
        with pytest.raises(LOST):
            await StreamTransport(GoneStream()).send(b"frame")

    play(run)


def test_a_refused_connection_is_an_oserror(play: Play):
    async def run() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match=r"."):
                await connect_tcp("127.0.0.1", unused.getsockname()[1])

    play(run)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:99999",
        "localhost:65536",
        f"127.0.0.1:{'9' * 5000}",
        "127.0.0.1:²",
        "127.0.0.1:",
        "127.0.0.1",
        f"{'x' * 70}:10911",
        "a..b:10911",
        "a\0b:10911",
    ],
)
def test_an_address_of_a_route_that_is_none_is_an_error_of_the_client(play: Play, address: str):
    async def run() -> None:
        async with Client("127.0.0.1:1") as client:
            with pytest.raises(ConnectError):
                await client.connection(address)

    play(run)
