"""grpc_protocol/client_session.py on both engines, before the server's session in memory."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import h2.config
import h2.connection
import h2.events
import pytest

from trocket.grpc_protocol.client_engine import ClientEngine, Ponged
from trocket.grpc_protocol.client_h2 import H2ClientEngine
from trocket.grpc_protocol.client_ngh2 import Ngh2ClientEngine
from trocket.grpc_protocol.client_session import (
    ClientCall,
    ClientSessionEvent,
    Ended,
    GrpcClientSession,
    Replied,
    timeout_text,
)
from trocket.grpc_protocol.engine_ngh2 import Ngh2Engine
from trocket.grpc_protocol.session import (
    Asked,
    Cancelled,
    GrpcSession,
    GrpcStatus,
    HalfClosed,
    SessionEvent,
)

from .client import SEND, TELEMETRY

ENGINES = [Ngh2ClientEngine, H2ClientEngine]
AUTHORITY = "broker:8081"
ME = ((b"x-mq-client-id", b"me@1"),)
OK, UNAVAILABLE = GrpcStatus.OK, GrpcStatus.UNAVAILABLE


class Pair:
    """A client's session, and the session of its server."""

    def __init__(self, engine: ClientEngine, **options: Any) -> None:
        self.client = GrpcClientSession(engine, AUTHORITY, **options)
        self.server = GrpcSession(Ngh2Engine(), (SEND, TELEMETRY), streams={TELEMETRY})
        self.seen: list[ClientSessionEvent] = []
        self.exchange()

    def exchange(self) -> list[SessionEvent]:
        """Exchange all bytes that are there; returns the server's new events."""
        found: list[SessionEvent] = []
        while True:
            sent = self.client.output()
            self.seen += self.client.events()
            if sent:
                found += self.server.receive(sent)
            answered, events = self.server.output()
            found += events
            if answered:
                self.seen += self.client.receive(answered)
            if not sent and not answered:
                return found

    def asked(self) -> list[Asked]:
        return [each for each in self.exchange() if isinstance(each, Asked)]

    def take(self) -> list[ClientSessionEvent]:
        """The client's events since the last call."""
        self.exchange()
        seen, self.seen = self.seen, []
        return seen


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.__name__)
def engine(request: pytest.FixtureRequest) -> Callable[[], ClientEngine]:
    return request.param


@pytest.fixture
def pair(engine: Callable[[], ClientEngine]) -> Pair:
    return Pair(engine())


def test_a_call_is_answered(pair: Pair):
    call = pair.client.call(SEND, ME, b"question", timeout_s=2.5)
    (asked,) = pair.asked()
    assert (asked.call.path, asked.message, asked.call.timeout_s) == (SEND, b"question", 2.5)
    assert asked.call.metadata["x-mq-client-id"] == "me@1"
    pair.server.answer(asked.call, b"answer")
    assert pair.take() == [Replied(call, b"answer"), Ended(call, OK, "")]
    assert (call.has_ended, len(pair.client)) == (True, 0)


def test_an_answer_of_several_messages_comes_as_they_are_sent(pair: Pair):
    call = pair.client.call(SEND, ME, b"question")
    (asked,) = pair.asked()
    pair.server.send(asked.call, b"one", b"two")
    assert pair.take() == [Replied(call, b"one"), Replied(call, b"two")]
    pair.server.answer(asked.call, b"three")
    assert pair.take() == [Replied(call, b"three"), Ended(call, OK, "")]


def test_a_stream_goes_in_both_directions_until_it_is_ended(pair: Pair):
    call = pair.client.call(TELEMETRY, ME, b"settings", ends=False)
    (asked,) = pair.asked()
    pair.server.send(asked.call, b"command")
    assert pair.take() == [Replied(call, b"command")]
    pair.client.send(call, b"report")
    assert [each.message for each in pair.asked()] == [b"report"]
    pair.client.send(call, b"last", ends=True)
    events = pair.exchange()
    assert isinstance(events[0], Asked)
    assert events[1:] == [HalfClosed(asked.call)]
    pair.server.finish(asked.call)
    assert pair.take() == [Ended(call, OK, "")]


