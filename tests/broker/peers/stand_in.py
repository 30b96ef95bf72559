"""What takes the place of a peer's process: a thread that never answers, or answers garbage."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from random import Random

from .process_promises import Way

HOST = "127.0.0.1"
GARBAGE_SIZE = 64
RECEIVE_SIZE = 1 << 16
LOOK_S = 0.2
"""Between two attempts to connect."""
SEND_TIMEOUT_S = 1.0


class StandIn:
    """Listens where a server was, and connects to where a client was connected.

    Use: `with StandIn(Way.GARBAGE, listens=[9876]):`.

    Args:
      way: SILENT: it reads and never answers. GARBAGE: it sends random bytes at the begin of a
        connection and after all that it reads.
      listens: ports of this machine.
      calls: ports that it connects to, again when a connection has ended, and what it sends first.

    Attributes:
      met: set when it has read a request, or has called.
    """

    def __init__(
        self, way: Way, *, listens: list[int] | None = None, calls: dict[int, bytes] | None = None
    ) -> None:
        self._is_garbage = way is Way.GARBAGE
        self._calls = calls or {}
        self.met = threading.Event()
        self._called: dict[int, socket.socket] = {}
        self._random = Random(1)
        self._selector = selectors.DefaultSelector()
        for port in listens or []:
            listener = socket.create_server((HOST, port))
            self._selector.register(listener, selectors.EVENT_READ, "listener")
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, "end")
        self._thread = threading.Thread(target=self._run, name="stand-in", daemon=True)
        self._thread.start()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections, and free the ports."""
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._call()
                for key, _ in self._selector.select(LOOK_S):
                    if key.data == "end":
                        return
                    assert isinstance(key.fileobj, socket.socket)
                    if key.data == "listener":
                        self._take(key.fileobj.accept()[0], b"")
                    else:
                        self._answer(key.fileobj)
        finally:
            for key in list(self._selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()
            self._selector.close()

    def _call(self) -> None:
        for port, first in self._calls.items():
            if port not in self._called:
                with suppress(OSError):
                    self._called[port] = socket.create_connection((HOST, port), SEND_TIMEOUT_S)
                    self._take(self._called[port], first)
                    self.met.set()

    def _take(self, connection: socket.socket, first: bytes) -> None:
        connection.settimeout(SEND_TIMEOUT_S)
        self._selector.register(connection, selectors.EVENT_READ, "connection")
        if self._is_garbage:
            self._send(connection, self._random.randbytes(GARBAGE_SIZE))
        elif first:
            self._send(connection, first)

    def _answer(self, connection: socket.socket) -> None:
        data = b""
        with suppress(OSError):
            data = connection.recv(RECEIVE_SIZE)
        if not data:
            self._end(connection)
            return
        self.met.set()
        if self._is_garbage:
            self._send(connection, self._random.randbytes(GARBAGE_SIZE))

    def _send(self, connection: socket.socket, data: bytes) -> None:
        try:
            connection.sendall(data)
        except OSError:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()
        self._called = {port: each for port, each in self._called.items() if each is not connection}
