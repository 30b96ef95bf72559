"""HTTP/2 by h2, in pure Python: where ngh2 has no wheel, and for TROCKET_PURE.

h2 serves a flood of SETTINGS, PING, resets or empty DATA for as long as it lasts, so the frames
that are no calls are counted here, and a connection with too many of them is ended.
"""

from __future__ import annotations

from contextlib import suppress

import h2.events
import h2.exceptions

from .engine import (
    ENHANCE_YOUR_CALM,
    NOISE_OF_RESET,
    NOISE_PER_CALL,
    STREAMS_MAX,
    Arrived,
    Closed,
    Event,
    Headers,
    Noise,
    Opened,
)
from .h2_connection import CODES, H2Connection, Outgoing


class H2Engine(H2Connection[Event]):
    """See `engine.Engine`."""

    def __init__(self) -> None:
        settings = {CODES.MAX_CONCURRENT_STREAMS: STREAMS_MAX, CODES.ENABLE_CONNECT_PROTOCOL: 0}
        super().__init__(client=False, settings=settings)
        # Streams whose request, or answer, has not ended.
        self._asking: set[int] = set()
        self._answering: set[int] = set()
        self._noise = Noise()

    def receive(self, data: bytes) -> list[Event]:
        self._noise.allow()
        events = super().receive(data)
        if self._noise.is_too_much and self._broken is None:
            self._connection.close_connection(ENHANCE_YOUR_CALM)
            events.append(self._break("too many frames that are no calls"))
        return events

    def _take(self, event: h2.events.Event, events: list[Event]) -> None:
        match event:
            case h2.events.RequestReceived():
                ends = event.stream_ended is not None
                self._answering.add(event.stream_id)
                if not ends:
                    self._asking.add(event.stream_id)
                events.append(Opened(event.stream_id, event.headers, ends))
            case h2.events.DataReceived():
                if event.flow_controlled_length:
                    self._connection.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                ends = event.stream_ended is not None
                self._noise.add(not event.data and not ends)
                if event.stream_id in self._asking:
                    events.append(Arrived(event.stream_id, event.data, ends))
                    if ends:
                        self._asking.remove(event.stream_id)
            case h2.events.TrailersReceived():
                if event.stream_id in self._asking:
                    events.append(Arrived(event.stream_id, b"", True))
                    self._asking.remove(event.stream_id)
            case h2.events.StreamReset():
                self._noise.add(NOISE_OF_RESET)
                self._outgoing.pop(event.stream_id, None)
                if event.stream_id in self._asking | self._answering:
                    self._asking.discard(event.stream_id)
                    self._answering.discard(event.stream_id)
                    events.append(Closed(event.stream_id, int(event.error_code or 0)))
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                self._noise.add(isinstance(event, h2.events.RemoteSettingsChanged))
                self._push_all()
            case h2.events.ConnectionTerminated():
                events.append(self._break(f"GOAWAY with error {int(event.error_code or 0)}"))
            case h2.events.StreamEnded():
                pass
            case _:
                self._noise.add()

    def answer(self, stream_id: int, headers: Headers, data: bytes, trailers: Headers) -> None:
        self.respond(stream_id, headers)
        self.send(stream_id, data)
        self.finish(stream_id, trailers)

    def respond(self, stream_id: int, headers: Headers, *, ends: bool = False) -> None:
        if stream_id in self._answering:
            # h2 refuses if the peer has reset the stream meanwhile.
            with suppress(h2.exceptions.ProtocolError):
                self._connection.send_headers(stream_id, headers, end_stream=ends)
            if ends:
                self._answering.discard(stream_id)

    def send(self, stream_id: int, data: bytes) -> None:
        if stream_id in self._answering and data:
            self._outgoing.setdefault(stream_id, Outgoing()).add(data)
            self._push(stream_id)

    def finish(self, stream_id: int, trailers: Headers) -> None:
        if stream_id in self._answering:
            self._outgoing.setdefault(stream_id, Outgoing()).trailers = trailers
            self._push(stream_id)

    def _finish_stream(self, stream_id: int, outgoing: Outgoing) -> None:
        if outgoing.trailers is not None:
            self._connection.send_headers(stream_id, outgoing.trailers, end_stream=True)
            self._noise.allow(NOISE_PER_CALL)
            self._answering.discard(stream_id)
