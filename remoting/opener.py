"""Opener: opens connections to other servers, over TCP or as a test wants it."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import trio

from ..common.config import ConfigError
from .errors import RemotingConnectError
from .poller import SocketPoller
from .tls_client import ClientTls
from .transport import SocketTransport, StreamTransport

CONNECT_TIMEOUT_S = 3.0
"""RocketMQ: connectTimeoutMillis 3000."""

OpenStream = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Connects to a host and port by other means than TCP. Raises: OSError."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[ipv6]:port`.

    Raises: ValueError: it is neither.
    """
    host, separator, port = address.strip().rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not an address of the form host:port")
    return host.strip("[]"), int(port)


class Opener:
    """Opens transports.

    Args:
      poller: running; reads the sockets.
      open_stream: for peers in the same loop; None: TCP.
      tls: encrypts the connections over TCP; None: they are plain.
      connect_timeout_s: seconds for connecting and the handshake.
    """

    def __init__(
        self,
        poller: SocketPoller,
        *,
        open_stream: OpenStream | None = None,
        tls: ClientTls | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._poller = poller
        self._open_stream = open_stream
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s

    async def open(self, address: str) -> SocketTransport | StreamTransport:
        """Connect to `host:port`.

        Raises: RemotingConnectError: the peer cannot be reached. ValueError: it is not an address.
        """
        host, port = split_address(address)
        try:
            with trio.fail_after(self._connect_timeout_s):
                return await self._open(address, host, port)
        except (OSError, ConfigError, trio.TooSlowError) as error:
            why = str(error) or f"no answer within {self._connect_timeout_s:g} s"
            raise RemotingConnectError(f"cannot connect to {address}: {why}") from error

    async def _open(self, address: str, host: str, port: int) -> SocketTransport | StreamTransport:
        if self._open_stream is not None:
            return StreamTransport(await self._open_stream(host, port), address)
        trio_socket = (await trio.open_tcp_stream(host, port)).socket
        # Without trio's wrapper, because SocketTransport waits and sends itself.
        sock = socket.socket(fileno=trio_socket.detach())
        try:
            transport = SocketTransport(sock, self._poller)
        except OSError:  # the peer has closed it already
            sock.close()
            raise
        if self._tls is None:
            return transport
        try:
            return await self._tls.connect(transport, host)
        except BaseException:
            transport.abort()
            raise
