"""Transports of a client's connections: TCP and TLS on asyncio and trio, any byte stream of anyio.

TCP is used without anyio's streams. Their `send` and `receive` let other tasks run each time, and
pass received bytes from task to task, which costs a request more than all that the client does for
it. Here bytes are sent by a plain call where the socket takes them, and received bytes are passed
to a plain function.

Java counterpart: Netty's channel.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, cast

import anyio
import anyio.abc

RECEIVE_SIZE: Final = 256 * 1024
"""Bytes received at once: enough for several answers with 32 messages each."""

HAPPY_EYEBALLS_S: Final = 0.25
"""Seconds until the next address of a host is tried, too. RFC 8305 recommends 250 ms."""

_buffers = threading.local()

Take: TypeAlias = Callable[[bytes], bool]
"""Processes received bytes; returns whether to go on. An exception ends `receive`."""


class Transport(Protocol):
    """An open connection's bytes; all calls are made in its event loop."""

    def send_nowait(self, data: bytes) -> bytes | memoryview:
        """Send as much as can be sent at once, and return the rest; does not raise."""

    async def send(self, data: bytes | memoryview) -> None:
        """Send all bytes, waiting for the peer.

        Raises: OSError, anyio.BrokenResourceError, anyio.ClosedResourceError: the connection is
          lost.
        """

    async def receive(self, take: Take) -> None:
        """Pass received bytes to `take` until the peer's end, or until it returns False.

        Raises: as `send`; and what `take` raises.
        """

    async def aclose(self) -> None:
        """Close the connection at once; bytes that were not sent are dropped."""


async def connect_tcp(host: str, port: int, tls: ssl.SSLContext | None = None) -> Transport:
    """Connect, on the event loop that runs.

    Args:
      tls: use TLS with this context; None: use none.

    Raises:
      OSError: no connection could be made; an SSLError: TLS could not be set up.
      anyio.EndOfStream, anyio.BrokenResourceError: the peer ended it while TLS was set up.
    """
    if not _is_in_trio():
        return await _connect_asyncio(host, port, tls)
    if tls is None:
        return TrioSocketTransport(await anyio.connect_tcp(host, port))
    # Netty closes connections without TLS's close_notify.
    return StreamTransport(
        await anyio.connect_tcp(
            host, port, ssl_context=tls, tls_hostname=host, tls_standard_compatible=False
        )
    )


async def _connect_asyncio(host: str, port: int, tls: ssl.SSLContext | None) -> Transport:
    loop = asyncio.get_running_loop()
    # Other loops, such as uvloop's, try the addresses of a host one after the other.
    in_parallel: dict[str, Any] = {}
    # A literal address has nothing to choose; and of a race that is cancelled when an address has
    # just won, asyncio of Python 3.11 leaves the socket open.
    if isinstance(loop, asyncio.BaseEventLoop) and not _is_literal(host):
        in_parallel["happy_eyeballs_delay"] = HAPPY_EYEBALLS_S
    _, protocol = await loop.create_connection(
        AsyncioTransport,
        host,
        port,
        ssl=tls,
        server_hostname=host if tls is not None else None,
        **in_parallel,
    )
    return protocol


def _is_literal(host: str) -> bool:
    """Whether it is an IP address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _receive_buffer() -> memoryview:
    """The receive buffer of this thread's loop; it is copied before anything else runs."""
    try:
        buffer: memoryview = _buffers.receive
    except AttributeError:
        buffer = _buffers.receive = memoryview(bytearray(RECEIVE_SIZE))
    return buffer


def _is_in_trio() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


class StreamTransport:
    """Any byte stream of anyio, such as TLS, or one in memory.

    Args:
      stream: open.
    """

    __slots__ = ("_stream",)

    def __init__(self, stream: anyio.abc.ByteStream) -> None:
        self._stream = stream

    def send_nowait(self, data: bytes) -> bytes:
        """Send nothing, because a stream cannot send without waiting."""
        return data

    async def send(self, data: bytes | memoryview) -> None:
        """See `Transport`."""
        try:
            await self._stream.send(bytes(data))
        except anyio.EndOfStream:
            # So anyio's TLS says that the peer has gone, of a send too.
            raise anyio.BrokenResourceError from None

    async def receive(self, take: Take) -> None:
        """See `Transport`."""
        receive = self._stream.receive
        try:
            while take(await receive(RECEIVE_SIZE)):
                pass
        except anyio.EndOfStream:
            pass

    async def aclose(self) -> None:
        """See `Transport`."""
        await anyio.aclose_forcefully(self._stream)


