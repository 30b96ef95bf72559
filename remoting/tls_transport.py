"""TlsTransport: an encrypted TCP connection, with the interface of `SocketTransport`.

OpenSSL works on memory: this module receives from and sends to the socket. Compared with a socket
that `ssl` wraps, a small request costs 3.5 instead of 4.7 us, because a record needs one system
call and not two; and a send never has to be repeated with the same bytes, because OpenSSL always
accepts everything.

Java counterpart: Netty's SslHandler.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from .channel import Buffer
from .transport import SocketTransport

RECORD_SIZE: Final = 16 * 1024
"""Bytes of plaintext in one record at most. OpenSSL's buffers keep the size of the largest piece
that was ever put into them, so pieces are no larger than this."""

SEAL_SIZE: Final = 48 * 1024
"""Bytes that are encrypted before the socket has to accept them: a few system calls less for large
answers. So much of a slow peer's backlog is encrypted; the rest stays as it is."""

CONTROL_SIZE_MAX: Final = 16 * 1024
"""Unsent bytes of OpenSSL's own answers, such as to updates of keys, for which a peer is closed:
each is 30 bytes, so it has asked for hundreds and reads none."""


class TlsTransport(SocketTransport):
    """A connected socket whose bytes are encrypted. Owner: one connection.

    Lifecycle: `handshake` first; then as `SocketTransport`.

    Args:
      plain: the connection, which this object replaces.
      context: of the side that this process is.
      server_side: the peer has connected to this process.
      server_hostname: the name that a server is asked for, and its certificate is compared with, if
        the context says so.

    Raises: ssl.SSLError, ValueError: the name is invalid.
    """

    __slots__ = ("_has_early", "_incoming", "_is_established", "_outgoing", "_sealed", "_ssl")

    def __init__(
        self,
        plain: SocketTransport,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
    ) -> None:
        self._socket = plain._socket
        self._poller = plain._poller
        self.receive_size = 0
        self._first = b""
        self.remote_address = plain.remote_address
        self.local_address = plain.local_address
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._is_established = False
        self._has_early = True  # the handshake may have received application data, too
        self._sealed: memoryview | None = None  # encrypted, and not accepted by the socket

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER form; None: it has none, or it was not asked for one."""
        return self._ssl.getpeercert(binary_form=True)

    @property
    def speaks_http2(self) -> bool:
        """Whether the peer has asked for HTTP/2 in its handshake (ALPN), as gRPC's clients do."""
        return self._ssl.selected_alpn_protocol() == "h2"

    @property
    def version(self) -> str:
        """The version of TLS, such as "TLSv1.3"; "" before the handshake is complete."""
        return self._ssl.version() or ""

    async def begin(self, pace: trio.Lock) -> None:
        """Receive the first part of a client's handshake, and compute the answer. Its first byte is
        there, and nothing is sent yet, so this does not wait for the client.

        Args:
          pace: see `handshake`, which must follow.
        Raises: as `handshake`.
        """
        await self._receive_handshake()
        async with pace:
            self._step()

    async def handshake(self, pace: trio.Lock | None = None) -> None:
        """Complete the handshake.

        Args:
          pace: held while OpenSSL computes, which takes up to a millisecond. Its waiters get it one
            after the other, in separate rounds of the event loop, so that many handshakes at once
            do not delay what other connections ask.

        Raises: OSError, of which ssl.SSLError is one: it failed; an alert was sent.
        """
        is_complete = False
        while not is_complete:
            if pace is None:
                is_complete = self._step()
            else:
                async with pace:
                    is_complete = self._step()
            # What OpenSSL has to say leaves first: the peer answers only to that.
            await self.send_all([])
            if not is_complete:
                await self._receive_handshake()
        self._is_established = True

    def _step(self) -> bool:
        """Compute what can be computed with the received bytes; whether that was all."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            self._tell()
            raise
        return True

    async def _receive_handshake(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                data = self._socket.recv(RECORD_SIZE)
            except (BlockingIOError, InterruptedError):
                continue
            if data:
                self._incoming.write(data)
            else:
                # OpenSSL reports it as the error that it is at this point of the handshake.
                self._incoming.write_eof()
            return

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` inside a turn whenever bytes can be received."""
        super().start_reading(on_readable)
        if self._has_early:
            self._poller.serve(self._socket)

    def receive_nowait(self) -> bytes:
        """Receive and decrypt all complete records; empty at the end.

        Raises: BlockingIOError: no bytes have arrived. Other OSErrors: the connection is lost, or
          broken.
        """
        size = 0
        buffer = self._poller.buffer
        if self._has_early:
            self._has_early = False
        else:
            size = self._socket.recv_into(buffer, self.receive_size)
            if not size:
                return b""
        try:
            pieces = self._decrypt(buffer, size)
        except ssl.SSLError as error:
            if isinstance(error, ssl.SSLZeroReturnError):
                return b""
            # The alert says why; it leaves before the connection is closed.
            self._tell()
            raise
        if self._outgoing.pending:
            self._send_control()
        if not pieces:
            raise BlockingIOError
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _decrypt(self, buffer: memoryview, size: int) -> list[bytes]:
        """The content of the records that are complete with the first `size` bytes of a buffer.

        Raises: ssl.SSLError: a record is wrong, or, as the first one, the peer's goodbye.
        """
        pieces: list[bytes] = []
        incoming, secure = self._incoming, self._ssl
        position = 0
        while True:
            if position < size:
                end = min(position + RECORD_SIZE, size)
                incoming.write(buffer[position:end])
                position = end
            try:
                while True:
                    piece = secure.read(RECORD_SIZE)
                    if not piece:  # the peer's goodbye, in some versions of Python
                        raise ssl.SSLZeroReturnError
                    pieces.append(piece)
                    if not incoming.pending and not secure.pending():
                        break
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLZeroReturnError:
                if pieces:
                    break  # the next read reports it again
                raise
            if position == size:
                break
        return pieces

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        """Send as much as the socket's buffer accepts; return the rest.

        What is encrypted and not sent stays here. For it the rest begins with an empty buffer, so
        the caller may join and divide the rest as it likes.
        """
        while True:
            sealed = self._sealed
            if sealed is None and self._outgoing.pending:
                sealed = memoryview(self._outgoing.read())
            # Records must leave in their order: what the socket did not take comes first.
            if sealed is not None:
                try:
                    sent = self._socket.send(sealed)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                except OSError:
                    self._sealed = None
                    raise
                if sent < len(sealed):
                    self._sealed = sealed[sent:]
                    return [b"", *buffers]
                self._sealed = None
            if not buffers:
                return []
            buffers = self._seal(buffers)

    def _seal(self, buffers: list[Buffer]) -> list[Buffer]:
        """Encrypt the first SEAL_SIZE bytes of some buffers; return the rest."""
        first = buffers[0]
        if len(buffers) == 1 and len(first) <= RECORD_SIZE:  # nearly always
            if first:
                self._ssl.write(first)
            return []
        part, rest = _split(buffers, SEAL_SIZE)
        data = memoryview(part[0] if len(part) == 1 else b"".join(part))
        pieces: list[bytes] = []
        for position in range(0, len(data), RECORD_SIZE):
            self._ssl.write(data[position : position + RECORD_SIZE])
            pieces.append(self._outgoing.read())
        self._sealed = memoryview(b"".join(pieces))
        return rest

    def _send_control(self) -> None:
        """Send what OpenSSL has to say by itself, such as the answer to an update of keys.

        Raises: ConnectionAbortedError: the peer asks for too much, and does not read.
        """
        if self._sealed is None:
            self.send_nowait([])
        left = self._outgoing.pending + len(self._sealed or b"")
        if self._outgoing.pending > CONTROL_SIZE_MAX:
            raise ConnectionAbortedError(f"{left} bytes of answers of TLS are unsent")

    def _tell(self) -> None:
        """Send the reason of a failure as far as it can be sent at once."""
        if self._sealed is None and self._outgoing.pending:
            with suppress(OSError):  # the failure itself is reported
                self.send_nowait([])

    def abort(self) -> None:
        """Close at once, with TLS's goodbye if the socket accepts it."""
        if self._is_established and self._socket.fileno() >= 0:
            self._is_established = False
            with suppress(ssl.SSLError, ValueError):  # the peer's goodbye is not waited for
                self._ssl.unwrap()
            self._tell()
        super().abort()


def _split(buffers: list[Buffer], size: int) -> tuple[list[Buffer], list[Buffer]]:
    """The first `size` bytes of some buffers, and the rest."""
    for index, buffer in enumerate(buffers):
        if len(buffer) > size:
            view = memoryview(buffer)
            return [*buffers[:index], view[:size]], [view[size:], *buffers[index + 1 :]]
        size -= len(buffer)
    return buffers, []
