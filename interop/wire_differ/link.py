"""A blocking connection to a server that sends requests, too.

Answers are kept by opaque, and the server's requests in order, until a script asks for them.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from ...remoting.codec import RemotingCommand, encode
from ...remoting.errors import RemotingError
from ...remoting.session import Session, State, opaques
from ..process import PeerError

ANSWER_TIMEOUT_S = 10.0
_CHUNK = 256 * 1024
_numbers = opaques()
"""One sequence for all connections, so that an answer on the wrong one is noticed."""


class Link:
    """One connection. Use it as a context manager; not thread-safe.

    Args:
      address: HOST:PORT.
    Raises: PeerError: the connection is refused; from the methods: the connection broke, or the
      awaited frame did not come in time.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._session: Session[None] = Session(address, numbers=_numbers)
        self._answers: dict[int, RemotingCommand] = {}
        self._requests: deque[RemotingCommand] = deque()
        try:
            self._socket = socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S)
        except OSError as error:
            raise PeerError(f"cannot connect to {address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own_host, own_port = self._socket.getsockname()[:2]
        self.own_address = f"{own_host}:{own_port}"

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, command: RemotingCommand) -> int:
        """Set a request's opaque, send it, and return the opaque.

        Raises: PeerError: the connection broke.
        """
        try:
            frame = self._session.request(command, None)
        except RemotingError as error:
            raise PeerError(str(error)) from error
        self._send(frame)
        return command.opaque

    def send(self, command: RemotingCommand) -> None:
        """Send a frame as it is, with its opaque."""
        self._send(encode(command))

    def _send(self, frame: bytes) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise PeerError(f"the connection broke while sending: {error}") from error

    def answer(self, opaque: int, timeout_s: float = ANSWER_TIMEOUT_S) -> RemotingCommand:
        """The answer to a request of this number."""
        self._wait(lambda: opaque in self._answers, timeout_s, "answer")
        return self._answers.pop(opaque)

    def request(self, code: int, timeout_s: float = ANSWER_TIMEOUT_S) -> RemotingCommand:
        """The server's next request with this code; other requests stay queued."""
        self._wait(lambda: self._with_code(code) is not None, timeout_s, f"request {code}")
        found = self._with_code(code)
        assert found is not None
        self._requests.remove(found)
        return found

    def unasked(self) -> list[RemotingCommand]:
        """Answers that no step took: to oneway requests, or a second answer."""
        return list(self._answers.values())

    def _with_code(self, code: int) -> RemotingCommand | None:
        return next((command for command in self._requests if command.code == code), None)

    def _wait(self, ready: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not ready():
            rest_s = deadline_s - time.monotonic()
            if rest_s <= 0:
                raise PeerError(f"no {what} in {timeout_s} s")
            self._receive(rest_s)

    def _receive(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            return
        except OSError as error:
            raise PeerError(f"the connection broke: {error}") from error
        if not data:
            self._session.eof()
            raise PeerError("the server closed the connection")
        for event in self._session.receive_data(data):
            if isinstance(event, RemotingCommand):
                self._requests.append(event)
            else:
                self._answers[event.answer.opaque] = event.answer
        if self._session.state is State.FAILED:
            raise PeerError(f"not a frame: {self._session.error}")
