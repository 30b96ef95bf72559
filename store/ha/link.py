"""A connection between a master and its slave, with timeouts and the reason of its end.

On a socket bytes are sent by `sendmsg` from the log's maps, without a copy in this process. (A page
that the device cannot read is then an error of the call.) Over TLS they are copied, and encrypted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import trio

from ...common.supervision import FailureLog, contained, split_fatal
from ...remoting.errors import RemoteProtocolError
from ..errors import StoreError
from .flow import FlowMeter

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

RECEIVE_SIZE = 512 * 1024
"""Bytes received at once: 16 frames, and about 2 ms of work for a slave."""

Piece = bytes | memoryview


class LinkEnded(Exception):
    """The connection ended; the text is the reason."""


class Link:
    """One connection. Owned by the task that runs it.

    Args:
      stream: connected.
      silence_s: receive timeout (haHousekeepingInterval).
      flow: counts the bytes.

    Attributes:
      reason: why it ended; "": it has not.
      has_read: bytes were received.
      last_read_s, last_write_s: times of the last receive and send, by the loop's clock.
    """

    def __init__(self, stream: trio.abc.Stream, *, silence_s: float, flow: FlowMeter) -> None:
        self.reason = ""
        self.has_read = False
        self.last_read_s = self.last_write_s = trio.current_time()
        self.flow = flow
        self._stream = stream
        self._silence_s = silence_s
        self._scope = trio.CancelScope()

    async def run(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it ends or the connection does; then the stream is closed."""
        try:
            with self._scope:
                await self._guarded(task)
        finally:
            with (
                trio.CancelScope(shield=True),
                contained(
                    _failures, "closing a connection of replication", "Its descriptor may stay open"
                ),
            ):
                await trio.aclose_forcefully(self._stream)

    async def side_by_side(self, *tasks: Callable[[], Awaitable[None]]) -> None:
        """Run tasks until the connection ends, within `run`."""
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(self._guarded, task)

    async def _guarded(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except (LinkEnded, RemoteProtocolError, StoreError) as error:
            self.end(str(error))
        except BaseException as error:
            fatal, other = split_fatal(error)
            if other is None:
                raise
            meaning = "That connection of master and slave ends; the slave connects anew"
            _failures.note("replication", meaning, other)
            self.end(f"this broker failed: {other!r}")
            if fatal is not None:
                raise fatal from None

    def end(self, reason: str) -> None:
        """End the connection; the first reason is kept."""
        self.reason = self.reason or reason
        self._scope.cancel()

    async def receive(self) -> bytes:
        """The next bytes.

        Raises:
          LinkEnded: the peer closed the connection or sent nothing in time, or it is broken.
        """
        with trio.move_on_after(self._silence_s):
            try:
                data = bytes(await self._stream.receive_some(RECEIVE_SIZE))
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise LinkEnded("the connection is broken") from error
            if not data:
                raise LinkEnded("the other side has closed the connection")
            self.has_read = True
            self.last_read_s = trio.current_time()
            return data
        raise LinkEnded(f"nothing came for {self._silence_s:g} s (haHousekeepingInterval)")

    async def send(self, pieces: Sequence[Piece]) -> None:
        """Send all pieces.

        Raises:
          LinkEnded: the connection is broken.
        """
        try:
            if isinstance(self._stream, trio.SocketStream):
                await _send_from_maps(self._stream.socket, list(pieces))
            else:
                await self._stream.send_all(b"".join(pieces))
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise LinkEnded("the connection is broken") from error
        self.last_write_s = trio.current_time()


async def _send_from_maps(socket: trio.socket.SocketType, pieces: list[Piece]) -> None:
    while pieces:
        sent = await socket.sendmsg(pieces)
        done = 0
        while done < len(pieces) and sent >= len(pieces[done]):
            sent -= len(pieces[done])
            done += 1
        del pieces[:done]
        if sent:
            pieces[0] = memoryview(pieces[0])[sent:]
