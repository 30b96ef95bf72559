"""The client's side of HTTP/2 by ngh2, a sans-IO binding of libnghttp2."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import ngh2

from .client_engine import (
    CANCEL,
    STREAMS_BEFORE_SETTINGS,
    ClientEvent,
    GoingAway,
    Headed,
    Ponged,
)
from .engine import (
    HEADERS_COUNT_MAX,
    HEADERS_SIZE_MAX,
    STREAM_WINDOW,
    Arrived,
    Closed,
    Headers,
)
from .ngh2_connection import Ngh2Connection

_CONFIGURATION: Final = ngh2.Configuration(
    max_inbound_header_list_size=HEADERS_SIZE_MAX,
    max_inbound_header_count=HEADERS_COUNT_MAX,
    peer_max_concurrent_streams=STREAMS_BEFORE_SETTINGS,
)
_SETTINGS: Final = {
    ngh2.Setting.ENABLE_PUSH: 0,
    ngh2.Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
    ngh2.Setting.MAX_HEADER_LIST_SIZE: HEADERS_SIZE_MAX,
}


class Ngh2ClientEngine(Ngh2Connection[ClientEvent]):
    """See `client_engine.ClientEngine`."""

    def __init__(self) -> None:
        super().__init__(ngh2.Role.CLIENT, _CONFIGURATION, _SETTINGS)
        self._has_settings = False

    def request(self, headers: Headers) -> int | None:
        if self._broken is not None or not self._connection.can_send_request:
            return None
        try:
            return self._connection.send_request(headers)
        except ngh2.NGH2Error as error:
            self._note(error)
            return None

    def send(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        try:
            if data:
                self._connection.send_data(stream_id, data, end_stream=ends)
            elif ends:
                self._connection.end_stream(stream_id)
        except ngh2.NGH2Error as error:
            self._note(error)

    def reset(self, stream_id: int) -> None:
        try:
            self._connection.reset_stream(stream_id, CANCEL)
        except ngh2.NGH2Error as error:
            self._note(error)

    def ping(self) -> None:
        with suppress(ngh2.NGH2Error):
            self._connection.ping()

    @property
    def streams_max(self) -> int:
        if not self._has_settings:
            return STREAMS_BEFORE_SETTINGS
        return self._connection.remote_settings[ngh2.Setting.MAX_CONCURRENT_STREAMS]

    def _taken(self) -> list[ClientEvent]:
        events: list[ClientEvent] = []
        for event in self._connection.events():
            match event:
                case ngh2.DataReceived():
                    events.append(Arrived(event.stream_id, event.data, event.end_stream))
                case ngh2.ResponseReceived():
                    events.append(Headed(event.stream_id, event.headers, event.end_stream))
                case ngh2.TrailersReceived():
                    events.append(Headed(event.stream_id, event.headers, True))
                case ngh2.StreamClosed():
                    events.append(Closed(event.stream_id, event.error_code))
                case ngh2.GoAwayReceived():
                    text = event.debug_data.decode("utf-8", "backslashreplace")
                    events.append(GoingAway(event.last_stream_id, event.error_code, text))
                case ngh2.PingAcknowledged():
                    events.append(Ponged())
                case ngh2.SettingsReceived():
                    self._has_settings = True
                case ngh2.ConnectionClosed():
                    events.append(self._closed(event))
                case _:
                    pass
        return events
