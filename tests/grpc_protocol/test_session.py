"""grpc_protocol/session.py on both engines: calls, answers, and what is no call."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from random import Random

import pytest

from trocket.grpc_protocol.engine import PREFACE, STREAMS_MAX, Engine
from trocket.grpc_protocol.engine_h2 import H2Engine
from trocket.grpc_protocol.engine_ngh2 import Ngh2Engine
from trocket.grpc_protocol.session import (
    Asked,
    Call,
    Cancelled,
    GrpcSession,
    GrpcStatus,
    HalfClosed,
    SessionEvent,
    with_prefixes,
)

from .client import SEND, TELEMETRY, Answer, Client, headers_of

ENGINES = [Ngh2Engine, H2Engine]
PATHS = (SEND, TELEMETRY)
SIZE_MAX = 8 * 1024 * 1024


class Pair:
    """A client, and the session of its server."""

    def __init__(self, engine: Callable[[], Engine], *, window: int | None = None) -> None:
        self.client = Client(window=window)
        self.session = GrpcSession(engine(), PATHS, streams={TELEMETRY}, message_size_max=SIZE_MAX)
        self.events: list[SessionEvent] = []
        self.exchange()

    def exchange(self) -> list[SessionEvent]:
        """Exchange all bytes that are there; returns the session's new events."""
        found: list[SessionEvent] = []
        while True:
            sent = self.client.output()
            if sent:
                found += self.session.receive(sent)
            answered, events = self.session.output()
            found += events
            if answered:
                self.client.take(answered)
            if not sent and not answered:
                break
        self.events += found
        return found

    def asked(self) -> list[tuple[Call, bytes]]:
        return [(each.call, each.message) for each in self.exchange() if isinstance(each, Asked)]

    def answer(self, stream_id: int) -> Answer:
        return self.client.answers[stream_id]


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.__name__)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def test_a_call_is_asked_and_answered(pair: Pair) -> None:
    stream = pair.client.call(
        SEND, b"question", headers=[*headers_of(SEND), ("grpc-timeout", "3S")]
    )
    ((call, message),) = pair.asked()
    assert (call.path, message, call.timeout_s) == (SEND, b"question", 3.0)
    assert call.metadata["x-mq-client-id"] == "me@1"
    assert ":path" not in call.metadata
    pair.session.answer(call, b"answer")
    pair.exchange()
    answer = pair.answer(stream)
    assert answer.headers == {":status": "200", "content-type": "application/grpc"}
    assert (answer.messages, answer.status, answer.has_ended) == ([b"answer"], "0", True)
    assert not pair.session.calls


def test_a_stream_goes_on_in_both_directions(pair: Pair) -> None:
    stream = pair.client.call(TELEMETRY, b"1", b"2", ends=False)
    (call, _), (same, second) = pair.asked()
    assert (call, second) == (same, b"2")
    pair.session.send(call, b"a", b"b")
    pair.client.connection.send_data(stream, with_prefixes([b"3"]))
    assert [message for _, message in pair.asked()] == [b"3"]
    assert pair.answer(stream).messages == [b"a", b"b"]
    pair.client.connection.end_stream(stream)
    assert pair.exchange() == [HalfClosed(call)]
    pair.session.finish(call)
    pair.exchange()
    assert pair.answer(stream).status == "0"
    assert not pair.session.calls


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("engine", ENGINES)
def test_messages_come_in_any_parts(engine: Callable[[], Engine], seed: int) -> None:
    random = Random(seed)
    messages = [random.randbytes(random.choice((0, 1, 5, 70_000))) for _ in range(20)]
    client, session = Client(), GrpcSession(engine(), PATHS, streams={TELEMETRY})
    client.call(TELEMETRY, ends=False)
    data, found = b"", []
    body = with_prefixes(messages)
    data = client.output()
    client.take(b"".join([session.output()[0] for _ in session.receive(data) or [0]]))
    while body:
        size = min(random.choice((1, 4, 5, 6, 16_000)), len(body))
        client.connection.send_data(1, body[:size])
        body = body[size:]
        found += session.receive(client.output())
        client.take(session.output()[0])
    assert [each.message for each in found if isinstance(each, Asked)] == messages
    assert session.held_size == 0


