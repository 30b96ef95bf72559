"""TlsTransport below a channel, on sockets that accept nothing at the worst moment."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trio

from trocket.remoting.channel import BACKLOG_PIECE_SIZE, Buffer, Channel
from trocket.remoting.poller import SocketPoller
from trocket.remoting.tls_context import server_context
from trocket.remoting.tls_transport import TlsTransport
from trocket.remoting.transport import SocketTransport
from trocket.remoting.turn import Turn

from .tls_support import NAME, Certificates, client_context


class FullAtTimes(socket.socket):
    """A socket whose buffer is full at the sends of some numbers, counted from 0."""

    full_at: frozenset[int] = frozenset()
    sends = 0

    def send(self, data: Buffer, flags: int = 0) -> int:  # type: ignore[override]
        self.sends += 1
        if self.sends - 1 in self.full_at:
            raise BlockingIOError
        return super().send(data, flags)


async def connected(files: Certificates) -> tuple[TlsTransport, FullAtTimes, trio.SSLStream]:
    """A server's end of an established connection, its socket, and the client's end."""
    listener = socket.create_server(("127.0.0.1", 0))
    stream = await trio.open_tcp_stream("127.0.0.1", listener.getsockname()[1])
    accepted = FullAtTimes(fileno=listener.accept()[0].detach())
    listener.close()
    plain = SocketTransport(accepted, SocketPoller(Turn()))
    transport = TlsTransport(plain, server_context(files.server()), server_side=True)
    client: trio.SSLStream = trio.SSLStream(
        stream, client_context(), server_hostname=NAME, https_compatible=True
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(transport.handshake)
        await client.do_handshake()
    return transport, accepted, client


@pytest.mark.parametrize("full_at", [{0}, {1}, {0, 1}, {1, 3}], ids=str)
async def test_a_full_socket_changes_no_byte(tmp_path: Path, full_at: set[int]) -> None:
    transport, accepted, client = await connected(Certificates(tmp_path))
    accepted.sends, accepted.full_at = 0, frozenset(full_at)
    answer = b"".join(number.to_bytes(4, "big") for number in range(3 * BACKLOG_PIECE_SIZE // 4))
    received = b""
    channel = Channel(transport, Turn())
    try:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                channel.on_backlog = lambda: nursery.start_soon(channel.drain)
                channel.write(answer)
                while len(received) < len(answer):
                    data = await client.receive_some(65_536)
                    assert data, channel.close_reason
                    received += data
    finally:
        channel.close()
        await trio.aclose_forcefully(client)
    assert received == answer
