"""A connection between a master and its slave: time limits, and why it ended.

Bytes go out by `sendmsg` from the log's maps where the stream is a socket, so no byte of the log is
copied in this process. (A page that the device cannot give is then an error of the call.) Over TLS
they are copied, and encrypted.
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
"""Bytes taken from a socket at once: 16 frames, and some 2 ms of work for a slave."""

Piece = bytes | memoryview


class LinkEnded(Exception):
    """The connection is over; the text says why."""


class Link:
    """One connection. Owned by the task that runs it.

    Args:
      stream: connected.
      silence_s: without a byte from the peer for so long, it is gone (haHousekeepingInterval).
      flow: counts what passes.

    Attributes:
      reason: why it ended; "": it has not.
      has_read: something came.
      last_read_s, last_write_s: when something last came, or went, by the loop's clock.
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
        """End the connection; only the first reason counts."""
        self.reason = self.reason or reason
        self._scope.cancel()

    async def receive(self) -> bytes:
        """The next bytes.

        Raises:
          LinkEnded: there are none to come.
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
        """Send all of these.

        Raises:
          LinkEnded: they cannot be sent.
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