REFUSED = [
    pytest.param("/a.B/C", {}, "12", "Method not found: a.B/C", id="unknown method"),
    pytest.param("/", {}, "12", "Method not found:", id="no path"),
    pytest.param(SEND, {"grpc-encoding": "x"}, "12", "find decompressor for x", id="encoding"),
    pytest.param(SEND, {"grpc-timeout": "3"}, "13", "is no grpc-timeout", id="timeout"),
    pytest.param(SEND, {"grpc-timeout": "123456789S"}, "13", "no grpc-timeout", id="long timeout"),
    pytest.param(SEND, {":method": "GET"}, "13", "Method 'GET' is not supported", id="GET"),
    pytest.param(SEND, {"content-type": "text/html"}, "13", "'text/html' is not", id="content"),
]


@pytest.mark.parametrize(("path", "more", "status", "text"), REFUSED)
def test_what_is_no_call_is_refused(
    pair: Pair, path: str, more: dict[str, str], status: str, text: str
) -> None:
    stream = pair.client.call(path, b"x", headers=headers_of(path, *more.items()))
    assert pair.exchange() == []
    answer = pair.answer(stream)
    assert (answer.status, answer.has_ended, answer.body) == (status, True, b"")
    assert text in answer.headers["grpc-message"]
    of_http = {"GET": "405", "text/html": "415"}
    assert answer.headers[":status"] == of_http.get(next(iter(more.values()), ""), "200")
    again = pair.client.call(SEND, b"y")
    ((call, _),) = pair.asked()
    pair.session.answer(call, b"served")
    pair.exchange()
    assert pair.answer(again).messages == [b"served"]


def compressed(data: bytes) -> bytes:
    """A message as a client sends it that compresses by gzip."""
    return b"\1" + with_prefixes([gzip.compress(data, mtime=0)])[1:]


GZIPPED = {"grpc-encoding": "gzip"}


def test_compressed_messages_are_inflated(pair: Pair) -> None:
    headers = headers_of(SEND, *GZIPPED.items())
    for body, message in ((compressed(b"x" * 1000), b"x" * 1000), (with_prefixes([b"y"]), b"y")):
        stream = pair.client.call(SEND, ends=False, headers=headers)
        pair.client.connection.send_data(stream, body, end_stream=True)
        assert [found for _, found in pair.asked()] == [message]


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (compressed(b"x" * 100)[:-4], "13", "ends within"),
        (b"\1" + with_prefixes([b"abc"])[1:], "13", "no gzip"),
        (b"\1" + with_prefixes([gzip.compress(b"x" * 100, mtime=0)[:-4]])[1:], "13", "is cut off"),
        (compressed(bytes(SIZE_MAX + 1)), "8", "are not read"),
        (b"\2" + with_prefixes([b"abc"])[1:], "13", "has no grpc-encoding"),
    ],
)
def test_what_cannot_be_inflated_is_refused(
    pair: Pair, body: bytes, status: str, text: str
) -> None:
    headers = headers_of(SEND, *GZIPPED.items())
    stream = pair.client.call(SEND, ends=False, headers=headers)
    pair.client.connection.send_data(stream, body, end_stream=True)
    assert not [each for each in pair.exchange() if isinstance(each, Asked)]
    answer = pair.answer(stream)
    assert (answer.status, text in answer.headers["grpc-message"]) == (status, True)


