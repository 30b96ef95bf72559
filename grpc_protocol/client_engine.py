"""ClientEngine: the part of an HTTP/2 implementation that a client's session needs.

The mirror image of `engine`: two implementations, `client_ngh2` and `client_h2`, of which the
second is pure Python. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeAlias

from .engine import Arrived, Broken, Closed, Headers

STREAMS_BEFORE_SETTINGS: Final = 100
"""Streams that a client opens before the server's settings have come. RFC 9113, section 6.5.2,
recommends that servers allow as many."""

CANCEL: Final = 0x8
"""The error code of a stream that is given up. Source: RFC 9113, section 7."""

REFUSED_STREAM: Final = 0x7
"""The error code of a stream of which the server has processed nothing."""

NO_ERROR: Final = 0x0


class Headed(NamedTuple):
    """An answer's headers, or its trailers; `ends`: nothing follows."""

    stream_id: int
    headers: Headers
    ends: bool


class GoingAway(NamedTuple):
    """The server takes no more streams; those above `last_stream_id` it has not processed."""

    last_stream_id: int
    error_code: int
    text: str


class Ponged(NamedTuple):
    """The answer to a ping."""


ClientEvent: TypeAlias = Headed | Arrived | Closed | GoingAway | Ponged | Broken


class ClientEngine(Protocol):
    """One connection of a client. No method raises because of what the peer sent, or did not."""

    def receive(self, data: bytes) -> list[ClientEvent]:
        """The events of received bytes; nothing after `Broken`."""

    def request(self, headers: Headers) -> int | None:
        """Queue a request's headers; returns its stream, None: no more can be opened.

        There are at most `streams_max` at a time, which the caller counts.
        """

    def send(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        """Queue a part of a request's body; it leaves as the peer's windows allow."""

    def reset(self, stream_id: int) -> None:
        """Give up a stream, with the error code CANCEL."""

    def ping(self) -> None:
        """Ask for a `Ponged`."""

    def output(self) -> tuple[bytes, Broken | None]:
        """The bytes to send now, and whether the connection is over after them."""

    @property
    def streams_max(self) -> int:
        """Streams that the server lets be open."""

    @property
    def queued_size(self) -> int:
        """Bytes of bodies that the peer's windows hold back."""
