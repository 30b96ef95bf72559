"""The calls of one gRPC connection on the client's side, without its socket.

The mirror image of `session`: above an HTTP/2 engine this has what gRPC adds, that is the five
bytes before each message, deadlines for the server, and how a call ended. It has no clock: who
makes a call gives it up by `cancel` when its time is over.

==============  ====================  ===============================================
state           takes new calls       next states
==============  ====================  ===============================================
open            yes                   going away: the server sent GOAWAY; broken
going away      no                    broken: the connection has ended
broken          no                    nothing
==============  ====================  ===============================================

Source: the gRPC protocol over HTTP/2, github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, and
http-grpc-status-mapping.md beside it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from .client_engine import (
    CANCEL,
    REFUSED_STREAM,
    ClientEngine,
    GoingAway,
    Headed,
    Ponged,
)
from .engine import ENHANCE_YOUR_CALM, Arrived, Broken, Closed, Headers
from .session import CallRefused, GrpcStatus, MessageReader, with_prefixes

ANSWER_SIZE_MAX: Final = 256 * 1024 * 1024
"""Bytes of one message of an answer. Messages come one by one, each of 4 MiB at most where a broker
has its default; brokers can be set to take longer ones."""

TEXT_MAX: Final = 2_000
"""Characters of a server's text that are kept."""

_TYPE_AT: Final = 3
_SETTINGS: Final = 4
"""Where a frame's type is, and that of a server's first frame. Source: RFC 9113, section 3.4."""

_TIMEOUT_UNITS: Final = ((1e3, "m"), (1.0, "S"), (1 / 60, "M"), (1 / 3600, "H"))
_TIMEOUT_DIGITS_MAX: Final = 99_999_999

_HTTP_STATUSES: Final = {
    b"400": GrpcStatus.INTERNAL,
    b"401": GrpcStatus.UNAUTHENTICATED,
    b"403": GrpcStatus.PERMISSION_DENIED,
    b"404": GrpcStatus.UNIMPLEMENTED,
    b"429": GrpcStatus.UNAVAILABLE,
    b"502": GrpcStatus.UNAVAILABLE,
    b"503": GrpcStatus.UNAVAILABLE,
    b"504": GrpcStatus.UNAVAILABLE,
}
_RESETS: Final = {
    REFUSED_STREAM: GrpcStatus.UNAVAILABLE,
    CANCEL: GrpcStatus.CANCELLED,
    ENHANCE_YOUR_CALM: GrpcStatus.RESOURCE_EXHAUSTED,
}


class ClientCall:
    """One call.

    Attributes:
      path: of its method, `/package.Service/Method`.
      stream_id: of its stream; None: it waits until the server lets another one be open.
      has_ended: its answer has ended, or it was cancelled.
    """

    __slots__ = (
        "ends",
        "has_ended",
        "headers",
        "is_grpc",
        "path",
        "reader",
        "stream_id",
        "waiting",
    )

    def __init__(self, path: str, headers: Headers) -> None:
        self.path = path
        self.headers = headers
        self.stream_id: int | None = None
        self.has_ended = False
        self.is_grpc = False  # the headers of its answer have come
        self.reader = MessageReader()
        # What is to be sent when it has a stream.
        self.waiting: list[bytes] = []
        self.ends = False

    def __repr__(self) -> str:
        return f"<ClientCall {self.stream_id} {self.path}>"


class Replied(NamedTuple):
    """A message of an answer."""

    call: ClientCall
    message: bytes


class Ended(NamedTuple):
    """A call has ended, as the server says, or because it cannot go on."""

    call: ClientCall
    status: GrpcStatus
    text: str


ClientSessionEvent: TypeAlias = Replied | Ended | Ponged


