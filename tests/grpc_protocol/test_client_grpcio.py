"""The client's session before a server of Google's grpcio, over a socket."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import grpc
import pytest

from trocket.grpc_protocol.client_engine import ClientEngine, Ponged
from trocket.grpc_protocol.client_session import (
    ClientSessionEvent,
    Ended,
    GrpcClientSession,
    Replied,
)
from trocket.grpc_protocol.session import GrpcStatus

from .client import SEND, TELEMETRY
from .test_client_session import ENGINES

RECEIVE = "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
DEADLINE_S = 20.0
OK = GrpcStatus.OK


class Handler(grpc.GenericRpcHandler):
    """Sends are echoed, receives are counted, telemetry is answered in capitals."""

    def service(self, details: Any) -> Any:
        if details.method == SEND:
            return grpc.unary_unary_rpc_method_handler(self._send)
        if details.method == RECEIVE:
            return grpc.unary_stream_rpc_method_handler(self._receive)
        if details.method == TELEMETRY:
            return grpc.stream_stream_rpc_method_handler(self._telemetry)
        return None

    def _send(self, request: bytes, context: Any) -> bytes:
        if request == b"who":
            return str(dict(context.invocation_metadata())["x-mq-client-id"]).encode()
        if request == b"fail":
            context.abort(grpc.StatusCode.NOT_FOUND, "gibt es nicht: 100 %, é")
        if request == b"wait":
            context.abort(grpc.StatusCode.UNKNOWN, f"{context.time_remaining() > 1}")
        return request

    def _receive(self, request: bytes, context: Any) -> Iterator[bytes]:
        for number in range(int(request)):
            yield str(number).encode()

    def _telemetry(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for request in requests:
            yield request.upper()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None).wait(DEADLINE_S)


class Talk:
    """A session on a socket."""

    def __init__(self, sock: socket.socket, engine: ClientEngine) -> None:
        self.sock = sock
        self.session = GrpcClientSession(engine, "127.0.0.1")

    def until(self, last: Callable[[ClientSessionEvent], bool]) -> list[ClientSessionEvent]:
        """Send and receive until an event has come."""
        seen: list[ClientSessionEvent] = self.session.events()
        while not any(map(last, seen)):
            self.sock.sendall(self.session.output())
            data = self.sock.recv(65_536)
            assert data, "the server has closed the connection"
            seen += self.session.receive(data)
        self.sock.sendall(self.session.output())
        return seen

    def ask(self, path: str, *messages: bytes) -> tuple[list[bytes], GrpcStatus, str]:
        """Make a call; returns the messages of its answer, its status and its text."""
        metadata = ((b"x-mq-client-id", b"me@1"),)
        self.session.call(path, metadata, *messages, timeout_s=DEADLINE_S)
        *replies, ended = self.until(lambda event: isinstance(event, Ended))
        assert isinstance(ended, Ended)
        found = [each.message for each in replies if isinstance(each, Replied)]
        return found, ended.status, ended.text


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.__name__)
def talk(request: pytest.FixtureRequest, port: int) -> Iterator[Talk]:
    with closing(socket.create_connection(("127.0.0.1", port), DEADLINE_S)) as sock:
        yield Talk(sock, request.param())


def test_unary_calls(talk: Talk):
    assert talk.ask(SEND, b"question") == ([b"question"], OK, "")
    assert talk.ask(SEND, b"") == ([b""], OK, "")
    assert talk.ask(SEND, b"who") == ([b"me@1"], OK, "")
    assert talk.ask(SEND, b"fail") == ([], GrpcStatus.NOT_FOUND, "gibt es nicht: 100 %, é")
    assert talk.ask(SEND, b"wait") == ([], GrpcStatus.UNKNOWN, "True")  # it knows the deadline
    assert talk.ask("/no/Such", b"")[:2] == ([], GrpcStatus.UNIMPLEMENTED)
    large = bytes(range(256)) * 4_000
    assert talk.ask(SEND, large) == ([large], OK, "")


def test_a_stream_of_answers(talk: Talk):
    found, status, _ = talk.ask(RECEIVE, b"300")
    assert (found, status) == ([str(number).encode() for number in range(300)], OK)


def test_a_stream_in_both_directions_a_cancelled_one_and_a_ping(talk: Talk):
    session = talk.session
    given_up = session.call(TELEMETRY, (), b"one", ends=False)
    stream = session.call(TELEMETRY, (), b"one", ends=False)
    talk.until(lambda event: event == Replied(stream, b"ONE"))
    session.cancel(given_up)
    session.send(stream, b"two")
    talk.until(lambda event: event == Replied(stream, b"TWO"))
    session.ping()
    talk.until(lambda event: isinstance(event, Ponged))
    session.send(stream, ends=True)
    talk.until(lambda event: event == Ended(stream, OK, ""))
    assert len(session) == 0
