"""Engine: the part of an HTTP/2 implementation that a session needs, six methods, four events.

Two implementations: `engine_ngh2`, over libnghttp2, and `engine_h2`, pure Python, where the first
cannot be installed. Both serve, and both cut off a peer that floods them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Names in lower case, and values; pseudo-headers such as `:path` first."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of each connection. Source: RFC 9113, section 3.4."""

STREAMS_MAX: Final = 4_096
"""Streams of one connection that may be open. Each queue that a consumer waits for holds one for
20 s, so the 100 that HTTP/2 servers usually announce would make clients wait in silence. An idle
stream takes 1 KiB."""

STREAM_WINDOW: Final = 1024 * 1024
"""Bytes of a request that a client may send before the server has read any; 64 KiB, the default of
HTTP/2, would make a body of 4 MiB wait for 64 round trips."""

CONNECTION_WINDOW: Final = 16 * 1024 * 1024

HEADERS_SIZE_MAX: Final = 16 * 1024
"""Bytes of one request's headers, each counted with 32 more. RocketMQ's clients send 1 KiB."""

HEADERS_COUNT_MAX: Final = 100

ENHANCE_YOUR_CALM: Final = 0xB
"""An error code of HTTP/2. Source: RFC 9113, section 7."""

NOISE_MAX: Final = 1_000
"""Frames that belong to no answered call (PING, SETTINGS, resets, empty DATA and the like), after
which a connection is ended. Each answered call makes up for `NOISE_PER_CALL` of them, as Java's
client sends a PING after nearly every read, and each read for one, as clients send a PING now and
then when nothing else is to be sent."""

NOISE_PER_CALL: Final = 10

NOISE_OF_RESET: Final = 2
"""A reset counts twice: one in each read is a flood, too, since each begins a call."""


class Noise:
    """Counts the frames of a connection that are no calls."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, count: int = 1) -> None:
        """Count frames that are no calls."""
        self.count += count

    def allow(self, count: int = 1) -> None:
        """Let as many frames be."""
        self.count = max(self.count - count, 0)

    @property
    def is_too_much(self) -> bool:
        """Whether the connection has to be ended."""
        return self.count > NOISE_MAX


class Opened(NamedTuple):
    """A request's headers; `ends`: it has no body."""

    stream_id: int
    headers: Headers
    ends: bool


class Arrived(NamedTuple):
    """A part of a request's body; `ends`: the last one."""

    stream_id: int
    data: bytes
    ends: bool


class Closed(NamedTuple):
    """A stream was reset, or its connection lost; one that ended as it should may be missing."""

    stream_id: int
    error_code: int


class Broken(NamedTuple):
    """The connection has ended, or has to: after the rest of `output` it is closed."""

    reason: str


Event: TypeAlias = Opened | Arrived | Closed | Broken


class Engine(Protocol):
    """One connection of a server. No method raises because of what the peer sent, or did not."""

    def receive(self, data: bytes) -> list[Event]:
        """The events of received bytes; nothing after `Broken`."""

    def answer(self, stream_id: int, headers: Headers, data: bytes, trailers: Headers) -> None:
        """Queue a whole answer."""

    def respond(self, stream_id: int, headers: Headers, *, ends: bool = False) -> None:
        """Queue an answer's headers; `ends`: it is nothing but these."""

    def send(self, stream_id: int, data: bytes) -> None:
        """Queue a part of an answer's body; it leaves as the peer's windows allow."""

    def finish(self, stream_id: int, trailers: Headers) -> None:
        """Queue the end of an answer."""

    def output(self) -> tuple[bytes, Broken | None]:
        """The bytes to send now, and whether the connection is over after them."""

    @property
    def queued_size(self) -> int:
        """Bytes of bodies that the peer's windows hold back."""