def test_a_refusal_has_its_status_and_its_text(pair: Pair):
    call = pair.client.call(SEND, ME, b"question")
    (asked,) = pair.asked()
    pair.server.finish(asked.call, GrpcStatus.RESOURCE_EXHAUSTED, "zu viel: 100 %, é")
    assert pair.take() == [Ended(call, GrpcStatus.RESOURCE_EXHAUSTED, "zu viel: 100 %, é")]
    unknown = pair.client.call("/nothing", ME, b"question")
    (ended,) = pair.take()
    assert isinstance(ended, Ended)
    assert (ended.call, ended.status) == (unknown, GrpcStatus.UNIMPLEMENTED)


def test_a_cancelled_call_is_reset_and_nothing_more_is_said_of_it(pair: Pair):
    call = pair.client.call(SEND, ME, b"question")
    (asked,) = pair.asked()
    pair.client.cancel(call)
    pair.client.cancel(call)
    assert pair.exchange() == [Cancelled(asked.call)]
    pair.server.answer(asked.call, b"answer")
    assert pair.take() == []
    assert len(pair.client) == 0


def test_bodies_above_all_windows_pass(pair: Pair):
    large = bytes(range(256)) * 80_000  # 20 MB: above the windows of a connection
    half = large[: len(large) // 2]
    call = pair.client.call(SEND, ME, half)
    (asked,) = pair.asked()
    assert asked.message == half
    pair.server.answer(asked.call, large)
    replied, ended = pair.take()
    assert isinstance(replied, Replied)
    assert replied.message == large
    assert ended == Ended(call, OK, "")
    assert pair.client.queued_size == 0


def test_an_answer_above_the_limit_is_given_up(engine: Callable[[], ClientEngine]):
    pair = Pair(engine(), message_size_max=1_000)
    call = pair.client.call(SEND, ME, b"question")
    (asked,) = pair.asked()
    pair.server.send(asked.call, bytes(1_001))
    (ended,) = pair.take()
    assert ended == Ended(
        call,
        GrpcStatus.RESOURCE_EXHAUSTED,
        "the answer has a message of 1001 bytes; at most 1000 are read",
    )


class Far:
    """The server's end by h2, for what our server's session never does."""

    def __init__(self, engine: ClientEngine, *, streams_max: int | None = None) -> None:
        self.session = GrpcClientSession(engine, AUTHORITY)
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.server = h2.connection.H2Connection(config)
        self.server.initiate_connection()
        if streams_max is not None:
            self.server.update_settings({3: streams_max})
        self.requests: list[h2.events.RequestReceived] = []
        self.seen: list[ClientSessionEvent] = []
        self.exchange()

    def exchange(self) -> None:
        while True:
            sent = self.session.output()
            if sent:
                for event in self.server.receive_data(sent):
                    if isinstance(event, h2.events.RequestReceived):
                        self.requests.append(event)
            answered = self.server.data_to_send()
            if answered:
                self.seen += self.session.receive(answered)
            if not sent and not answered:
                return

    def call(self) -> ClientCall:
        call = self.session.call(SEND, ME, b"question")
        self.exchange()
        return call

    def ended(self) -> list[tuple[GrpcStatus, str]]:
        self.exchange()
        seen = [(each.status, each.text) for each in self.seen if isinstance(each, Ended)]
        self.seen = []
        return seen


@pytest.fixture
def far(engine: Callable[[], ClientEngine]) -> Far:
    return Far(engine())


GRPC = [(":status", "200"), ("content-type", "application/grpc")]


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ([(":status", "503"), ("content-type", "text/html")], UNAVAILABLE, "HTTP status 503"),
        ([(":status", "401")], GrpcStatus.UNAUTHENTICATED, "HTTP status 401"),
        ([(":status", "418")], GrpcStatus.UNKNOWN, "HTTP status 418"),
        ([(":status", "200"), ("content-type", "text/html")], GrpcStatus.UNKNOWN, "'text/html'"),
        ([*GRPC, ("grpc-encoding", "gzip")], GrpcStatus.INTERNAL, "compressed"),
        ([*GRPC, ("grpc-status", "99")], GrpcStatus.UNKNOWN, "status 99"),
        ([*GRPC, ("grpc-status", "-1")], GrpcStatus.UNKNOWN, "no status of gRPC: '-1'"),
        (GRPC, GrpcStatus.UNKNOWN, "no status of gRPC: ''"),
    ],
)
def test_an_answer_that_is_no_grpc_ends_the_call(
    far: Far, headers: list[tuple[str, str]], status: GrpcStatus, text: str
):
    far.call()
    far.server.send_headers(1, headers, end_stream=True)
    ((found, why),) = far.ended()
    assert (found, text in why) == (status, True), why


