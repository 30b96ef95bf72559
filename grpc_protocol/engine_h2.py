"""HTTP/2 by h2, in pure Python: where ngh2 has no wheel, and for TROCKET_PURE.

h2 serves a flood of SETTINGS, PING, resets or empty DATA for as long as it lasts, so the frames
that are no calls are counted here, and a connection with too many of them is ended.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Final

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from .engine import (
    CONNECTION_WINDOW,
    ENHANCE_YOUR_CALM,
    HEADERS_SIZE_MAX,
    NOISE_OF_RESET,
    NOISE_PER_CALL,
    STREAM_WINDOW,
    STREAMS_MAX,
    Arrived,
    Broken,
    Closed,
    Event,
    Headers,
    Noise,
    Opened,
)

_CONFIGURATION: Final = h2.config.H2Configuration(
    client_side=False,
    header_encoding=None,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)
_CODES: Final = h2.settings.SettingCodes


class _Outgoing:
    """What is queued for one stream: parts of the body, and then perhaps trailers."""

    __slots__ = ("parts", "size", "trailers")

    def __init__(self) -> None:
        self.parts: deque[bytes] = deque()
        self.size = 0
        self.trailers: Headers | None = None


class H2Engine:
    """See `engine.Engine`."""

    def __init__(self) -> None:
        self._connection = h2.connection.H2Connection(_CONFIGURATION)
        self._connection.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                _CODES.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
                _CODES.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                _CODES.MAX_HEADER_LIST_SIZE: HEADERS_SIZE_MAX,
                _CODES.ENABLE_CONNECT_PROTOCOL: 0,
            },
        )
        self._connection.initiate_connection()
        self._connection.increment_flow_control_window(CONNECTION_WINDOW)
        self._outgoing: dict[int, _Outgoing] = {}
        # Streams whose request, or answer, has not ended.
        self._asking: set[int] = set()
        self._answering: set[int] = set()
        self._noise = Noise()
        self._broken: Broken | None = None

    def receive(self, data: bytes) -> list[Event]:
        if self._broken is not None:
            return []
        events: list[Event] = []
        self._noise.allow()
        try:
            found = self._connection.receive_data(data)
        except h2.exceptions.ProtocolError as error:
            return [self._break(f"{type(error).__name__}: {error}")]
        for event in found:
            self._take(event, events)
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
                for stream_id in list(self._outgoing):
                    self._push(stream_id)
            case h2.events.ConnectionTerminated():
                events.append(self._break(f"GOAWAY with error {int(event.error_code or 0)}"))
            case h2.events.StreamEnded():
                pass
            case _:
                self._noise.add()

    def respond(self, stream_id: int, headers: Headers, *, ends: bool = False) -> None:
        if stream_id in self._answering:
            # h2 refuses if the peer has reset the stream meanwhile.
            with suppress(h2.exceptions.ProtocolError):
                self._connection.send_headers(stream_id, headers, end_stream=ends)
            if ends:
                self._answering.discard(stream_id)

    def send(self, stream_id: int, data: bytes) -> None:
        if stream_id in self._answering and data:
            outgoing = self._outgoing.setdefault(stream_id, _Outgoing())
            outgoing.parts.append(data)
            outgoing.size += len(data)
            self._push(stream_id)

    def finish(self, stream_id: int, trailers: Headers) -> None:
        if stream_id in self._answering:
            self._outgoing.setdefault(stream_id, _Outgoing()).trailers = trailers
            self._push(stream_id)

    def output(self) -> tuple[bytes, Broken | None]:
        return self._connection.data_to_send(), self._broken

    @property
    def queued_size(self) -> int:
        return sum(outgoing.size for outgoing in self._outgoing.values())

    def _push(self, stream_id: int) -> None:
        """Send as much of a stream's parts as the windows allow, then its trailers."""
        outgoing, connection = self._outgoing[stream_id], self._connection
        try:
            while outgoing.parts:
                room = min(
                    connection.local_flow_control_window(stream_id),
                    connection.max_outbound_frame_size,
                )
                if room <= 0:
                    return
                part = outgoing.parts.popleft()
                if len(part) > room:
                    outgoing.parts.appendleft(part[room:])
                    part = part[:room]
                outgoing.size -= len(part)
                connection.send_data(stream_id, part)
            if outgoing.trailers is not None:
                connection.send_headers(stream_id, outgoing.trailers, end_stream=True)
                del self._outgoing[stream_id]
                self._noise.allow(NOISE_PER_CALL)
                self._answering.discard(stream_id)
        except h2.exceptions.ProtocolError:  # the peer has reset the stream meanwhile
            self._outgoing.pop(stream_id, None)

    def _break(self, reason: str) -> Broken:
        if self._broken is None:
            self._broken = Broken(reason)
        return self._broken
