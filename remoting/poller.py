"""One task that reads all sockets: the hot path's way around a task switch per connection.

A task per connection that waits, reads, answers and waits again costs one `epoll_ctl`, one
`epoll_wait` and two passes through trio's scheduler for every burst; with one request in flight on
each of many connections that is more than everything else together. So a server's (or client's)
connections are in one level-triggered epoll, itself waited for by trio, and all that is readable
at one moment is served in one turn: one store write and one send per connection for all of them.

Tried and left out: staying in the own epoll for the next request instead of going back to trio.
The quicker answer makes smaller bursts, and these cost more than trio does: the official Producer
fell from 23 000 to 17 000 msg/s.

On systems without epoll (macOS) a kqueue does the same by way of `selectors`.
"""

from __future__ import annotations

import select
import selectors
import socket
from collections.abc import Callable

import trio

from .turn import Turn

RECEIVE_SIZE = 256 * 1024
"""Bytes read in one turn: a burst of some hundred sends. All sockets of a poller share one buffer
of it; pollers do not, because each may run in a thread of its own."""


class _Epoll:
    """`select.epoll` reduced to what is needed: who is readable."""

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
    """Calls back when sockets are readable, all of one moment in one turn.

    Lifecycle: `run` until cancelled; sockets may be added and removed at any time before its end.

    Args:
      turn: begun before and ended after the callbacks of one moment.

    Attributes:
      buffer: for whoever reads one of its sockets; free again once the callback returns.
    """

    def __init__(self, turn: Turn) -> None:
        self.buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._turn = turn
        self._poll: _Epoll | _Selector = _Epoll() if hasattr(select, "epoll") else _Selector()
        self._readers: dict[int, Callable[[], None]] = {}
        self._is_closed = False

    def add(self, sock: socket.socket, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` inside a turn whenever there is something to read, or the end."""
        if self._is_closed:
            return
        self._readers[sock.fileno()] = on_readable
        self._poll.register(sock.fileno())

    def remove(self, sock: socket.socket) -> None:
        """Stop; before the socket is closed. One that is not there is ignored."""
        if self._readers.pop(sock.fileno(), None) is not None and not self._is_closed:
            self._poll.unregister(sock.fileno())

    async def run(self) -> None:
        """Serve the sockets until cancelled."""
        descriptor = self._poll.fileno()
        try:
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                self._serve()
        finally:
            self._is_closed = True
            self._poll.close()

    def _serve(self) -> None:
        """One turn for all that is readable now."""
        turn, readers = self._turn, self._readers
        turn.active = True
        try:
            for descriptor, _ in self._poll.poll():
                # A callback may have removed another's socket.
                on_readable = readers.get(descriptor)
                if on_readable is not None:
                    on_readable()
        finally:
            turn.end()
