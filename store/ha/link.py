"""A connection between a master and its slave, with timeouts and the reason of its end.

On a socket bytes are sent by `writev` from the log's maps, without a copy in this process. (A page
that the device cannot read is then an error of the call.) Over TLS they are copied, and encrypted.

A socket is used without trio's stream: a send on a SYNC_MASTER waits for two sends and two receives
of replication, and each would pass trio's scheduler once more.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable, Sequence

import trio

from ...common.supervision import FailureLog, contained, split_fatal
from ...disk.errors import StoreError
from ...remoting.errors import RemoteProtocolError
from .flow import FlowMeter

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

RECEIVE_SIZE = 512 * 1024
"""Bytes received at once: 16 frames, and about 2 ms of work for a slave."""

_RECEIVE_SIZE_MIN = 16 * 1024
"""Bytes asked for while little arrives: memory for `RECEIVE_SIZE` costs more than they do."""

Piece = bytes | memoryview


class LinkEnded(Exception):
    """The connection ended; the message is the reason."""


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
        self._descriptor = stream.socket.fileno() if isinstance(stream, trio.SocketStream) else None
        self._receive_size = _RECEIVE_SIZE_MIN
        self._is_sending = False
        self._silence_s = silence_s
        self._receiving_from_s = math.inf  # since when `receive` waits; infinity: it does not
        self._scope = trio.CancelScope()

    async def run(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it ends or the connection does; then the stream is closed."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._guarded, self._watch_silence)
                    await self._guarded(task)
                    nursery.cancel_scope.cancel()
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
          LinkEnded: the peer closed the connection, or it is broken.
        """
        self._receiving_from_s = trio.current_time()
        try:
            data = await self._receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise LinkEnded("the connection is broken") from error
        finally:
            self._receiving_from_s = math.inf
        if not data:
            raise LinkEnded("the other side has closed the connection")
        self.has_read = True
        self.last_read_s = trio.current_time()
        return data

    async def _watch_silence(self) -> None:
        """End the connection when `receive` has waited for too long.

        One task for all calls: a time limit for each call would take 6 % of the time of a send on a
        SYNC_MASTER.
        """
        while True:
            start_s = min(self._receiving_from_s, trio.current_time())
            await trio.sleep_until(start_s + self._silence_s)
            if trio.current_time() >= self._receiving_from_s + self._silence_s:
                raise LinkEnded(f"nothing came for {self._silence_s:g} s (haHousekeepingInterval)")

    async def _receive(self) -> bytes:
        if self._descriptor is None:
            return bytes(await self._stream.receive_some(RECEIVE_SIZE))
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, self._receive_size)
            except BlockingIOError:
                continue
            much = len(data) >= _RECEIVE_SIZE_MIN
            self._receive_size = RECEIVE_SIZE if much else _RECEIVE_SIZE_MIN
            return data

    async def send(self, pieces: Sequence[Piece]) -> None:
        """Send all pieces.

        Raises:
          LinkEnded: the connection is broken.
        """
        self._is_sending = True
        try:
            if self._descriptor is None:
                await self._stream.send_all(b"".join(pieces))
            else:
                await trio.lowlevel.checkpoint()
                while pieces := _write(self._descriptor, pieces):
                    await trio.lowlevel.wait_writable(self._descriptor)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise LinkEnded("the connection is broken") from error
        finally:
            self._is_sending = False
        self.last_write_s = trio.current_time()

    def send_nowait(self, pieces: Sequence[Piece]) -> Sequence[Piece]:
        """Send as much as the system accepts at once; return the rest, to `send` next.

        Over TLS, and while another task is sending, nothing is sent.

        Raises:
          LinkEnded: the connection is broken.
        """
        if self._descriptor is None or self._is_sending:
            return pieces
        try:
            rest = _write(self._descriptor, pieces)
        except OSError as error:
            raise LinkEnded("the connection is broken") from error
        self.last_write_s = trio.current_time()
        return rest


def _write(descriptor: int, pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Write what the system accepts; returns the rest.

    Raises: OSError: the connection is broken.
    """
    try:
        sent = os.writev(descriptor, pieces)
    except BlockingIOError:
        return pieces
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [memoryview(piece)[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return ()
