"""The calls of one gRPC connection, without its socket: requests in, answers out.

Above an HTTP/2 engine this has what gRPC adds: the five bytes before each message, deadlines,
statuses in trailers, and the refusal of what is no call.

Source: the gRPC protocol over HTTP/2, github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from .engine import Arrived, Broken, Closed, Engine, Headers, Opened

MESSAGE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of one message: as a frame of remoting. Apache's proxy takes 130 MiB
(grpcMaxInboundMessageSize), of which no request needs more than a batch of messages."""

PREFIX_SIZE: Final = 5
_TIMEOUT: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

_CONTENT_TYPES: Final = (b"application/grpc", b"application/grpc+proto")
_HEADERS: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))
_OK: Final = ((b"grpc-status", b"0"),)
_NOT_GRPC: Final = ((b":status", b"415"), (b"content-type", b"text/plain"))
_NOT_POST: Final = ((b":status", b"405"), (b"allow", b"POST"))


class GrpcStatus(enum.IntEnum):
    """How a call ended, as gRPC says it; errors of RocketMQ are in the answer's message.

    Source: github.com/grpc/grpc/blob/master/doc/statuscodes.md.
    """

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class Metadata(Mapping[str, str]):
    """The headers of a call by name, in lower case, each decoded when it is asked for.

    HTTP/2's own (`:path` and the like) and binary ones (`-bin`) are none of them.
    """

    __slots__ = ("_headers",)

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        if _is_hidden(name):
            raise KeyError(name)
        return self._headers[name.encode()].decode("utf-8", "replace")

    def get(self, name: str, default: Any = None) -> Any:
        """A header, or the default. It costs a third of what it would without this method."""
        value = self._headers.get(name.encode())
        return default if value is None or _is_hidden(name) else value.decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        names = (name.decode("ascii", "replace") for name in self._headers)
        return (name for name in names if not _is_hidden(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_hidden(name: str) -> bool:
    return name[:1] == ":" or name[-4:] == "-bin"


class Call:
    """One call.

    Attributes:
      stream_id: of its stream.
      path: of its method, `/package.Service/Method`.
      metadata: its headers.
      timeout_s: how long the client waits, from the call's begin on; None: as long as it takes.
      message_count: how many of its messages have arrived.
      has_ended: the client has sent all its messages.
      is_answered: its answer has ended; nothing more can be sent.
    """

    __slots__ = (
        "_parts",
        "_size",
        "_wanted",
        "has_begun",
        "has_ended",
        "is_answered",
        "message_count",
        "metadata",
        "path",
        "stream_id",
        "timeout_s",
    )

    def __init__(self, stream_id: int, path: str, metadata: Mapping[str, str]) -> None:
        self.stream_id = stream_id
        self.path = path
        self.metadata = metadata
        self.timeout_s: float | None = None
        self.message_count = 0
        self.has_begun = self.has_ended = self.is_answered = False
        # The bytes of a message that is not complete, and the size at which it is looked at again.
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = PREFIX_SIZE

    def __repr__(self) -> str:
        return f"<Call {self.stream_id} {self.path}>"

    @property
    def held_size(self) -> int:
        """Bytes of its incomplete message."""
        return self._size

    def take(self, data: bytes, size_max: int) -> Iterator[bytes]:
        """Cut the messages out of a part of the request's body.

        Raises: CallRefused: a message is compressed, or longer than `size_max`.
        """
        if self._parts:
            self._parts.append(data)
            self._size += len(data)
            # Joined once for each message, however many parts it comes in.
            if self._size < self._wanted:
                return
            data, self._parts, self._size = b"".join(self._parts), [], 0
        position, end = 0, len(data)
        self._wanted = PREFIX_SIZE
        while end - position >= PREFIX_SIZE:
            size = int.from_bytes(data[position + 1 : position + PREFIX_SIZE], "big")
            if data[position]:
                raise CallRefused(
                    GrpcStatus.UNIMPLEMENTED,
                    "compressed messages are not read: send them with grpc-encoding identity",
                )
            if size > size_max:
                raise CallRefused(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"a message of {size} bytes; at most {size_max} are read",
                )
            if end - position < PREFIX_SIZE + size:
                self._wanted = PREFIX_SIZE + size
                break
            position += PREFIX_SIZE + size
            yield data[position - size : position]
        if position < end:
            self._parts, self._size = [data[position:]], end - position


class CallRefused(Exception):
    """A call ends with a status of gRPC instead of an answer."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Asked(NamedTuple):
    """A message of a request."""

    call: Call
    message: bytes


class HalfClosed(NamedTuple):
    """The client has sent all messages of a stream whose answer has not ended."""

    call: Call


class Cancelled(NamedTuple):
    """The client has given a call up, before its answer had ended."""

    call: Call


SessionEvent: TypeAlias = Asked | HalfClosed | Cancelled


class GrpcSession:
    """The calls of one connection.

    Args:
      engine: of the connection; new.
      paths: of the methods that are served.
      streams: of those to which a client may send several messages.
      message_size_max: bytes.

    Attributes:
      calls: by stream id; those whose request or answer has not ended, STREAMS_MAX of them at most.
      broken: the reason why the connection is over; None: it is not.
    """

    def __init__(
        self,
        engine: Engine,
        paths: Collection[str],
        *,
        streams: Collection[str] = (),
        message_size_max: int = MESSAGE_SIZE_MAX,
    ) -> None:
        self.calls: dict[int, Call] = {}
        self.broken: str | None = None
        self._engine = engine
        self._paths, self._streams = paths, streams
        self._message_size_max = message_size_max

    def receive(self, data: bytes) -> list[SessionEvent]:
        """The events of received bytes. It never raises because of them."""
        events: list[SessionEvent] = []
        for event in self._engine.receive(data):
            match event:
                case Opened():
                    self._open(event, events)
                case Arrived():
                    call = self.calls.get(event.stream_id)
                    if call is not None and not call.is_answered:
                        self._take(call, event.data, ends=event.ends, events=events)
                    elif call is not None and event.ends:
                        del self.calls[event.stream_id]
                case Closed():
                    call = self.calls.pop(event.stream_id, None)
                    if call is not None and not call.is_answered:
                        call.is_answered = True
                        events.append(Cancelled(call))
                case Broken():
                    self._break(event, events)
        return events

    def output(self) -> tuple[bytes, list[SessionEvent]]:
        """The bytes to send now, and what became of calls if the connection is over after them."""
        data, broken = self._engine.output()
        events: list[SessionEvent] = []
        if broken is not None:
            self._break(broken, events)
        return data, events

    @property
    def held_size(self) -> int:
        """Bytes of incomplete messages, and of answers that the client's windows hold back."""
        held = sum(call.held_size for call in self.calls.values())
        return held + self._engine.queued_size

    # ---- answers -------------------------------------------------------------------------

    def answer(self, call: Call, *messages: bytes) -> None:
        """Send an answer of these messages, and end it."""
        if not call.is_answered:
            self.send(call, *messages)
            self._end(call, _OK)

    def send(self, call: Call, *messages: bytes) -> None:
        """Send messages of an answer that goes on."""
        if call.is_answered:
            return
        if not call.has_begun:
            call.has_begun = True
            self._engine.respond(call.stream_id, _HEADERS)
        self._engine.send(call.stream_id, with_prefixes(messages))

    def finish(self, call: Call, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End an answer, whether or not it has begun."""
        if call.is_answered:
            return
        trailers = _OK if status is GrpcStatus.OK else _trailers(status, text)
        if call.has_begun:
            self._end(call, trailers)
        else:
            self._engine.respond(call.stream_id, (*_HEADERS, *trailers), ends=True)
            self._answered(call)

    def _end(self, call: Call, trailers: Headers) -> None:
        self._engine.finish(call.stream_id, trailers)
        self._answered(call)

    def _answered(self, call: Call) -> None:
        call.is_answered = True
        if call.has_ended:  # otherwise the rest of its request is still to come, and is dropped
            self.calls.pop(call.stream_id, None)

    # ---- requests ------------------------------------------------------------------------

    def _open(self, opened: Opened, events: list[SessionEvent]) -> None:
        headers = dict(opened.headers)
        path = headers.get(b":path", b"").decode("ascii", "backslashreplace")
        if headers.get(b":method") != b"POST":
            self._engine.respond(opened.stream_id, _NOT_POST, ends=True)
            return
        if headers.get(b"content-type", b"").partition(b";")[0] not in _CONTENT_TYPES:
            self._engine.respond(opened.stream_id, _NOT_GRPC, ends=True)
            return
        call = Call(opened.stream_id, path, Metadata(headers))
        self.calls[opened.stream_id] = call
        try:
            call.timeout_s = _timeout_s(call.metadata.get("grpc-timeout"))
            if path not in self._paths:
                raise CallRefused(GrpcStatus.UNIMPLEMENTED, f"there is no method {path[:200]}")
            encoding = call.metadata.get("grpc-encoding", "identity")
            if encoding != "identity":
                raise CallRefused(
                    GrpcStatus.UNIMPLEMENTED, f"grpc-encoding {encoding[:50]} is not read"
                )
        except CallRefused as refused:
            call.has_ended = opened.ends
            self.finish(call, refused.status, str(refused))
            return
        if opened.ends:
            self._take(call, b"", ends=True, events=events)

    def _take(self, call: Call, data: bytes, *, ends: bool, events: list[SessionEvent]) -> None:
        call.has_ended = call.has_ended or ends
        is_stream, count = call.path in self._streams, len(events)
        try:
            for message in call.take(data, self._message_size_max):
                call.message_count += 1
                if call.message_count > 1 and not is_stream:
                    raise CallRefused(GrpcStatus.INTERNAL, "the request has more than one message")
                events.append(Asked(call, message))
            if ends and call.held_size:
                raise CallRefused(GrpcStatus.INTERNAL, "the request ends within a message")
            if ends and not call.message_count and not is_stream:
                raise CallRefused(GrpcStatus.INTERNAL, "the request has no message")
        except CallRefused as refused:
            del events[count:]
            if call.message_count > 1 or is_stream:
                events.append(Cancelled(call))
            self.finish(call, refused.status, str(refused))
            return
        if ends and is_stream:
            events.append(HalfClosed(call))

    def _break(self, broken: Broken, events: list[SessionEvent]) -> None:
        if self.broken is None:
            self.broken = broken.reason
            for call in self.calls.values():
                if not call.is_answered:
                    call.is_answered = True
                    events.append(Cancelled(call))
            self.calls.clear()


def with_prefixes(messages: Sequence[bytes]) -> bytes:
    """Messages as they are sent: each after a zero, for uncompressed, and its size in 4 bytes."""
    return b"".join([b"\0" + len(each).to_bytes(4, "big") + each for each in messages])


def _timeout_s(text: str | None) -> float | None:
    """The seconds of a `grpc-timeout`.

    Raises: CallRefused: it is none.
    """
    if text is None:
        return None
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise CallRefused(GrpcStatus.INTERNAL, f"{text[:50]!r} is no grpc-timeout")
    return int(found[1]) * _UNITS_S[found[2]]


def _trailers(status: GrpcStatus, text: str) -> Headers:
    """Trailers with a status; the text is percent-encoded outside of printable ASCII."""
    encoded = b"".join(
        bytes((byte,)) if 0x20 <= byte < 0x7F and byte != 0x25 else b"%%%02X" % byte
        for byte in text.encode("utf-8", "surrogatepass")
    )
    return ((b"grpc-status", b"%d" % status), (b"grpc-message", encoded))
