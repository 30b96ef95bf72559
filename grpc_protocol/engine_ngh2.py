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
    CONNECTION_WINDOW,
    ENHANCE_YOUR_CALM,
    HEADERS_COUNT_MAX,
    HEADERS_SIZE_MAX,
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

_CONFIGURATION: Final = ngh2.Configuration(
    max_inbound_header_list_size=HEADERS_SIZE_MAX, max_inbound_header_count=HEADERS_COUNT_MAX
)
_SETTINGS: Final = {
    ngh2.Setting.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
    ngh2.Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
    ngh2.Setting.MAX_HEADER_LIST_SIZE: HEADERS_SIZE_MAX,
}


class Ngh2Engine:
    """See `engine.Engine`."""

    def __init__(self) -> None:
        self._connection = ngh2.Connection(ngh2.Role.SERVER, _CONFIGURATION)
        self._connection.initiate_connection(_SETTINGS)
        self._connection.set_local_window_size(CONNECTION_WINDOW)
        self._broken: Broken | None = None
        self._noise = Noise()

    def receive(self, data: bytes) -> list[Event]:
        if self._broken is not None:
            return []
        try:
            self._connection.receive_data(data)
        except ngh2.NGH2Error as error:
            events = self._taken()
            return [*events, self._break(str(error))] if self._broken is None else events
        self._noise.allow()
        events = self._taken()
        if self._noise.is_too_much and self._broken is None:
            with suppress(ngh2.NGH2Error):
                self._connection.terminate_connection(ENHANCE_YOUR_CALM)
            events.append(self._break("too many frames that are no calls"))
        return events

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

    def output(self) -> tuple[bytes, Broken | None]:
        try:
            data = self._connection.data_to_send()
        except ngh2.NGH2Error as error:  # it had ended the connection before
            self._break(str(error))
            return b"", self._broken
        # libnghttp2 may end the connection by what it just put out, a GOAWAY.
        if not self._connection.want_read and not self._connection.want_write:
            self._break("HTTP/2 has ended")
        return data, self._broken

    @property
    def queued_size(self) -> int:
        return self._connection.queued_body_size()

    def _taken(self) -> list[Event]:
        events: list[Event] = []
        for event in self._connection.events():
            match event:
                case ngh2.DataReceived():
                    events.append(Arrived(event.stream_id, event.data, event.end_stream))
                case ngh2.RequestReceived():
                    events.append(Opened(event.stream_id, event.headers, event.end_stream))
                case ngh2.StreamClosed():
                    events.append(Closed(event.stream_id, event.error_code))
                case ngh2.TrailersReceived():
                    # gRPC's clients send none; it ends the request.
                    events.append(Arrived(event.stream_id, b"", True))
                case ngh2.PingReceived() | ngh2.SettingsReceived():
                    self._noise.add()
                case ngh2.ConnectionClosed():
                    text = event.debug_data.decode("utf-8", "backslashreplace")
                    events.append(self._break(text or f"HTTP/2 error {event.error_code}"))
                case _:
                    pass
        return events

    def _break(self, reason: str) -> Broken:
        if self._broken is None:
            self._broken = Broken(reason)
        return self._broken

    def _note(self, error: ngh2.NGH2Error) -> None:
        """Take an error of an answer: usually its stream was reset by the peer meanwhile."""
        if isinstance(error, (ngh2.ConnectionProtocolError, ngh2.InternalError)):
            self._break(str(error))