class GrpcClientSession:
    """The calls of one connection.

    Args:
      engine: of the connection; new.
      authority: `host:port` of the server.
      scheme: "http", or "https" with TLS.
      message_size_max: bytes of a message of an answer.

    Attributes:
      going_away: why the server takes no more calls; None: it does.
      broken: the reason why the connection is over; None: it is not.
    """

    def __init__(
        self,
        engine: ClientEngine,
        authority: str,
        *,
        scheme: str = "http",
        message_size_max: int = ANSWER_SIZE_MAX,
    ) -> None:
        self.going_away: str | None = None
        self.broken: str | None = None
        self._engine = engine
        self._message_size_max = message_size_max
        self._by_stream: dict[int, ClientCall] = {}
        self._waiting: deque[ClientCall] = deque()
        self._events: list[ClientSessionEvent] = []
        self._head = b""  # what came first
        self._start = (
            (b":method", b"POST"),
            (b":scheme", scheme.encode()),
            (b":authority", authority.encode()),
        )

    def __len__(self) -> int:
        """The calls that have not ended."""
        return len(self._by_stream) + len(self._waiting)

    # ---- calls ---------------------------------------------------------------------------

    def call(
        self,
        path: str,
        metadata: Headers,
        *messages: bytes,
        timeout_s: float | None = None,
        ends: bool = True,
    ) -> ClientCall:
        """Begin a call.

        Where the server lets no more be open, it waits. Where there will be no more, its `Ended` is
        among the next events.

        Args:
          metadata: further headers; names in lower case.
          messages: those that are sent at once.
          timeout_s: how long the server may take; None: as long as it likes.
          ends: there are no further messages.
        """
        headers = [*self._start, (b":path", path.encode()), *_USUAL]
        if timeout_s is not None:
            headers.append((b"grpc-timeout", timeout_text(timeout_s).encode()))
        call = ClientCall(path, (*headers, *metadata))
        call.waiting = [with_prefixes(messages)] if messages else []
        call.ends = ends
        if self.going_away is not None or self.broken is not None:
            self._end(call, GrpcStatus.UNAVAILABLE, self.broken or self.going_away or "")
        else:
            self._waiting.append(call)
            self._open_waiting()
        return call

    def send(self, call: ClientCall, *messages: bytes, ends: bool = False) -> None:
        """Send further messages; `ends`: the last ones."""
        if call.has_ended:
            return
        data = with_prefixes(messages)
        if call.stream_id is None:
            call.waiting.append(data)
            call.ends = call.ends or ends
        else:
            self._engine.send(call.stream_id, data, ends=ends)

    def cancel(self, call: ClientCall) -> None:
        """Give a call up; nothing more is said about it."""
        if call.has_ended:
            return
        call.has_ended = True
        if call.stream_id is None:
            self._waiting.remove(call)
        else:
            del self._by_stream[call.stream_id]
            self._engine.reset(call.stream_id)
            self._open_waiting()

    def ping(self) -> None:
        """Ask the server for a `Ponged`."""
        self._engine.ping()

    def _open_waiting(self) -> None:
        while self._waiting and len(self._by_stream) < self._engine.streams_max:
            call = self._waiting[0]
            stream_id = self._engine.request(call.headers)
            if stream_id is None:
                # The numbers of streams are used up, or the connection is about to end.
                self._go_away("no more calls can be made on this connection")
                return
            self._waiting.popleft()
            call.stream_id = stream_id
            call.headers = ()
            self._by_stream[stream_id] = call
            data, call.waiting = b"".join(call.waiting), []
            self._engine.send(stream_id, data, ends=call.ends)

    # ---- bytes ---------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[ClientSessionEvent]:
        """The events of received bytes. It never raises because of them."""
        if len(self._head) <= _TYPE_AT:
            # An engine would wait for the end of what it takes for a long frame.
            self._head += data[: _TYPE_AT + 1]
            if len(self._head) > _TYPE_AT and self._head[_TYPE_AT] != _SETTINGS:
                self._break("the peer does not speak HTTP/2, and so no gRPC")
        if self.broken is not None:
            return self.events()
        for event in self._engine.receive(data):
            match event:
                case Headed():
                    self._take_headers(event)
                case Arrived():
                    self._take_data(event)
                case Closed():
                    self._take_close(event)
                case GoingAway():
                    self._take_going_away(event)
                case Ponged():
                    self._events.append(event)
                case Broken():
                    self._break(event.reason)
        self._open_waiting()
        return self.events()

    def events(self) -> list[ClientSessionEvent]:
        """The events since the last call of this method, or of `receive`."""
        events, self._events = self._events, []
        return events

    @property
    def has_events(self) -> bool:
        """Whether `events` has any."""
        return bool(self._events)

    def output(self) -> bytes:
        """The bytes to send now; after them the connection may be `broken`."""
        data, broken = self._engine.output()
        if broken is not None:
            self._break(broken.reason)
        return data

    @property
    def queued_size(self) -> int:
        """Bytes of requests that the server's windows hold back, or that wait for a stream."""
        waiting = sum(len(data) for call in self._waiting for data in call.waiting)
        return waiting + self._engine.queued_size

    # ---- answers -------------------------------------------------------------------------

    def _take_headers(self, event: Headed) -> None:
        call = self._by_stream.get(event.stream_id)
        if call is None:
            return
        headers = dict(event.headers)
        if not call.is_grpc:
            http_status = headers.get(b":status", b"")
            if http_status[:1] == b"1":  # informational: the answer follows
                return
            content_type = headers.get(b"content-type", b"")
            if http_status != b"200" or not content_type.startswith(b"application/grpc"):
                status = _HTTP_STATUSES.get(http_status, GrpcStatus.UNKNOWN)
                text = f"HTTP status {_text(http_status)}, content type {_text(content_type)!r}"
                self._fail(call, status, f"the answer is not gRPC: {text}")
                return
            call.is_grpc = True
            if headers.get(b"grpc-encoding", b"identity") != b"identity":
                self._fail(call, GrpcStatus.INTERNAL, "the answer is compressed")
                return
        if event.ends:
            self._finish(call, headers)

    def _finish(self, call: ClientCall, headers: Mapping[bytes, bytes]) -> None:
        """End a call by the status in its trailers, or in the headers of an answer without any."""
        code = headers.get(b"grpc-status", b"")
        text = _text(unquote_to_bytes(headers.get(b"grpc-message", b"")))
        if not code.isdigit() or len(code) > 2:
            self._end(
                call, GrpcStatus.UNKNOWN, f"the answer has no status of gRPC: {_text(code)!r}"
            )
            return
        try:
            status = GrpcStatus(int(code))
        except ValueError:
            status, text = GrpcStatus.UNKNOWN, f"status {int(code)}: {text}"
        if status is GrpcStatus.OK and call.reader.held_size:
            status, text = GrpcStatus.INTERNAL, "the answer ends within a message"
        self._end(call, status, text)

    def _take_data(self, event: Arrived) -> None:
        call = self._by_stream.get(event.stream_id)
        if call is None:
            return
        if not call.is_grpc:
            self._fail(call, GrpcStatus.INTERNAL, "the answer has no headers")
            return
        try:
            for message in call.reader.take(event.data, self._message_size_max):
                self._events.append(Replied(call, message))
        except CallRefused as refused:
            self._fail(call, refused.status, f"the answer has {refused}")
            return
        if event.ends:
            self._end(call, GrpcStatus.UNKNOWN, "the answer ended without a status")

    def _take_close(self, event: Closed) -> None:
        call = self._by_stream.get(event.stream_id)
        if call is not None:
            status = _RESETS.get(event.error_code, GrpcStatus.INTERNAL)
            text = f"the server reset the call with HTTP/2 error {event.error_code}"
            self._end(call, status, text)

    def _take_going_away(self, event: GoingAway) -> None:
        said = f": {event.text[:TEXT_MAX]}" if event.text else ""
        self._go_away(f"the server takes no more calls (GOAWAY {event.error_code}{said})")
        for stream_id, call in list(self._by_stream.items()):
            if stream_id > event.last_stream_id:
                self._end(call, GrpcStatus.UNAVAILABLE, self.going_away or "")

    def _go_away(self, reason: str) -> None:
        if self.going_away is None:
            self.going_away = reason
        for call in list(self._waiting):
            self._end(call, GrpcStatus.UNAVAILABLE, reason)

    def _fail(self, call: ClientCall, status: GrpcStatus, text: str) -> None:
        """End a call whose answer cannot be read further."""
        if call.stream_id is not None:
            self._engine.reset(call.stream_id)
        self._end(call, status, text)

    def _end(self, call: ClientCall, status: GrpcStatus, text: str) -> None:
        call.has_ended = True
        if call.stream_id is not None:
            self._by_stream.pop(call.stream_id, None)
        elif call in self._waiting:
            self._waiting.remove(call)
        self._events.append(Ended(call, status, text[:TEXT_MAX]))

    def _break(self, reason: str) -> None:
        if self.broken is None:
            self.broken = reason
            for call in (*self._by_stream.values(), *self._waiting):
                self._events.append(Ended(call, GrpcStatus.UNAVAILABLE, reason))
                call.has_ended = True
            self._by_stream.clear()
            self._waiting.clear()


_USUAL: Final = (
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
    (b"user-agent", b"grpc-python-trocket/1"),
)


def timeout_text(seconds: float) -> str:
    """A `grpc-timeout`: at most eight digits and a unit, rounded up.

    Args:
      seconds: > 0; what is longer than 99,999,999 hours is that long.
    """
    for factor, unit in _TIMEOUT_UNITS:
        count = max(math.ceil(seconds * factor), 1) if math.isfinite(seconds) else math.inf
        if count <= _TIMEOUT_DIGITS_MAX:
            return f"{count}{unit}"
    return f"{_TIMEOUT_DIGITS_MAX}H"


def _text(raw: bytes) -> str:
    return raw[: TEXT_MAX * 4].decode("utf-8", "replace")
