"""The calls of one gRPC connection, without its socket: requests in, answers out.

Above an HTTP/2 engine this has what gRPC adds: the five bytes before each message, deadlines,
statuses in trailers, and the refusal of what is no call.

Source: the gRPC protocol over HTTP/2, github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import enum
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from .engine import Arrived, Broken, Closed, Engine, Headers, Opened

MESSAGE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of one message: as a frame of remoting. Apache's proxy takes 130 MiB
(grpcMaxInboundMessageSize), of which no request needs more than a batch of messages."""

PREFIX_SIZE: Final = 5
_TIMEOUT: Final = re.compile(rb"[0-9]{1,8}[HMSmun]")
_UNITS_S: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}

_USUAL_TYPE: Final = b"application/grpc"
_CONTENT_TYPE: Final = re.compile(rb"application/grpc(?:[+;].*)?", re.DOTALL)
_ENCODINGS: Final = (b"identity", b"gzip")
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_HEADERS: Final = ((b":status", b"200"), (b"content-type", b"application/grpc"))
_OK: Final = ((b"grpc-status", b"0"),)
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_NOT_GRPC: Final = ((b":status", b"415"), _TEXT)
_NOT_POST: Final = ((b":status", b"405"), _TEXT, (b"allow", b"POST"))


class GrpcStatus(enum.IntEnum):
    """How a call ended, as gRPC says it; errors of RocketMQ are in the answer's message.

    Source: github.com/grpc/grpc/blob/master/doc/statuscodes.md.
    """

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Metadata(Mapping[str, str]):
    """The headers of a call by name, in lower case, each decoded when it is asked for.

    HTTP/2's own (`:path` and the like) and binary ones (`-bin`) are none of them.
    """

    __slots__ = ("_headers",)

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return str(value)

    def get(self, name: str, default: Any = None) -> Any:
        """A header, or the default."""
        value = self._headers.get(name.encode())
        if value is None or _is_hidden(name):
            return default
        return value.decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        names = (name.decode("ascii", "replace") for name in self._headers)
        return (name for name in names if not _is_hidden(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_hidden(name: str) -> bool:
    return name[:1] == ":" or name[-4:] == "-bin"


class MessageReader:
    """Cuts the messages out of the parts of a body.

    Attributes:
      is_gzipped: its messages may be compressed.
      is_compressed: the message that `take` gave last is.
    """

    __slots__ = ("_parts", "_size", "_wanted", "is_compressed", "is_gzipped")

    def __init__(self) -> None:
        self.is_gzipped = self.is_compressed = False
        # The bytes of a message that is not complete, and the size at which it is looked at again.
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = PREFIX_SIZE

    @property
    def held_size(self) -> int:
        """Bytes of the incomplete message."""
        return self._size

    def take(self, data: bytes, size_max: int) -> Iterator[bytes]:
        """The messages that a part of the body completes.

        Raises: CallRefused: a message is compressed in a call that said nothing of it, or longer
          than `size_max`.
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
                if data[position] > 1 or not self.is_gzipped:
                    text = "the message is compressed, and the call has no grpc-encoding"
                    raise CallRefused(GrpcStatus.INTERNAL, text)
                self.is_compressed = True
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


class Call(MessageReader):
    """One call, and the reader of its request: a second object would cost each call.

    Attributes:
      stream_id: of its stream.
      path: of its method, `/package.Service/Method`.
      headers: as they were received.
      message_count: how many of its messages have arrived.
      has_ended: the client has sent all its messages.
      is_answered: its answer has ended; nothing more can be sent.
    """

    __slots__ = (
        "has_begun",
        "has_ended",
        "headers",
        "is_answered",
        "message_count",
        "path",
        "stream_id",
    )

    def __init__(self, stream_id: int, path: str, headers: Mapping[bytes, bytes]) -> None:
        super().__init__()
        self.stream_id = stream_id
        self.path = path
        self.headers = headers
        self.message_count = 0
        self.has_begun = self.has_ended = self.is_answered = False

    def __repr__(self) -> str:
        return f"<Call {self.stream_id} {self.path}>"

    @property
    def metadata(self) -> Mapping[str, str]:
        """Its headers, as text."""
        return Metadata(self.headers)

    @property
    def timeout_s(self) -> float | None:
        """How long the client waits, from the call's begin on; None: as long as it takes."""
        timeout = self.headers.get(b"grpc-timeout")
        return None if timeout is None else int(timeout[:-1]) * _UNITS_S[timeout[-1:]]

    def only_message(self, data: bytes, size_max: int) -> bytes | None:
        """The message of a body that is nothing else and came in one part; None: it is not so."""
        if self._parts or self.message_count or len(data) < PREFIX_SIZE or data[0]:
            return None
        size = int.from_bytes(data[1:PREFIX_SIZE], "big")
        if size > size_max or size != len(data) - PREFIX_SIZE:
            return None
        self.message_count = 1
        return data[PREFIX_SIZE:]


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
        self._inflated_size = 0
        self._incomplete: set[Call] = set()  # a message of theirs has arrived in part

    def receive(self, data: bytes) -> list[SessionEvent]:
        """The events of received bytes. It never raises because of them."""
        self._inflated_size = 0
        events: list[SessionEvent] = []
        for event in self._engine.receive(data):
            if isinstance(event, Opened):
                self._open(event, events)
            elif isinstance(event, Arrived):
                call = self.calls.get(event.stream_id)
                if call is not None and not call.is_answered:
                    self._take(call, event.data, ends=event.ends, events=events)
                elif call is not None and event.ends:
                    self._forget(call)
            elif isinstance(event, Closed):
                call = self.calls.get(event.stream_id)
                if call is not None:
                    self._forget(call)
                    if not call.is_answered:
                        call.is_answered = True
                        events.append(Cancelled(call))
            else:
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
        held = sum([call.held_size for call in self._incomplete]) if self._incomplete else 0
        return held + self._engine.queued_size

    # ---- answers -------------------------------------------------------------------------

    def answer(self, call: Call, *messages: bytes) -> None:
        """Send an answer of these messages, and end it."""
        if call.is_answered:
            return
        if call.has_begun:
            self.send(call, *messages)
            self._end(call, _OK)
        else:
            self._engine.answer(call.stream_id, _HEADERS, with_prefixes(messages), _OK)
            self._answered(call)

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

    def _forget(self, call: Call) -> None:
        self.calls.pop(call.stream_id, None)
        if self._incomplete:
            self._incomplete.discard(call)

    def _answered(self, call: Call) -> None:
        call.is_answered = True
        if call.has_ended:  # otherwise the rest of its request is still to come, and is dropped
            self._forget(call)

    # ---- requests ------------------------------------------------------------------------

    def _open(self, opened: Opened, events: list[SessionEvent]) -> None:
        headers = dict(opened.headers)
        method = headers.get(b":method", b"")
        if method != b"POST":
            self._refuse(opened, _NOT_POST, b"Method '%b' is not supported" % method[:50])
            return
        content_type = headers.get(b"content-type")
        if content_type != _USUAL_TYPE and (
            content_type is None or not _CONTENT_TYPE.fullmatch(content_type)
        ):
            wrong = b"Content-Type is missing from the request"
            if content_type is not None:
                wrong = b"Content-Type '%b' is not supported" % content_type[:50]
            self._refuse(opened, _NOT_GRPC, wrong)
            return
        path = headers.get(b":path", b"").decode("ascii", "backslashreplace")
        call = self.calls[opened.stream_id] = Call(opened.stream_id, path, headers)
        refused = self._refusal(path, headers)
        call.is_gzipped = headers.get(b"grpc-encoding") == b"gzip"
        if refused is not None:
            call.has_ended = opened.ends
            self.finish(call, refused.status, str(refused))
        elif opened.ends:
            self._take(call, b"", ends=True, events=events)

    def _refusal(self, path: str, headers: Mapping[bytes, bytes]) -> CallRefused | None:
        """Why a call is not served, by its headers; None: it is."""
        timeout = headers.get(b"grpc-timeout")
        if timeout is not None and _TIMEOUT.fullmatch(timeout) is None:
            shown = timeout.decode("utf-8", "replace")[:50]
            return CallRefused(GrpcStatus.INTERNAL, f"{shown!r} is no grpc-timeout")
        if path not in self._paths:
            text = f"Method not found: {path.removeprefix('/')[:200]}"
            return CallRefused(GrpcStatus.UNIMPLEMENTED, text.rstrip())
        encoding = headers.get(b"grpc-encoding", b"identity")
        if encoding not in _ENCODINGS:
            shown = encoding.decode("utf-8", "replace")[:50]
            return CallRefused(GrpcStatus.UNIMPLEMENTED, f"Can't find decompressor for {shown}")
        return None

    def _refuse(self, opened: Opened, headers: Headers, text: bytes) -> None:
        """Answer what is no call of gRPC with a status of HTTP."""
        more = _trailers(GrpcStatus.INTERNAL, text.decode("utf-8", "replace"))
        self._engine.respond(opened.stream_id, (*headers, *more), ends=True)

    def _inflate(self, data: bytes) -> bytes:
        """A message that was compressed by gzip. What one `receive` inflates is limited as the size
        of one message is, so that a few bytes do not fill memory.

        Raises: CallRefused: it is no gzip, or too large.
        """
        room = self._message_size_max - self._inflated_size
        inflater = zlib.decompressobj(_GZIP_WINDOW)
        try:
            message = inflater.decompress(data, room + 1)
        except zlib.error as error:
            raise CallRefused(GrpcStatus.INTERNAL, f"the message is no gzip: {error}") from error
        if len(message) > room:
            text = f"compressed messages of more than {self._message_size_max} bytes are not read"
            raise CallRefused(GrpcStatus.RESOURCE_EXHAUSTED, text)
        if not inflater.eof:
            raise CallRefused(GrpcStatus.INTERNAL, "the compressed message is cut off")
        self._inflated_size += len(message)
        return message

    def _take(self, call: Call, data: bytes, *, ends: bool, events: list[SessionEvent]) -> None:
        is_stream = call.path in self._streams
        if ends:
            call.has_ended = True
            only = None if is_stream else call.only_message(data, self._message_size_max)
            if only is not None:
                events.append(Asked(call, only))
                return
        count = len(events)
        self._incomplete.add(call)
        try:
            for taken in call.take(data, self._message_size_max):
                message = taken
                call.message_count += 1
                if call.message_count > 1 and not is_stream:
                    raise CallRefused(GrpcStatus.INTERNAL, "Too many requests")
                if call.is_compressed:
                    call.is_compressed = False
                    message = self._inflate(message)
                events.append(Asked(call, message))
            if ends and call.held_size:
                raise CallRefused(GrpcStatus.INTERNAL, "the request ends within a message")
            if ends and not call.message_count and not is_stream:
                raise CallRefused(GrpcStatus.INTERNAL, "Half-closed without a request")
        except CallRefused as refused:
            del events[count:]
            if call.message_count > 1 or is_stream:
                events.append(Cancelled(call))
            self._incomplete.discard(call)
            self.finish(call, refused.status, str(refused))
            return
        if not call.held_size:
            self._incomplete.discard(call)
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
            self._incomplete.clear()


def with_prefixes(messages: Sequence[bytes]) -> bytes:
    """Messages as they are sent: each after a zero, for uncompressed, and its size in 4 bytes."""
    if len(messages) == 1:
        return b"\0%b%b" % (len(messages[0]).to_bytes(4, "big"), messages[0])
    return b"".join([b"\0" + len(each).to_bytes(4, "big") + each for each in messages])


def _trailers(status: GrpcStatus, text: str) -> Headers:
    """Trailers with a status; the text is percent-encoded outside of printable ASCII."""
    encoded = b"".join(
        bytes((byte,)) if 0x20 <= byte < 0x7F and byte != 0x25 else b"%%%02X" % byte
        for byte in text.encode("utf-8", "surrogatepass")
    )
    return ((b"grpc-status", b"%d" % status), (b"grpc-message", encoded))