@pytest.mark.parametrize(
    ("body", "ends", "status", "text"),
    [
        (b"\0\0\0\0\5hal", True, GrpcStatus.UNKNOWN, "without a status"),
        (b"\1\0\0\0\4half", False, GrpcStatus.INTERNAL, "compressed"),
        (b"\0\xff\xff\xff\xff", False, GrpcStatus.RESOURCE_EXHAUSTED, "4294967295 bytes"),
    ],
)
def test_a_body_that_is_no_grpc_ends_the_call(
    far: Far, body: bytes, ends: bool, status: GrpcStatus, text: str
):
    far.call()
    far.server.send_headers(1, GRPC)
    far.server.send_data(1, body, end_stream=ends)
    ((found, why),) = far.ended()
    assert (found, text in why) == (status, True), why


def test_an_answer_that_ends_within_a_message_is_no_success(far: Far):
    far.call()
    far.server.send_headers(1, GRPC)
    far.server.send_data(1, b"\0\0\0\0\5hal")
    far.server.send_headers(1, [("grpc-status", "0")], end_stream=True)
    assert far.ended() == [(GrpcStatus.INTERNAL, "the answer ends within a message")]


@pytest.mark.parametrize(
    ("code", "status"),
    [(7, UNAVAILABLE), (8, GrpcStatus.CANCELLED), (11, GrpcStatus.RESOURCE_EXHAUSTED),
     (2, GrpcStatus.INTERNAL)],
)  # fmt: skip
def test_a_call_that_the_server_resets_has_ended(far: Far, code: int, status: GrpcStatus):
    far.call()
    far.server.reset_stream(1, code)
    ((found, text),) = far.ended()
    assert (found, text) == (status, f"the server reset the call with HTTP/2 error {code}")


def test_calls_above_the_servers_limit_wait(engine: Callable[[], ClientEngine]):
    far = Far(engine(), streams_max=2)
    calls = [far.call() for _ in range(4)]
    assert len(far.requests) == 2
    far.session.cancel(calls[3])  # it has no stream yet
    far.server.send_headers(1, [*GRPC, ("grpc-status", "0")], end_stream=True)
    far.exchange()
    assert len(far.requests) == 3
    assert far.ended() == [(OK, "")]
    far.session.cancel(calls[1])
    assert len(far.session) == 1


def test_a_goaway_lets_calls_end_and_takes_no_more(far: Far):
    far.call()
    far.call()
    # As Netty's: the first call was taken, the second one was not.
    goaway = bytes.fromhex("000008 07 00 00000000 00000001 00000000".replace(" ", ""))
    far.seen += far.session.receive(goaway)
    reason = "the server takes no more calls (GOAWAY 0)"
    assert far.session.going_away == reason
    ended = [each.status for each in far.seen if isinstance(each, Ended)]
    if far.session.broken is None:
        assert ended == [UNAVAILABLE]  # the other one goes on
        assert len(far.session) == 1
    else:  # h2 can do nothing more then
        assert ended == [UNAVAILABLE, UNAVAILABLE]
    far.session.call(SEND, ME, b"too late")
    (late,) = far.session.events()
    assert isinstance(late, Ended)
    assert late.status is UNAVAILABLE


def test_a_ping_is_answered_in_both_directions(far: Far):
    far.session.ping()
    far.exchange()
    assert far.seen == [Ponged()]


def test_a_peer_that_speaks_no_http2_breaks_the_session(engine: Callable[[], ClientEngine]):
    session = GrpcClientSession(engine(), AUTHORITY)
    call = session.call(SEND, ME, b"question")
    session.output()
    events = session.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4)
    session.output()
    events += session.events()
    assert session.broken
    assert [(each.call, each.status) for each in events if isinstance(each, Ended)] == [
        (call, UNAVAILABLE)
    ]
    session.receive(b"more")
    session.call(SEND, ME, b"too late")
    assert [type(each) for each in session.events()] == [Ended]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "3000m"), (0.0001, "1m"), (200_000, "200000S"), (1e9, "16666667M"), (1e12, "99999999H"),
     (inf, "99999999H")],
)  # fmt: skip
def test_time_outs_have_eight_digits(seconds: float, text: str):
    assert timeout_text(seconds) == text
