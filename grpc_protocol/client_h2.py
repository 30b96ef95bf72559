"""The client's side of HTTP/2 by h2, in pure Python: where ngh2 has no wheel."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import h2.events
import h2.exceptions

from .client_engine import (
    CANCEL,
    NO_ERROR,
    STREAMS_BEFORE_SETTINGS,
    ClientEvent,
    GoingAway,
    Headed,
    Ponged,
)
from .engine import Arrived, Closed, Headers
from .h2_connection import CODES, H2Connection, Outgoing

_PING: Final = b"keepaliv"


class H2ClientEngine(H2Connection[ClientEvent]):
    """See `client_engine.ClientEngine`."""

    def __init__(self) -> None:
        super().__init__(client=True, settings={CODES.ENABLE_PUSH: 0})
        self._open: set[int] = set()
        self._has_settings = False

    def _take(self, event: h2.events.Event, events: list[ClientEvent]) -> None:
        match event:
            case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                ends = event.stream_ended is not None
                events.append(Headed(event.stream_id, event.headers, ends))
            case h2.events.DataReceived():
                if event.flow_controlled_length:
                    with suppress(h2.exceptions.ProtocolError):  # it was reset meanwhile
                        self._connection.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                events.append(Arrived(event.stream_id, event.data, event.stream_ended is not None))
            case h2.events.StreamEnded():
                # The answer has ended; what is left of the request is of no use.
                if self._outgoing.pop(event.stream_id, None) is not None:
                    with suppress(h2.exceptions.ProtocolError):
                        self._connection.reset_stream(event.stream_id, CANCEL)
                self._close(event.stream_id, NO_ERROR, events)
            case h2.events.StreamReset():
                self._close(event.stream_id, int(event.error_code or 0), events)
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                if isinstance(event, h2.events.RemoteSettingsChanged):
                    self._has_settings = True
                self._push_all()
            case h2.events.PingAckReceived():
                events.append(Ponged())
            case h2.events.ConnectionTerminated():
                text = (event.additional_data or b"").decode("utf-8", "backslashreplace")
                last, code = event.last_stream_id or 0, int(event.error_code or 0)
                events.append(GoingAway(last, code, text))
                # h2 can do nothing more with such a connection.
                events.append(self._break(text or f"GOAWAY with error {code}"))
            case _:
                pass

    def _close(self, stream_id: int, error_code: int, events: list[ClientEvent]) -> None:
        self._outgoing.pop(stream_id, None)
        if stream_id in self._open:
            self._open.discard(stream_id)
            events.append(Closed(stream_id, error_code))

    def request(self, headers: Headers) -> int | None:
        if self._broken is not None:
            return None
        try:
            stream_id = self._connection.get_next_available_stream_id()
            self._connection.send_headers(stream_id, headers)
        except h2.exceptions.ProtocolError:
            return None
        self._open.add(stream_id)
        return stream_id

    def send(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        if stream_id not in self._open:
            return
        outgoing = self._outgoing.setdefault(stream_id, Outgoing())
        outgoing.add(data)
        outgoing.ends = outgoing.ends or ends
        self._push(stream_id)

    def reset(self, stream_id: int) -> None:
        self._outgoing.pop(stream_id, None)
        self._open.discard(stream_id)
        with suppress(h2.exceptions.ProtocolError):
            self._connection.reset_stream(stream_id, CANCEL)

    def ping(self) -> None:
        with suppress(h2.exceptions.ProtocolError):
            self._connection.ping(_PING)

    @property
    def streams_max(self) -> int:
        if not self._has_settings:
            return STREAMS_BEFORE_SETTINGS
        return self._connection.remote_settings.max_concurrent_streams

    def _finish_stream(self, stream_id: int, outgoing: Outgoing) -> None:
        if outgoing.ends:
            self._connection.end_stream(stream_id)
