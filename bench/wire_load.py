"""The load generator of `bench/wire.py`: connections with a number of requests in flight."""

from __future__ import annotations

import select
import socket
import ssl
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trocket.bench.frames import OPAQUE_FIRST, Taken

RECEIVE_SIZE_BYTES = 1 << 18
ANSWER_TIMEOUT_S = 10.0
FIRST_TIMEOUT_S = 60.0
"""Time for a connection, its handshake, and each answer of the warm-up.

A JVM loads its classes of TLS at the first handshake, and of sends at the first send: on one core
that other work keeps busy that may take longer than `ANSWER_TIMEOUT_S`.
"""
RING = 1 << 20
"""Requests whose send time is kept, by opaque; far more than are ever in flight."""


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


class Requests(Protocol):
    """The requests of a workload, such as `SendTemplate`."""

    @property
    def opaque_next(self) -> int:
        """The opaque of the next request."""

    def next_frames(self, count: int) -> bytearray:
        """`count` requests with consecutive opaques."""

    def take(self, incoming: bytearray) -> Taken:
        """Remove the complete answers from the start of `incoming`. Raises: BadAnswerError."""


class _Connection:
    """A closed loop: as many requests go out as answers came in."""

    def __init__(
        self, address: tuple[str, int], template: Requests, tls: ssl.SSLContext | None = None
    ) -> None:
        self.socket = socket.create_connection(address, timeout=FIRST_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self.socket.setblocking(False)
        self._template = template
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def prepare(self, count: int) -> None:
        """Append `count` new requests to the unsent ones."""
        self._outgoing += self._template.next_frames(count)

    def send(self) -> bool:
        """Send the prepared requests; return whether the kernel accepted all of them."""
        try:
            while self._outgoing:
                del self._outgoing[: self.socket.send(self._outgoing)]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        return True

    def receive(self) -> tuple[list[int], int]:
        """Receive answers; the requests that follow them become unsent.

        Returns: as `take_answers`.
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
        opaques, refused, frames = self._template.take(self._incoming)
        self._outgoing += frames
        return opaques, refused


class Load:
    """All connections of one case, on one epoll, and the latencies of the measured time.

    Args:
      addresses: brokers, to which the connections are distributed in turn.
      spin, tls: see `measure`.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        case: Case,
        template: Requests,
        *,
        spin: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._name = case.name
        self._template = template
        self._spin = spin
        self._in_flight = case.in_flight
        self._epoll = select.epoll()
        self._connections = {}
        for number in range(case.connections):
            connection = _Connection(addresses[number % len(addresses)], template, tls)
            self._connections[connection.socket.fileno()] = connection
            self._epoll.register(connection.socket, select.EPOLLIN)
        self._left_s = array("d", bytes(8 * RING))
        self.latencies_s = array("d")
        self.refused = 0

    def start(self) -> None:
        """Fill every connection up to its number in flight."""
        for number, connection in self._connections.items():
            self._send(number, connection, self._in_flight)

    def _send(self, number: int, connection: _Connection, count: int) -> None:
        first = self._template.opaque_next - OPAQUE_FIRST
        connection.prepare(count)
        now_s = time.perf_counter()
        left_s = self._left_s
        for opaque in range(first, first + count):
            left_s[opaque % RING] = now_s
        if not connection.send():
            self._epoll.modify(number, select.EPOLLIN | select.EPOLLOUT)

    def run(self, seconds: float, *, timeout_s: float = ANSWER_TIMEOUT_S) -> int:
        """Send for `seconds`, and return the number of successes.

        Their latencies are in `latencies_s`, the number refused as busy in `refused`.

        Raises: TimeoutError: no answer for `timeout_s`. ConnectionError. BadAnswerError.
        """
        del self.latencies_s[:]
        self.refused = 0
        answered = 0
        left_s, latencies = self._left_s, self.latencies_s
        end_s = time.perf_counter() + seconds
        poll = self._epoll.poll
        while True:
            events = poll(0) if self._spin else poll(timeout_s)
            if not events:
                if time.perf_counter() < end_s + timeout_s and self._spin:
                    continue
                raise TimeoutError(
                    f"no answer in {timeout_s:g} s, after {answered} of {self._name}: the broker"
                    " is gone, or the machine has too much other work"
                )
            for number, event in events:
                connection = self._connections[number]
                if event & select.EPOLLOUT and connection.send():
                    self._epoll.modify(number, select.EPOLLIN)
                if event & ~select.EPOLLOUT:
                    opaques, refused = connection.receive()
                    now_s = time.perf_counter()
                    for opaque in opaques:
                        latencies.append(now_s - left_s[(opaque - OPAQUE_FIRST) % RING])
                    answered += len(opaques)
                    self.refused += refused
                    if opaques or refused:
                        self._send(number, connection, len(opaques) + refused)
            if time.perf_counter() >= end_s:
                return answered

    def close(self) -> None:
        """Close everything, answered or not."""
        self._epoll.close()
        for connection in self._connections.values():
            connection.socket.close()
