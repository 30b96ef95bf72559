"""Connections in memory: an anyio byte stream over one end of a pair of trio streams."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import trio

if TYPE_CHECKING:
    from collections.abc import Iterator


class MemoryStream(anyio.abc.ByteStream):
    """One end of a connection in memory, for tasks of the same trio loop.

    Args:
      stream: the trio stream.
    """

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._stream = stream

    async def send(self, item: bytes) -> None:
        """Send all bytes.

        Raises: anyio.BrokenResourceError: the peer closed. anyio.ClosedResourceError: this end did.
        """
        with _translated():
            await self._stream.send_all(item)

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Receive at least one byte. Raises: anyio.EndOfStream: no more bytes; and as `send`."""
        with _translated():
            data = bytes(await self._stream.receive_some(max_bytes))
        if not data:
            raise anyio.EndOfStream
        return data

    async def send_eof(self) -> None:
        """Signal the end of the sent bytes."""
        with _translated():
            await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close this end; it can be called repeatedly."""
        await self._stream.aclose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except trio.ClosedResourceError as error:
        raise anyio.ClosedResourceError from error
    except trio.BrokenResourceError as error:
        raise anyio.BrokenResourceError from error
