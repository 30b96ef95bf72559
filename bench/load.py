"""The load generator of the benches: connections in closed loops, on one epoll.

What a connection asks, and what follows an answer, is its driver's: `InFlight` here for sends and
transactions, `pop_load.Pops`, `pulls.Pulls`. Frames are prepared bytes, as in `frames.py`.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trocket.bench.frames import OPAQUE_FIRST, SendTemplate, Taken, take_answers

RECEIVE_SIZE_BYTES = 1 << 18
ANSWER_TIMEOUT_S = 10.0
FIRST_TIMEOUT_S = 60.0
"""Time for a connection, its handshake, and each answer of the warm-up.

A JVM loads its classes of TLS at the first handshake, and of sends at the first send: on one core
that other work keeps busy that may take longer than `ANSWER_TIMEOUT_S`.
"""
RING = 1 << 20
"""Requests whose send time is kept, by opaque; far more than are ever in flight."""
FILL_IN_FLIGHT = 512


@dataclass(frozen=True)
class Case:
    """A number of connections, each with a number of requests in flight."""

    name: str
    connections: int
    in_flight: int


CASES = (
    Case("1 in flight", 1, 1),
    Case("64 in flight", 1, 64),
    Case("1024 in flight", 1, 1024),
    Case("64 connections", 64, 1),
)


@dataclass(slots=True)
class Tally:
    """What the answers of a run were.

    Attributes:
      answered: messages sent, popped and acknowledged, or pulls answered.
      refused: requests that a busy broker refused.
      empty: pops that found nothing.
      latencies_s: of sends, or of pops that found messages.
    """

    answered: int = 0
    refused: int = 0
    empty: int = 0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))

    def clear(self) -> None:
        """Begin anew."""
        self.answered = self.refused = self.empty = 0
        del self.latencies_s[:]


class Driver(Protocol):
    """The requests of one connection."""

    def begin(self) -> bytes | bytearray:
        """The first requests."""

    def take(self, incoming: bytearray, now_s: float) -> bytes | bytearray:
        """Remove the complete answers from the start of `incoming`; the requests that follow them.

        Args:
          now_s: when they came, by perf_counter.
        Raises: BadAnswerError.
        """


class Requests(Protocol):
    """The requests of a workload, such as `SendTemplate`."""

    @property
    def opaque_next(self) -> int:
        """The opaque of the next request."""

    def next_frames(self, count: int) -> bytearray:
        """`count` requests with consecutive opaques."""

    def take(self, incoming: bytearray) -> Taken:
        """Remove the complete answers from the start of `incoming`. Raises: BadAnswerError."""


class InFlight:
    """As many requests as were answered go out, so that a number of them stays in flight.

    Args:
      left_s: when each request was sent, by opaque, on all connections with the same requests.
    """

    def __init__(
        self, requests: Requests, in_flight: int, tally: Tally, left_s: array[float]
    ) -> None:
        self._requests = requests
        self._in_flight = in_flight
        self._tally = tally
        self._left_s = left_s

    @classmethod
    def of_case(cls, requests: Requests, case: Case, tally: Tally) -> list[InFlight]:
        """The drivers of all connections of a case."""
        left_s = array("d", bytes(8 * RING))
        return [cls(requests, case.in_flight, tally, left_s) for _ in range(case.connections)]

    def begin(self) -> bytearray:
        """The first requests."""
        return self._next(self._in_flight)

    def take(self, incoming: bytearray, now_s: float) -> bytes | bytearray:
        """See `Driver`."""
        opaques, refused, frames = self._requests.take(incoming)
        tally, left_s = self._tally, self._left_s
        latencies = tally.latencies_s
        for opaque in opaques:
            latencies.append(now_s - left_s[(opaque - OPAQUE_FIRST) % RING])
        tally.answered += len(opaques)
        tally.refused += len(refused)
        count = len(opaques) + len(refused)
        if not count:
            return frames
        following = self._next(count)
        return frames + following if frames else following

    def _next(self, count: int) -> bytearray:
        first = self._requests.opaque_next - OPAQUE_FIRST
        frames = self._requests.next_frames(count)
        now_s, left_s = time.perf_counter(), self._left_s
        for opaque in range(first, first + count):
            left_s[opaque % RING] = now_s
        return frames


def connect(
    address: tuple[str, int],
    *,
    timeout_s: float = ANSWER_TIMEOUT_S,
    tls: ssl.SSLContext | None = None,
) -> socket.socket:
    """A new connection to a broker, which sends at once what it is given."""
    peer = socket.create_connection(address, timeout=timeout_s)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer if tls is None else tls.wrap_socket(peer, server_hostname=address[0])


_WAITING = {True: select.EPOLLIN, False: select.EPOLLIN | select.EPOLLOUT}
"""What a connection waits for, by whether the kernel has accepted all that it sends."""


class _Connection:
    def __init__(self, peer: socket.socket, driver: Driver) -> None:
        self.socket = peer
        self.socket.setblocking(False)
        self._driver = driver
        self._incoming = bytearray()
        self._outgoing = bytearray(driver.begin())

    def send(self) -> bool:
        """Send what is prepared; return whether the kernel accepted all of it."""
        try:
            while self._outgoing:
                del self._outgoing[: self.socket.send(self._outgoing)]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        return True

    def receive(self) -> bool:
        """Receive answers, and send the requests that follow them; see `send`.

        Raises: ConnectionError, BadAnswerError.
        """
        try:
            data = self.socket.recv(RECEIVE_SIZE_BYTES)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._incoming += data
            while data and isinstance(self.socket, ssl.SSLSocket):  # a record at a time
                data = self.socket.recv(RECEIVE_SIZE_BYTES)
                self._incoming += data
        except ssl.SSLWantReadError:
            pass
        self._outgoing += self._driver.take(self._incoming, time.perf_counter())
        return self.send()


class Load:
    """Connections to brokers, open while its block runs.

    Args:
      name: of the case, for errors.
      addresses: brokers, to which the connections are distributed in turn.
      drivers: one for each connection.
      tally: that of the drivers.
      spin: poll for answers without sleeping. On a separate core, the generator then adds nothing
        to the latency; waking it for each answer takes as long as the broker's work on a virtual
        machine.
      tls: of the connections; None: they are plain.
    """

    def __init__(
        self,
        name: str,
        addresses: Sequence[tuple[str, int]],
        drivers: Sequence[Driver],
        tally: Tally,
        *,
        spin: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._name = name
        self._addresses = addresses
        self._drivers = drivers
        self.tally = tally
        self._spin = spin
        self._tls = tls
        self._connections: dict[int, _Connection] = {}
        self._epoll = select.epoll()

    def __enter__(self) -> Load:
        for number, driver in enumerate(self._drivers):
            address = self._addresses[number % len(self._addresses)]
            peer = connect(address, timeout_s=FIRST_TIMEOUT_S, tls=self._tls)
            connection = self._connections[peer.fileno()] = _Connection(peer, driver)
            self._epoll.register(peer, _WAITING[connection.send()])
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()
        for connection in self._connections.values():
            connection.socket.close()

    def run(self, seconds: float, *, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
        """Load the brokers for `seconds`, and return the number of answered messages or pulls.

        The tally is that of this run. What is in flight at its end stays so.

        Raises: TimeoutError: no answer for `timeout_s`. ConnectionError. BadAnswerError.
        """
        tally = self.tally
        tally.clear()
        end_s = time.perf_counter() + seconds
        poll, modify = self._epoll.poll, self._epoll.modify
        while True:
            events = poll(0) if self._spin else poll(timeout_s)
            if not events:
                if time.perf_counter() < end_s + timeout_s and self._spin:
                    continue
                raise TimeoutError(
                    f"no answer in {timeout_s:g} s, after {tally.answered} of {self._name}:"
                    " the broker is gone, or the machine has too much other work"
                )
            for number, event in events:
                connection = self._connections[number]
                if event & select.EPOLLOUT and connection.send():
                    modify(number, _WAITING[True])
                if event & ~select.EPOLLOUT and not connection.receive():
                    modify(number, _WAITING[False])
            if time.perf_counter() >= end_s:
                return tally.answered


def fill(address: tuple[str, int], template: SendTemplate, messages: int) -> None:
    """Send exactly this number of messages; those that a busy broker refuses are sent again.

    Raises: OSError, BadAnswerError: the broker ended or refused.
    """
    incoming = bytearray()
    with connect(address, timeout_s=FIRST_TIMEOUT_S) as peer:
        stored, in_flight = 0, 0
        while stored < messages:
            count = min(FILL_IN_FLIGHT, messages - stored) - in_flight
            if count > 0:
                peer.sendall(template.next_frames(count))
                in_flight += count
            data = peer.recv(RECEIVE_SIZE_BYTES)
            if not data:
                raise ConnectionError("the broker closed the connection")
            incoming += data
            opaques, refused = take_answers(incoming)
            stored += len(opaques)
            in_flight -= len(opaques) + len(refused)
