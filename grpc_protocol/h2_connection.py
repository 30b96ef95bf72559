"""H2Connection: the part of an engine by h2 that a server and a client have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from .engine import CONNECTION_WINDOW, HEADERS_SIZE_MAX, STREAM_WINDOW, Broken, Headers

E = TypeVar("E")

CODES: Final = h2.settings.SettingCodes


class Outgoing:
    """What is queued for one stream: parts of the body, and then perhaps its end.

    Attributes:
      ends: the stream ends with the last part.
      trailers: it ends with these.
    """

    __slots__ = ("ends", "parts", "size", "trailers")

    def __init__(self) -> None:
        self.parts: deque[bytes] = deque()
        self.size = 0
        self.ends = False
        self.trailers: Headers | None = None

    def add(self, data: bytes) -> None:
        """Queue a part of the body."""
        if data:
            self.parts.append(data)
            self.size += len(data)


class H2Connection(ABC, Generic[E]):
    """A connection whose events are of the type E.

    Args:
      client: this is the client's side.
      settings: for the peer, beside those of windows and headers.
    """

    def __init__(self, *, client: bool, settings: Mapping[h2.settings.SettingCodes, int]) -> None:
        self._connection = h2.connection.H2Connection(
            h2.config.H2Configuration(
                client_side=client,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self._connection.local_settings = h2.settings.Settings(
            client=client,
            initial_values={
                CODES.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                CODES.MAX_HEADER_LIST_SIZE: HEADERS_SIZE_MAX,
                **settings,
            },
        )
        self._connection.initiate_connection()
        self._connection.increment_flow_control_window(CONNECTION_WINDOW)
        self._outgoing: dict[int, Outgoing] = {}
        self._broken: Broken | None = None

    @abstractmethod
    def _take(self, event: h2.events.Event, events: list[E | Broken]) -> None:
        """Add what an event of h2 is here."""

    @abstractmethod
    def _finish_stream(self, stream_id: int, outgoing: Outgoing) -> None:
        """Send what follows the parts of a stream, which are all sent."""

    def receive(self, data: bytes) -> list[E | Broken]:
        if self._broken is not None:
            return []
        events: list[E | Broken] = []
        try:
            found = self._connection.receive_data(data)
        except h2.exceptions.ProtocolError as error:
            return [self._break(f"{type(error).__name__}: {error}")]
        for event in found:
            self._take(event, events)
        return events

    def output(self) -> tuple[bytes, Broken | None]:
        return self._connection.data_to_send(), self._broken

    @property
    def queued_size(self) -> int:
        return sum(outgoing.size for outgoing in self._outgoing.values())

    def _push_all(self) -> None:
        """Send what larger windows allow now."""
        for stream_id in list(self._outgoing):
            self._push(stream_id)

    def _push(self, stream_id: int) -> None:
        """Send as much of a stream's parts as the windows allow, then its end."""
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
                is_last = outgoing.ends and not outgoing.parts
                connection.send_data(stream_id, part, end_stream=is_last)
                if is_last:
                    del self._outgoing[stream_id]
                    return
            del self._outgoing[stream_id]
            self._finish_stream(stream_id, outgoing)
        except h2.exceptions.ProtocolError:  # the peer has reset the stream meanwhile
            self._outgoing.pop(stream_id, None)

    def _break(self, reason: str) -> Broken:
        if self._broken is None:
            self._broken = Broken(reason)
        return self._broken
