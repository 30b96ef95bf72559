"""FilterServerManager: the filter servers that registered with this broker (301), by connection.

A filter server is registered from its first 301 until its connection closes or no 301 comes for
EXPIRED_S. The list is part of each registration with the name servers, and clients find it in the
routes.

Invariant: one entry for each connection, and one for each address.

Java counterpart: broker/filtersrv/FilterServerManager.java of 4.2.0; the part that starts filter
servers is in `filter_server_keeper.py`. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...remoting.errors import RequestRefused
from ...remoting.names import FILTER_SERVERS_MAX, check_address
from ...remoting.response_codes import ResponseCode
from ..clients.client_channel_info import ClientChannel

logger = logging.getLogger(__name__)

EXPIRED_S: Final = 30.0
"""Seconds without 301, which comes every 10, after which a filter server is dropped. Source:
FilterServerManager.FILTER_SERVER_MAX_IDLE_TIME_MILLS."""


class FilterServerInfo:
    """One filter server. Changed only by the table that holds it.

    Attributes:
      address: `host:port` that consumers connect to.
      last_update_s: monotonic seconds of its last 301.
    """

    __slots__ = ("address", "last_update_s")

    def __init__(self, address: str, last_update_s: float) -> None:
        self.address = address
        self.last_update_s = last_update_s


def _ignore_change() -> None:
    """Until the table is connected."""


class FilterServerManager:
    """The table of filter servers. Not thread-safe: used from the broker's one trio run.

    Attributes:
      on_change: called when an address was added or removed; may be set later.
    """

    def __init__(self, *, on_change: Callable[[], None] = _ignore_change) -> None:
        self.on_change = on_change
        self._servers: dict[ClientChannel, FilterServerInfo] = {}
        self._arrivals = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that consumers connect to, in the order of registration."""
        return tuple(server.address for server in self._servers.values())

    @property
    def arrivals(self) -> int:
        """The number of addresses registered so far, including removed ones."""
        return self._arrivals

    def register(self, channel: ClientChannel, address: str, *, now_s: float) -> None:
        """Record a 301.

        When an address comes on another connection, the new connection replaces the old one: only
        one process listens there, and the broker may learn late that a connection is broken.

        Args:
          channel: the filter server's connection.
          address: any string from the wire.
          now_s: monotonic seconds.
        Raises: RequestRefused: SYSTEM_ERROR if it is not an address, or there are too many.
        """
        check_address("filter server address", address)
        known = self._servers.get(channel)
        if known is not None and known.address == address:
            known.last_update_s = now_s
            return
        holder = next((one for one, its in self._servers.items() if its.address == address), None)
        if holder is None and known is None and len(self._servers) >= FILTER_SERVERS_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"{FILTER_SERVERS_MAX} filter servers are registered, which is the limit",
            )
        if holder is not None:
            del self._servers[holder]
        self._servers[channel] = FilterServerInfo(address, now_s)
        if holder is None:
            self._arrivals += 1
            logger.info(
                "new filter server %(filter_server)s on %(peer)s",
                {"filter_server": address, "peer": channel.remote_address},
            )
        if holder is None or known is not None:
            self.on_change()

    def channel_closed(self, channel: ClientChannel) -> bool:
        """Remove the filter server of a closed connection.

        Returns: whether there was one.
        """
        server = self._servers.pop(channel, None)
        if server is None:
            return False
        logger.warning(
            "filter server %(filter_server)s on %(peer)s is removed: its connection closed or "
            "it sent no registration",
            {"filter_server": server.address, "peer": channel.remote_address},
        )
        self.on_change()
        return True

    def scan_inactive(self, now_s: float) -> list[ClientChannel]:
        """Remove the filter servers whose registration has expired.

        Args:
          now_s: monotonic seconds.
        Returns: their connections, which the caller closes.
        Source: FilterServerManager.scanNotActiveChannel.
        """
        expired = [
            channel
            for channel, server in self._servers.items()
            if now_s - server.last_update_s > EXPIRED_S
        ]
        for channel in expired:
            self.channel_closed(channel)
        return expired