def test_what_is_inflated_at_once_is_limited(pair: Pair) -> None:
    headers = headers_of(SEND, *GZIPPED.items())
    streams = []
    for _ in range(3):
        streams.append(pair.client.call(SEND, ends=False, headers=headers))
        body = compressed(bytes(SIZE_MAX // 2))
        pair.client.connection.send_data(streams[-1], body[:-1])
    pair.exchange()
    for stream in streams:
        pair.client.connection.send_data(stream, body[-1:], end_stream=True)
    assert len(pair.asked()) == 2
    assert pair.answer(streams[2]).status == "8"


BODIES = [
    pytest.param(b"", "13", "without a request", id="none"),
    pytest.param(b"\0\0\0\0\5abc", "13", "ends within a message", id="cut off"),
    pytest.param(b"\0\0", "13", "ends within a message", id="cut off in the prefix"),
    pytest.param(b"\1\0\0\0\1a", "13", "has no grpc-encoding", id="compressed"),
    pytest.param(b"\7\0\0\0\1a", "13", "has no grpc-encoding", id="odd flag"),
    pytest.param(b"\0\xff\xff\xff\xff", "8", "a message of 4294967295 bytes", id="4 GiB"),
    pytest.param(with_prefixes([b"a", b"b"]), "13", "Too many requests", id="two"),
]


@pytest.mark.parametrize(("body", "status", "text"), BODIES)
def test_bodies_that_hold_no_message(pair: Pair, body: bytes, status: str, text: str) -> None:
    stream = pair.client.call(SEND, ends=False)
    pair.client.connection.send_data(stream, body, end_stream=True)
    assert not [each for each in pair.exchange() if isinstance(each, Asked)]
    answer = pair.answer(stream)
    assert answer.status == status
    assert text in answer.headers["grpc-message"]
    assert not pair.session.calls


def test_a_text_of_a_status_may_be_any(pair: Pair) -> None:
    stream = pair.client.call(SEND, b"x")
    ((call, _),) = pair.asked()
    pair.session.finish(call, GrpcStatus.INTERNAL, "50 % é\n")
    pair.exchange()
    assert pair.answer(stream).headers["grpc-message"] == "50 %25 %C3%A9%0A"


def test_a_client_gives_a_call_up(pair: Pair) -> None:
    stream = pair.client.call(SEND, b"x")
    ((call, _),) = pair.asked()
    pair.client.connection.reset_stream(stream, 8)
    assert pair.exchange() == [Cancelled(call)]
    pair.session.answer(call, b"too late")
    pair.session.finish(call)
    assert pair.exchange() == []
    assert not pair.session.calls


def test_an_answer_before_the_request_has_ended(pair: Pair) -> None:
    stream = pair.client.call(SEND, b"x", ends=False)
    ((call, _),) = pair.asked()
    pair.session.answer(call, b"early")
    pair.exchange()
    assert pair.answer(stream).messages == [b"early"]
    pair.client.connection.end_stream(stream)
    assert pair.exchange() == []
    assert not pair.session.calls


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("window", [0, 1, 100_000])
def test_an_answer_waits_for_the_window_of_its_peer(
    engine: Callable[[], Engine], window: int
) -> None:
    pair = Pair(engine, window=window)
    pair.client.reads_windows = False
    stream = pair.client.call(SEND, b"x")
    ((call, _),) = pair.asked()
    large = bytes(300_000)
    pair.session.answer(call, large)
    pair.exchange()
    room = min(window, 65_535)
    assert len(pair.answer(stream).body) == room
    assert pair.session.held_size == len(large) + 5 - room
    pair.client.connection.increment_flow_control_window(1_000_000)
    pair.client.connection.increment_flow_control_window(1_000_000, stream)
    pair.exchange()
    assert pair.answer(stream).messages == [large]
    assert pair.answer(stream).status == "0"
    assert pair.session.held_size == 0


def test_what_is_held_back_for_a_call_that_is_given_up_is_dropped(pair: Pair) -> None:
    pair.client.reads_windows = False
    stream = pair.client.call(SEND, b"x")
    ((call, _),) = pair.asked()
    pair.session.answer(call, bytes(300_000))
    pair.exchange()
    assert pair.session.held_size > 200_000
    pair.client.connection.reset_stream(stream, 8)
    pair.exchange()
    assert pair.session.held_size == 0


def test_the_end_of_the_connection_cancels_its_calls(pair: Pair) -> None:
    pair.client.call(SEND, b"x")
    ((call, _),) = pair.asked()
    events = pair.session.receive(b"\0\0\1\7\0\0\0\0\0x")  # a GOAWAY that is too short
    events += pair.session.output()[1]
    assert events == [Cancelled(call)]
    assert pair.session.broken
    assert pair.session.receive(b"more") == []


def test_bytes_that_are_no_http2(pair: Pair) -> None:
    session = GrpcSession(type(pair.session._engine)(), PATHS)
    session.receive(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
    session.output()
    assert session.broken


def test_many_streams_are_open_at_once(pair: Pair) -> None:
    client, session = pair.client, pair.session
    for _ in range(1_000):
        client.call(TELEMETRY, b"x", ends=False)
    assert len(pair.asked()) == 1_000
    assert len(session.calls) == 1_000
    assert client.connection.remote_settings.max_concurrent_streams == STREAMS_MAX


def test_the_preface_is_the_first_thing_that_a_client_sends() -> None:
    assert Client().output().startswith(PREFACE)
