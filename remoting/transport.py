"""Transports of a channel: a TCP socket, or any trio stream (memory streams in tests).

The socket is used without trio's stream: a receive or a send costs one system call and no
scheduling, unless it has to wait (`poller.py`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import trio

from .channel import Buffer
from .poller import RECEIVE_SIZE, SocketPoller

_JOIN_SIZE_MAX = 64 * 1024
"""Bytes up to which buffers are joined into one send, which is cheaper than many segments."""

HTTP2_BYTE = b"P"
"""The first byte of a client's HTTP/2. Source: RFC 9113, section 3.4."""

_SEGMENTS_MAX = 512
"""Segments of one `sendmsg`; IOV_MAX is 1,024 on Linux and macOS."""


def format_address(address: object) -> str:
    """A socket address as RocketMQ writes it: `ip:port`, IPv6 in brackets."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address)


class SocketTransport:
    """A connected TCP socket, made non-blocking here. Owner: one connection.

    Args:
      sock: connected.
      poller: waits until it is readable.

    Attributes:
      receive_size: bytes that `receive_nowait` returns at most; 0: RECEIVE_SIZE.

    Raises: OSError: it is no longer connected.
    """

    __slots__ = (
        "_first",
        "_poller",
        "_socket",
        "local_address",
        "receive_size",
        "remote_address",
    )

    def __init__(self, sock: socket.socket, poller: SocketPoller) -> None:
        sock.setblocking(False)
        # A burst's answers are sent at once in one segment: delayed acknowledgements cost 40 ms.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._poller = poller
        self.receive_size = 0
        self._first = b""
        self.remote_address = format_address(sock.getpeername())
        self.local_address = format_address(sock.getsockname())

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` inside a turn whenever bytes can be received."""
        self._poller.add(self._socket, on_readable)

    def stop_reading(self) -> None:
        """Stop calling it."""
        self._poller.remove(self._socket)

    async def first_byte(self) -> bytes:
        """Wait for the first byte, which is not received yet; empty at the end.

        Raises: OSError: the connection is lost.
        """
        while True:
            try:
                self._first = self._socket.recv(1, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_readable(self._socket)
            else:
                return self._first

    @property
    def speaks_http2(self) -> bool:
        """Whether the peer has begun HTTP/2, as gRPC's clients do; known after `first_byte`.

        Its preface begins with `P`. As the first byte of a frame's length that would be 1.3 GB.
        """
        return self._first == HTTP2_BYTE

    def receive_nowait(self) -> bytes:
        """Receive bytes; empty at the end.

        Raises: BlockingIOError: no bytes have arrived. Other OSErrors: the connection is lost.
        """
        buffer = self._poller.buffer
        return bytes(buffer[: self._socket.recv_into(buffer, self.receive_size)])

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        """Send as much as the socket's buffer accepts; return the rest."""
        if len(buffers) > 1 and sum(map(len, buffers)) <= _JOIN_SIZE_MAX:
            buffers = [b"".join(buffers)]
        while buffers:
            try:
                if len(buffers) == 1:
                    sent = self._socket.send(buffers[0])
                    if sent == len(buffers[0]):  # nearly always
                        return []
                else:
                    sent = self._socket.sendmsg(buffers[:_SEGMENTS_MAX])
            except (BlockingIOError, InterruptedError):
                return buffers
            buffers = _drop_sent(buffers, sent)
        return buffers

    async def send_all(self, buffers: list[Buffer]) -> None:
        """Send everything, waiting for the peer."""
        buffers = self.send_nowait(buffers)
        while buffers:
            await trio.lowlevel.wait_writable(self._socket)
            buffers = self.send_nowait(buffers)

    def abort(self) -> None:
        """Close at once."""
        if self._socket.fileno() >= 0:
            self._poller.remove(self._socket)
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def _drop_sent(buffers: list[Buffer], sent: int) -> list[Buffer]:
    """The buffers without their first `sent` bytes."""
    for index, buffer in enumerate(buffers):
        size = len(buffer)
        if sent < size:
            rest = buffers[index:]
            if sent:
                rest[0] = memoryview(buffer)[sent:]
            return rest
        sent -= size
    return []


class StreamTransport:
    """Any trio stream, such as one end of `trio.testing.memory_stream_pair()`."""

    __slots__ = ("_closed", "_stream", "local_address", "remote_address")

    def __init__(
        self, stream: trio.abc.Stream, remote_address: str = "127.0.0.1:0", local_address: str = ""
    ) -> None:
        self._stream = stream
        self._closed = trio.Event()
        self.remote_address = remote_address
        self.local_address = local_address or remote_address

    async def receive(self) -> bytes:
        """Receive bytes; empty at the end."""
        data = b""

        async def until_closed(scope: trio.CancelScope) -> None:
            await self._closed.wait()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            # A stream may not notice that it was closed by another task while it receives.
            nursery.start_soon(until_closed, nursery.cancel_scope)
            data = bytes(await self._stream.receive_some(RECEIVE_SIZE))
            nursery.cancel_scope.cancel()
        return data

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        """Send nothing, because a stream cannot send without a checkpoint."""
        return buffers

    async def send_all(self, buffers: list[Buffer]) -> None:
        """Send everything, waiting for the peer."""
        await self._stream.send_all(b"".join(buffers))

    def abort(self) -> None:
        """End `receive`; the stream itself is closed by the connection's task."""
        self._closed.set()

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)
