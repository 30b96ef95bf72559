"""Ngh2Connection: the part of an engine by ngh2 that a server and a client have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

import ngh2

from .engine import CONNECTION_WINDOW, Broken

E = TypeVar("E")


class Ngh2Connection(ABC, Generic[E]):
    """A connection whose events are of the type E.

    Args:
      role: the side that this is.
      configuration, settings: of libnghttp2, and for the peer.
    """

    def __init__(
        self,
        role: ngh2.Role,
        configuration: ngh2.Configuration,
        settings: Mapping[ngh2.Setting, int],
    ) -> None:
        self._connection = ngh2.Connection(role, configuration)
        self._connection.initiate_connection(settings)
        self._connection.set_local_window_size(CONNECTION_WINDOW)
        self._broken: Broken | None = None

    @abstractmethod
    def _taken(self) -> list[E | Broken]:
        """The events of what was received."""

    def receive(self, data: bytes) -> list[E | Broken]:
        if self._broken is not None:
            return []
        try:
            self._connection.receive_data(data)
        except ngh2.NGH2Error as error:
            events = self._taken()
            return [*events, self._break(str(error))] if self._broken is None else events
        return self._taken()

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

    def _closed(self, event: ngh2.ConnectionClosed) -> Broken:
        """What the end of the connection, as libnghttp2 has it, is here."""
        text = event.debug_data.decode("utf-8", "backslashreplace")
        return self._break(text or f"HTTP/2 error {event.error_code}")

    def _break(self, reason: str) -> Broken:
        if self._broken is None:
            self._broken = Broken(reason)
        return self._broken

    def _note(self, error: ngh2.NGH2Error) -> None:
        """Take an error of what is sent: usually its stream was reset by the peer meanwhile."""
        if isinstance(error, (ngh2.ConnectionProtocolError, ngh2.InternalError)):
            self._break(str(error))
