"""One end of a pair of sockets as a byte stream of anyio."""

from __future__ import annotations

import socket

import anyio
import anyio.abc


class PairedStream(anyio.abc.ByteStream):
    """A connected socket, for any event loop.

    Args:
      sock: of `socket.socketpair`; the stream closes it.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    async def send(self, item: bytes) -> None:
        """Send all bytes.

        Raises: anyio.BrokenResourceError: the peer closed. anyio.ClosedResourceError: this end did.
        """
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except (BlockingIOError, InterruptedError):
                await anyio.wait_writable(self._sock)
            except OSError as error:
                raise self._failure() from error

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Receive at least one byte. Raises: anyio.EndOfStream: no more come; and as `send`."""
        while True:
            try:
                data = self._sock.recv(max_bytes)
            except (BlockingIOError, InterruptedError):
                await anyio.wait_readable(self._sock)
            except OSError as error:
                raise self._failure() from error
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send_eof(self) -> None:
        """Signal the end of the sent bytes."""
        self._sock.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close this end; it can be called repeatedly."""
        self._sock.close()

    def _failure(self) -> Exception:
        is_closed = self._sock.fileno() < 0
        return anyio.ClosedResourceError() if is_closed else anyio.BrokenResourceError()
