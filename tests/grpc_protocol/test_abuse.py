"""Hostile HTTP/2 peers, on both engines: the connection is ended, or what it holds stays small."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

import hpack
import pytest

from trocket.grpc_protocol.engine import PREFACE, STREAMS_MAX, Engine
from trocket.grpc_protocol.session import GrpcSession

from .client import SEND, headers_of
from .test_session import ENGINES

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION = (
    0, 1, 2, 3, 4, 6, 7, 8, 9,
)  # fmt: skip
END_HEADERS, END_STREAM = 4, 1

HEAD: Final = hpack.Encoder().encode(headers_of(SEND))


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes((kind, flags))
        + struct.pack(">I", stream_id)
        + payload
    )


def headers(number: int, flags: int = END_HEADERS, head: bytes = HEAD) -> bytes:
    """The headers of the connection's call with a number from 0 on."""
    return frame(HEADERS, flags, 2 * number + 1, head)


def resets() -> Iterator[bytes]:
    for number in range(100_000):
        yield headers(number) + frame(RESET, 0, 2 * number + 1, b"\0\0\0\x08")


def repeated(one: bytes, first: bytes = b"") -> Callable[[], Iterator[bytes]]:
    def parts() -> Iterator[bytes]:
        yield first
        for _ in range(2_000):
            yield one * 100

    return parts


def continuations() -> Iterator[bytes]:
    yield headers(0, flags=0)
    for _ in range(10_000):
        yield frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b" * 100)


def header_bombs() -> Iterator[bytes]:
    """A header of 3,900 bytes, then requests that repeat it 4,000 times by its index."""
    yield headers(0, head=hpack.Encoder().encode([*headers_of(SEND), ("x-big", "v" * 3900)]))
    for number in range(1, 200):
        yield headers(number, head=HEAD + b"\xbe" * 4000)


def large_header() -> Iterator[bytes]:
    head = HEAD + b"\x00\x01a\x7f\x81\xff\x3f" + b"v" * (1 << 20)
    yield frame(HEADERS, 0, 1, head[:16_000])
    for start in range(16_000, len(head), 16_000):
        yield frame(CONTINUATION, 0, 1, head[start : start + 16_000])


ATTACKS: Final = [
    pytest.param(resets, id="rapid reset"),
    pytest.param(repeated(frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x64")), id="SETTINGS"),
    pytest.param(repeated(frame(PING, 0, 0, b"12345678")), id="PING"),
    pytest.param(repeated(frame(DATA, 0, 1), headers(0)), id="empty DATA"),
    pytest.param(repeated(frame(PRIORITY, 0, 3, b"\0\0\0\0\x10")), id="PRIORITY"),
    pytest.param(repeated(frame(WINDOW, 0, 0, b"\0\0\0\0")), id="WINDOW_UPDATE of 0"),
    pytest.param(continuations, id="CONTINUATION"),
    pytest.param(header_bombs, id="header bomb"),
    pytest.param(large_header, id="header of 1 MiB"),
    pytest.param(repeated(b"\0" * 9 + b"\xff" * 99), id="no frames"),
]


def attacked(engine: Callable[[], Engine], parts: Callable[[], Iterator[bytes]]) -> GrpcSession:
    """The session after an attack, whose answers are read or, every other time, are not."""
    session = GrpcSession(engine(), {SEND})
    session.receive(PREFACE + frame(SETTINGS, 0, 0))
    for part in parts():
        session.receive(part)
        session.output()
        if session.broken is not None:
            break
    return session


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("parts", ATTACKS)
def test_the_connection_of_an_attacker_is_ended(
    engine: Callable[[], Engine], parts: Callable[[], Iterator[bytes]]
) -> None:
    session = attacked(engine, parts)
    assert session.broken is not None
    assert not session.calls


@pytest.mark.parametrize("engine", ENGINES)
def test_streams_above_the_limit_are_refused(engine: Callable[[], Engine]) -> None:
    def streams() -> Iterator[bytes]:
        for number in range(STREAMS_MAX + 500):
            yield headers(number)

    assert len(attacked(engine, streams).calls) <= STREAMS_MAX


@pytest.mark.parametrize("engine", ENGINES)
def test_a_message_whose_prefix_says_4_gib_is_refused_at_once(engine: Callable[[], Engine]) -> None:
    def message() -> Iterator[bytes]:
        yield headers(0) + frame(DATA, 0, 1, b"\0\xff\xff\xff\xff" + b"x" * 1_000)
        for _ in range(900):  # within the window
            yield frame(DATA, 0, 1, b"x" * 1_000)

    assert attacked(engine, message).held_size == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_peer_that_sends_beyond_its_window_is_ended_or_holds_no_more(
    engine: Callable[[], Engine],
) -> None:
    def flood() -> Iterator[bytes]:
        yield headers(0) + frame(DATA, 0, 1, b"\0\0\x80\0\0")
        for _ in range(3_000):
            yield frame(DATA, 0, 1, b"x" * 16_000)

    session = GrpcSession(engine(), {SEND}, message_size_max=1 << 20)
    session.receive(PREFACE + frame(SETTINGS, 0, 0))
    held = 0
    for part in flood():
        session.receive(part)
        held = max(held, session.held_size)
        session.output()
    assert held <= (1 << 20) + 5


@pytest.mark.parametrize("engine", ENGINES)
def test_many_pings_beside_calls_are_no_attack(engine: Callable[[], Engine]) -> None:
    """Java's client measures the connection by a PING after nearly every read."""

    def calls() -> Iterator[bytes]:
        for number in range(3_000):
            message = frame(DATA, END_STREAM, 2 * number + 1, b"\0\0\0\0\1x")
            yield headers(number) + message + 2 * frame(PING, 0, 0, b"\0\0\0\0\0\0\x12\x34")
            yield frame(WINDOW, 0, 0, b"\0\0\1\0")

    session = GrpcSession(engine(), {SEND})
    session.receive(PREFACE + frame(SETTINGS, 0, 0))
    count = 0
    for part in calls():
        for event in session.receive(part):
            session.answer(event.call, b"y")
            count += 1
        session.output()
    assert (session.broken, count) == (None, 3_000)