class TrioSocketTransport:
    """A TCP socket under trio.

    Args:
      stream: anyio's stream of the socket, which closes it.
    """

    __slots__ = ("_socket", "_stream")

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self._stream = stream
        self._socket: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)

    def send_nowait(self, data: bytes | memoryview) -> bytes | memoryview:
        """See `Transport`."""
        try:
            sent = self._socket.send(data)
        except OSError:
            # Full, or lost: `send`, which has to follow, finds out.
            return data
        return memoryview(data)[sent:] if sent < len(data) else b""

    async def send(self, data: bytes | memoryview) -> None:
        """See `Transport`."""
        rest = memoryview(data)
        while rest:
            await anyio.wait_writable(self._socket)
            try:
                rest = rest[self._socket.send(rest) :]
            except (BlockingIOError, InterruptedError):
                continue

    async def receive(self, take: Take) -> None:
        """See `Transport`."""
        sock = self._socket
        buffer = _receive_buffer()
        while True:
            await anyio.wait_readable(sock)
            try:
                size = sock.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                continue
            if not size or not take(bytes(buffer[:size])):
                return

    async def aclose(self) -> None:
        """See `Transport`."""
        await anyio.aclose_forcefully(self._stream)


class AsyncioTransport(asyncio.BufferedProtocol):
    """A connection of an asyncio loop, TCP or TLS: received bytes are processed in its callback.

    Bytes that arrive before `receive` is called are kept for it.
    """

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._buffer = _receive_buffer()
        self._take: Take | None = None
        self._early: list[bytes] = []
        self._is_lost = False
        self._failure: Exception | None = None
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._writable: asyncio.Future[None] | None = None  # while the loop has too much to send

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        # Other loops than asyncio's own have transports of other classes, with the same methods.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the bytes that can be received."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were received."""
        data = bytes(self._buffer[:nbytes])
        if self._take is not None:
            self._pass_on(data)
        elif not self._ended.done():
            # uvloop begins to read after `connection_made`, although reading was paused there.
            self._early.append(data)
            self._transport.pause_reading()

    def _pass_on(self, data: bytes) -> None:
        take = self._take
        if take is None:
            return
        try:
            if not take(data):
                self._end(None)
        except Exception as error:  # noqa: BLE001 - raised by `receive`
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer closed the connection, it broke, or `aclose` closed it."""
        self._is_lost = True
        self._end(exc)
        self.resume_writing()

    def pause_writing(self) -> None:
        """The loop keeps more unsent bytes than it should."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """The loop has sent most of them."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def _end(self, failure: Exception | None) -> None:
        self._take = None
        if not self._ended.done():
            self._failure = failure
            self._ended.set_result(None)

    # Called by the connection

    def send_nowait(self, data: bytes) -> bytes:
        """See `Transport`; what the socket does not take at once, the loop sends later."""
        if self._is_lost or self._writable is not None:
            return data
        self._transport.write(data)
        return b""

    async def send(self, data: bytes | memoryview) -> None:
        """See `Transport`."""
        while self._writable is not None:
            await self._writable
        if self._is_lost:
            raise anyio.ClosedResourceError from self._failure
        self._transport.write(data)

    async def receive(self, take: Take) -> None:
        """See `Transport`."""
        self._take = take
        early, self._early = self._early, []
        for data in early:
            self._pass_on(data)
        if not self._is_lost:
            self._transport.resume_reading()
        await self._ended
        self._take = None
        if self._failure is not None:
            raise self._failure

    async def aclose(self) -> None:
        """See `Transport`."""
        self._transport.abort()
