"""A connection in memory as clients take it: anyio's byte stream over one end of a trio pair."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import trio

if TYPE_CHECKING:
    from collections.abc import Iterator


class MemoryStream(anyio.abc.ByteStream):
    """One end of a connection. For a task of the same trio loop.

    Args:
      stream: that end.
    """

    def __init__(
        self, stream: trio.StapledStream[trio.abc.SendStream, trio.abc.ReceiveStream]
    ) -> None:
        self._stream = stream

    async def send(self, item: bytes) -> None:
        """Send all of it; raises anyio.BrokenResourceError, anyio.ClosedResourceError."""
        with _translated():
            await self._stream.send_all(item)

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Some bytes, at least one; raises anyio.EndOfStream, and as `send`."""
        with _translated():
            data = bytes(await self._stream.receive_some(max_bytes))
        if not data:
            raise anyio.EndOfStream
        return data

    async def send_eof(self) -> None:
        """Say that nothing more comes."""
        with _translated():
            await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close it; may be called twice."""
        await self._stream.aclose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except trio.ClosedResourceError as error:
        raise anyio.ClosedResourceError from error
    except trio.BrokenResourceError as error:
        raise anyio.BrokenResourceError from error
