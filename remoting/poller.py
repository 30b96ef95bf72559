"""SocketPoller: one task that reads all sockets, which saves a task switch per connection.

A task per connection that waits, reads, answers and waits again costs one `epoll_ctl`, one
`epoll_wait` and two passes through trio's scheduler for every burst; with one request in flight on
each of many connections that is more than everything else together. So the connections of a server
(or client) are in one level-triggered epoll, for which trio waits, and all sockets that are
readable at one moment are served in one turn: one store write for all, and one send per connection.

Tried and rejected: polling our epoll again for the next request before returning to trio. The
faster answers make smaller bursts, which cost more than trio does: the official Producer fell from
23 000 to 17 000 msg/s.

On systems without epoll (macOS) a kqueue is used through `selectors`.
"""

from __future__ import annotations

import logging
import select
import selectors
import socket
import time
from collections.abc import Callable
from typing import Final

import trio

from ..common.supervision import FailureLog
from .turn import Turn

logger = logging.getLogger(__name__)

RENEW_PAUSE_S: Final = 0.1
"""The pause before a failed poll is replaced, so that a lasting failure does not use up a CPU."""

RECEIVE_SIZE = 256 * 1024
"""Bytes read in one turn: a burst of a few hundred sends. All sockets of a poller share one buffer;
pollers have separate ones, because each may run in another thread."""


TURN_TIME_MAX_S: Final = 0.02
"""Seconds after which a turn serves no further sockets: hundreds of connections that send requests
at one moment must not delay the answers to the first of them, and other tasks, until all are
served. The rest comes first in the next turn."""

CLOCK_SOCKETS: Final = 32
"""Sockets that are served between two readings of the clock."""

_NO_SOCKETS: Final[list[tuple[int, int]]] = []


class _Epoll:
    """`select.epoll` for readability only."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.fileno = self._epoll.fileno
        self.close = self._epoll.close

    def register(self, descriptor: int) -> None:
        self._epoll.register(descriptor, select.EPOLLIN)

    def unregister(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)

    def poll(self) -> list[tuple[int, int]]:
        return self._epoll.poll(0)


class _Selector:
    """The same for other systems."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()  # KqueueSelector
        self.close = self._selector.close

    def fileno(self) -> int:
        return int(self._selector.fileno())

    def register(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ)

    def unregister(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)

    def poll(self) -> list[tuple[int, int]]:
        return [(key.fd, events) for key, events in self._selector.select(0)]


class SocketPoller:
    """Calls back when sockets are readable, for all sockets of one moment in one turn.

    Lifecycle: `run` until cancelled; sockets may be added and removed at any time before its end.

    Args:
      turn: begun before and ended after the callbacks of one moment.
      elapsed_s: a clock that measures TURN_TIME_MAX_S.

    Attributes:
      buffer: the receive buffer for the callbacks; reused after a callback returns.
    """

    def __init__(self, turn: Turn, *, elapsed_s: Callable[[], float] = time.perf_counter) -> None:
        self._elapsed_s = elapsed_s
        self._left: list[tuple[int, int]] = []  # readable sockets that the last turn did not serve
        self.buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._turn = turn
        self._poll = _new_poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._is_closed = False
        self._sockets: dict[int, socket.socket] = {}
        self._failures = FailureLog(logger)

    def add(self, sock: socket.socket, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` inside a turn whenever bytes, or the end, can be received.

        If it raises, its socket is shut down and removed; normally it closes its connection itself.

        Raises: OSError, ValueError: the system does not accept the socket.
        """
        if self._is_closed:
            return
        descriptor = sock.fileno()
        # First, since it may fail: nothing is kept of a socket that is never polled.
        self._poll.register(descriptor)
        self._readers[descriptor] = on_readable
        self._sockets[descriptor] = sock

    def serve(self, sock: socket.socket) -> None:
        """Call a socket's `on_readable` now, in a separate turn; never call this inside a turn.

        For bytes that were received before the socket was added: the system does not report them,
        so the call must not wait behind the sockets that the last turn left.
        """
        if not self._is_closed:
            self._serve([(sock.fileno(), 0)])

    def remove(self, sock: socket.socket) -> None:
        """Remove a socket, before it is closed; an unknown one is ignored."""
        descriptor = sock.fileno()
        if self._readers.pop(descriptor, None) is not None and not self._is_closed:
            del self._sockets[descriptor]
            try:
                self._poll.unregister(descriptor)
            except (OSError, ValueError, KeyError) as error:
                # Harmless: the kernel drops the socket when it is closed, right after this.
                logger.debug(
                    "socket %(descriptor)d was not in the poll: %(error)s",
                    {"descriptor": descriptor, "error": error},
                )

    async def run(self) -> None:
        """Serve the sockets until cancelled."""
        try:
            while True:
                try:
                    await trio.lowlevel.wait_readable(self._poll.fileno())
                    ready = self._poll.poll()
                except Exception as error:  # noqa: BLE001 - all connections need this task
                    meaning = "No request is read until the sockets are registered again"
                    self._failures.note("waiting for requests (epoll)", meaning, error)
                    await trio.sleep(RENEW_PAUSE_S)
                    self._renew()
                    continue
                if self._left:
                    # Sockets that had no turn come first, or a busy one could hold them up for
                    # ever.
                    first = {descriptor for descriptor, _ in self._left}
                    ready = self._left + [each for each in ready if each[0] not in first]
                self._left = self._serve(ready)
        finally:
            self._is_closed = True
            self._poll.close()

    def _serve(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Serve readable sockets in one turn, as many as there is time for; return the rest."""
        turn, readers = self._turn, self._readers
        part, rest, end_s = ready, _NO_SOCKETS, 0.0
        if len(ready) > CLOCK_SOCKETS:
            part, rest = ready[:CLOCK_SOCKETS], ready[CLOCK_SOCKETS:]
            end_s = self._elapsed_s() + TURN_TIME_MAX_S
        turn.active = True
        try:
            while True:
                for descriptor, _ in part:
                    # A callback may have removed another's socket.
                    on_readable = readers.get(descriptor)
                    if on_readable is not None:
                        try:
                            on_readable()
                        except Exception as error:  # noqa: BLE001 - our bug: others are served
                            self._end(descriptor, error)
                if not rest or self._elapsed_s() > end_s:
                    return rest
                part, rest = rest[:CLOCK_SOCKETS], rest[CLOCK_SOCKETS:]
        finally:
            turn.end()

    def _end(self, descriptor: int, error: Exception) -> None:
        """Shut down a connection whose callback raised."""
        meaning = "That connection is shut down; others are still served"
        self._failures.note("reading a connection", meaning, error)
        sock = self._sockets.get(descriptor)
        if sock is None:  # closed already
            return
        self.remove(sock)
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError as second:
            logger.debug(
                "socket %(descriptor)d is closed already: %(error)s",
                {"descriptor": descriptor, "error": second},
            )

    def _renew(self) -> None:
        """Register all sockets with a new poll; if there is none, the old one is tried again."""
        try:
            poll = _new_poll()
        except (OSError, MemoryError) as error:
            logger.debug("no new poll: %(error)s", {"error": error})
            return
        old, self._poll = self._poll, poll
        try:
            old.close()
        except OSError as error:
            logger.debug("the old poll is closed already: %(error)s", {"error": error})
        # A socket that cannot be registered would never be read again: it is closed instead.
        for descriptor in list(self._sockets):
            try:
                poll.register(descriptor)
            except (OSError, ValueError) as error:
                self._end(descriptor, error)


def _new_poll() -> _Epoll | _Selector:
    return _Epoll() if hasattr(select, "epoll") else _Selector()
