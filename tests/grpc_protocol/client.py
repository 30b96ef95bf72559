"""A gRPC client of h2 without a socket, for the session and its engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import h2.config
import h2.connection
import h2.events

from trocket.grpc_protocol.session import with_prefixes

Header = tuple[str, str]

SEND: Final = "/apache.rocketmq.v2.MessagingService/SendMessage"
TELEMETRY: Final = "/apache.rocketmq.v2.MessagingService/Telemetry"


def headers_of(path: str, *more: Header, leave_out: str = "") -> list[Header]:
    """A request's headers, as gRPC's clients send them."""
    usual = [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "broker:8081"),
        ("content-type", "application/grpc"), ("te", "trailers"), ("x-mq-client-id", "me@1"),
    ]  # fmt: skip
    # Pseudo-headers stay first.
    changed = dict(usual) | dict(more)
    return [(name, value) for name, value in changed.items() if name != leave_out]


class Answer:
    """What has arrived for one call."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.trailers: dict[str, str] = {}
        self.body = b""
        self.reset: int | None = None
        self.has_ended = False

    @property
    def messages(self) -> list[bytes]:
        found, rest = [], self.body
        while rest:
            size = int.from_bytes(rest[1:5], "big")
            assert rest[0] == 0
            assert len(rest) >= 5 + size
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found

    @property
    def status(self) -> str | None:
        """The status of gRPC, in trailers or, without an answer, in the headers."""
        return (self.trailers or self.headers).get("grpc-status")


def _texts(headers: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers}


class Client:
    """One connection. `take` and `output` exchange bytes with a server."""

    def __init__(self, *, window: int | None = None) -> None:
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.connection = h2.connection.H2Connection(config)
        self.connection.initiate_connection()
        if window is not None:
            self.connection.update_settings({4: window})
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None
        self.reads_windows = True

    def call(
        self,
        path: str,
        *messages: bytes,
        ends: bool = True,
        headers: Sequence[Header] | None = None,
    ) -> int:
        """Begin a call, and send messages; returns its stream."""
        stream_id = self.connection.get_next_available_stream_id()
        self.answers[stream_id] = Answer()
        has_body = bool(messages)
        self.connection.send_headers(
            stream_id, headers or headers_of(path), end_stream=ends and not has_body
        )
        if has_body:
            self.connection.send_data(stream_id, with_prefixes(messages), end_stream=ends)
        return stream_id

    def output(self) -> bytes:
        return self.connection.data_to_send()

    def take(self, data: bytes) -> None:
        for event in self.connection.receive_data(data):
            match event:
                case h2.events.ResponseReceived():
                    self.answers[event.stream_id].headers = _texts(event.headers)
                case h2.events.TrailersReceived():
                    self.answers[event.stream_id].trailers = _texts(event.headers)
                case h2.events.DataReceived():
                    self.answers[event.stream_id].body += event.data
                    if self.reads_windows:
                        self.connection.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                case h2.events.StreamEnded():
                    self.answers[event.stream_id].has_ended = True
                case h2.events.StreamReset():
                    self.answers[event.stream_id].reset = event.error_code
                case h2.events.ConnectionTerminated():
                    self.goaway = event.error_code
                case _:
                    pass
