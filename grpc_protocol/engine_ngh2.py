"""HTTP/2 by ngh2, a sans-IO binding of libnghttp2.

libnghttp2 itself limits resets, CONTINUATION, and what it calls glitches (empty DATA, PRIORITY and
the like) by their rate, and ends the connection of a peer that exceeds it. PING and SETTINGS it
limits only while their answers are not sent, so these are counted here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import ngh2

from .engine import (
    ENHANCE_YOUR_CALM,
    HEADERS_COUNT_MAX,
    HEADERS_SIZE_MAX,
    NOISE_PER_CALL,
    STREAM_WINDOW,
    STREAMS_MAX,
    Arrived,
    Closed,
    Event,
    Headers,
    Noise,
    Opened,
)
from .ngh2_connection import Ngh2Connection

_CONFIGURATION: Final = ngh2.Configuration(
    max_inbound_header_list_size=HEADERS_SIZE_MAX, max_inbound_header_count=HEADERS_COUNT_MAX
)
_SETTINGS: Final = {
    ngh2.Setting.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
    ngh2.Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
    ngh2.Setting.MAX_HEADER_LIST_SIZE: HEADERS_SIZE_MAX,
}


class Ngh2Engine(Ngh2Connection[Event]):
    """See `engine.Engine`."""

    def __init__(self) -> None:
        super().__init__(ngh2.Role.SERVER, _CONFIGURATION, _SETTINGS)
        self._noise = Noise()

    def receive(self, data: bytes) -> list[Event]:
        self._noise.allow()
        events = super().receive(data)
        if self._noise.is_too_much and self._broken is None:
            with suppress(ngh2.NGH2Error):
                self._connection.terminate_connection(ENHANCE_YOUR_CALM)
            events.append(self._break("too many frames that are no calls"))
        return events

    def answer(self, stream_id: int, headers: Headers, data: bytes, trailers: Headers) -> None:
        connection = self._connection
        self._noise.allow(NOISE_PER_CALL)
        try:
            connection.send_response(stream_id, headers)
            connection.send_data(stream_id, data)
            connection.send_trailers(stream_id, trailers)
        except ngh2.NGH2Error as error:
            self._note(error)

    def respond(self, stream_id: int, headers: Headers, *, ends: bool = False) -> None:
        try:
            self._connection.send_response(stream_id, headers, end_stream=ends)
        except ngh2.NGH2Error as error:
            self._note(error)

    def send(self, stream_id: int, data: bytes) -> None:
        try:
            self._connection.send_data(stream_id, data)
        except ngh2.NGH2Error as error:
            self._note(error)

    def finish(self, stream_id: int, trailers: Headers) -> None:
        self._noise.allow(NOISE_PER_CALL)
        try:
            self._connection.send_trailers(stream_id, trailers)
        except ngh2.NGH2Error as error:
            self._note(error)

    def _taken(self) -> list[Event]:
        events: list[Event] = []
        for event in self._connection.events():
            # Each call has one of each of the first three; the others are rare.
            if type(event) is ngh2.DataReceived:
                events.append(Arrived(event.stream_id, event.data, event.end_stream))
            elif type(event) is ngh2.RequestReceived:
                events.append(Opened(event.stream_id, event.headers, event.end_stream))
            elif type(event) is ngh2.StreamClosed:
                if event.error_code:  # otherwise both sides have said before that they ended
                    events.append(Closed(event.stream_id, event.error_code))
            else:
                self._take_rare(event, events)
        return events

    def _take_rare(self, event: ngh2.Event, events: list[Event]) -> None:
        match event:
            case ngh2.TrailersReceived():
                # gRPC's clients send none; it ends the request.
                events.append(Arrived(event.stream_id, b"", True))
            case ngh2.PingReceived() | ngh2.SettingsReceived():
                self._noise.add()
            case ngh2.ConnectionClosed():
                events.append(self._closed(event))
            case _:
                pass
