"""Connections that are made, lost and back: one log line and one event for each change.

Without it, each route refresh, heartbeat and pull would log the same outage.

Java counterpart: ChannelEventListener.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from ..errors import ConnectError

logger = logging.getLogger(__name__)


class ConnectionChange(Enum):
    """A change of the connection to one address."""

    CONNECTED = "connected"
    """The first connection was made."""
    LOST = "lost"
    """The connection has ended, or could not be made; it is tried again when it is needed."""
    BACK = "back"
    """A connection was made again."""


class ConnectionEvent(NamedTuple):
    """A change of the connection to a name server or broker.

    Attributes:
      change: what happened.
      address: `host:port`.
      reason: why it was lost; "" for the other changes.
    """

    change: ConnectionChange
    address: str
    reason: str = ""


OnConnection: TypeAlias = Callable[[ConnectionEvent], object]
"""Called in the event loop, so it must not block; an exception is logged."""


class ConnectionLog:
    """Reports the changes of one client's connections.

    Args:
      on_connection: called with each change; None: they are only logged.
      now_s: returns the time, in seconds.
      name_servers: their addresses. That the first connection to one fails is not logged, because
        the program gets the error.
    """

    def __init__(
        self,
        on_connection: OnConnection | None,
        now_s: Callable[[], float],
        name_servers: Sequence[str],
    ) -> None:
        self._quiet = set(name_servers)
        self._on_connection = on_connection
        self._now_s = now_s
        self._lost_s: dict[str, float] = {}

    def connected(self, address: str) -> None:
        """Report that a connection was made."""
        self._quiet.discard(address)
        since_s = self._lost_s.pop(address, None)
        if since_s is None:
            logger.debug("connected to %s", address)
            self._report(ConnectionEvent(ConnectionChange.CONNECTED, address))
        else:
            logger.warning("connected to %s again, after %.3g s", address, self._now_s() - since_s)
            self._report(ConnectionEvent(ConnectionChange.BACK, address))

    def lost(self, address: str, reason: str) -> None:
        """Report that a connection has ended or could not be made; once until it is back."""
        if address in self._lost_s:
            logger.debug("no connection to %s: %s", address, reason)
            return
        self._lost_s[address] = self._now_s()
        level = logging.DEBUG if address in self._quiet else logging.WARNING
        logger.log(
            level, "no connection to %s: %s. It is tried again when it is needed", address, reason
        )
        self._report(ConnectionEvent(ConnectionChange.LOST, address, reason))

    def _report(self, event: ConnectionEvent) -> None:
        if self._on_connection is None:
            return
        try:
            self._on_connection(event)
        except Exception:
            logger.exception("on_connection failed for %s", event)


def failure_level(error: Exception) -> int:
    """The level to log a failed background request with.

    DEBUG if the connection is lost: the ConnectionLog has a line for that.
    """
    is_logged = isinstance(error, ConnectError) and error.is_connection_lost
    return logging.DEBUG if is_logged else logging.WARNING
