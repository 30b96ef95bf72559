"""Listening sockets, their connections and streams in memory, all of whose bytes go to a `Tape`."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import trio

from ...remoting.transport import format_address
from .tape import Tap, Tape

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def tapped_listeners(listeners: Iterable[socket.socket], tape: Tape) -> list[socket.socket]:
    """The same listening sockets, whose accepted connections are tapped; the given objects must
    not be used any more."""
    return [_Listener(each, tape) for each in listeners]


class _Listener(socket.socket):
    """A listening socket."""

    def __init__(self, plain: socket.socket, tape: Tape) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self.setblocking(False)
        self._tape = tape

    def accept(self) -> tuple[socket.socket, Any]:
        """As of the base class."""
        plain, address = super().accept()
        return _Connection(plain, address, self._tape), address


class _Connection(socket.socket):
    """A connection as a transport uses it: by `recv_into`, `send` and `sendmsg`. What `recv` peeks
    comes again."""

    def __init__(self, plain: socket.socket, address: object, tape: Tape) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        here = format_address(self.getsockname())
        self._tap = tape.tap(format_address(address), here)

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """As of the base class."""
        size = super().recv_into(buffer, nbytes, flags)
        self._tap.take(True, bytes(memoryview(buffer)[:size]))
        return size

    def send(self, data: Any, flags: int = 0, /) -> int:
        """As of the base class."""
        size = super().send(data, flags)
        self._tap.take(False, bytes(memoryview(data)[:size]))
        return size

    def sendmsg(self, buffers: Iterable[Any], /, *more: Any) -> int:
        """As of the base class."""
        data = list(buffers)
        size = super().sendmsg(data, *more)
        self._tap.take(False, _first(data, size))
        return size


def _first(buffers: Sequence[Any], size: int) -> bytes:
    """The first bytes of several buffers."""
    found = bytearray()
    for each in buffers:
        if len(found) >= size:
            break
        found += memoryview(each)[: size - len(found)]
    return bytes(found)


class TappedStream(trio.abc.Stream):
    """The server's end of a connection in memory."""

    def __init__(self, stream: trio.abc.Stream, tap: Tap) -> None:
        self._stream = stream
        self._tap = tap

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As of the stream."""
        data = await self._stream.receive_some(max_bytes)
        self._tap.take(True, bytes(data))
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As of the stream."""
        self._tap.take(False, bytes(data))
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """As of the stream."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """As of the stream."""
        await self._stream.aclose()
