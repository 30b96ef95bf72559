"""Connecting: one attempt for all tasks that wait for an address, with one time limit and one log.

Java counterpart: NettyRemotingClient.getAndCreateChannel.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from math import inf
from typing import Final

import anyio

from ..errors import ClosedError, ConnectError, copy_of
from .connection import Connection, OnRequest, Translator
from .connection_log import ConnectionLog
from .options import Dial
from .tls import STREAM_ERRORS, ClientTls, failure_reason, silence_hint
from .transport import StreamTransport, Transport, connect_tcp

RECONNECT_PAUSE_S: Final = 0.1
"""Pause between a failed attempt to connect to an address and the next one."""


class Dialer:
    """The connections of one client.

    Lifecycle: created with its client, then `connection` in the event loop, then `close`.

    Args:
      now_s: returns the time of the event loop's clock, in seconds.
      start_soon: runs a function in the background; the client's.
      on_connected: called with the address when a connection was made.
      dial: opens byte streams; None: TCP, with TLS if `tls` is given.
      tls: None: none.
      timeout_s: time limit of connecting, in seconds.
      log: has a line for each change.
      on_request: called with the requests of servers.
      translator: makes the session of a connection to an address whose server speaks another
        protocol; None: all speak remoting.

    Attributes:
      connections: by address; one that is closed is removed soon.
      is_over: returns whether the event loop ends, so that connections that end are not logged.
    """

    def __init__(
        self,
        now_s: Callable[[], float],
        start_soon: Callable[..., None],
        on_connected: Callable[[str], None],
        *,
        dial: Dial | None,
        tls: ClientTls | None,
        timeout_s: float,
        log: ConnectionLog,
        on_request: OnRequest,
        translator: Callable[[str], Translator] | None = None,
    ) -> None:
        self._now_s = now_s
        self._start_soon = start_soon
        self._on_connected = on_connected
        self._dial = dial
        self._tls = tls
        self._timeout_s = timeout_s
        self._log = log
        self._on_request = on_request
        self._translator = translator
        self._is_closed = False
        self._locks: dict[str, anyio.Lock] = {}
        # By address, the last attempt to connect that failed: when and why.
        self._failures: dict[str, tuple[float, ConnectError]] = {}
        self.connections: dict[str, Connection] = {}
        self.is_over: Callable[[], bool] = lambda: False

    def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for connection in list(self.connections.values()):
            connection.close("the client was closed")

    async def connection(self, address: str, timeout_s: float | None = None) -> Connection:
        """The open connection to an address; it is made if there is none.

        Args:
          timeout_s: seconds; None: the usual limit of connecting.

        Raises: ConnectError: no connection could be made. ClosedError: the client was closed.
        """
        asked_s = self._now_s()
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        # It covers the attempt of another task, whose limit may be longer, and the pause.
        with anyio.move_on_after(limit_s):
            async with self._locks.setdefault(address, anyio.Lock()):
                connection = self.connections.get(address)
                if connection is None or connection.closed:
                    connection = await self._connect_for_all(address, asked_s)
                return connection
        error = ConnectError(address, f"no connection within {limit_s:.3g} s")
        if limit_s < self._timeout_s:  # others wait longer
            raise error
        raise self._failed(address, error)

    async def _connect_for_all(self, address: str, asked_s: float) -> Connection:
        """Connect for all tasks that wait for the address: they share one attempt and its failure.

        Without this, each task would wait for its own time-out when a broker is down.
        """
        failed_s, failure = self._failures.get(address, (-inf, None))
        if failure is not None and failed_s >= asked_s:
            raise copy_of(failure)
        await anyio.sleep(max(failed_s + RECONNECT_PAUSE_S - self._now_s(), 0))
        try:
            connection = await self._connect(address)
        except ConnectError as error:
            raise self._failed(address, error) from error.__cause__
        self._failures.pop(address, None)
        return connection

    def _failed(self, address: str, error: ConnectError) -> ConnectError:
        error.is_connection_lost = True
        # A copy: the original gets a traceback, and with it the frames of its callers.
        self._failures[address] = self._now_s(), copy_of(error)
        self._log.lost(address, error.reason)
        return error

    async def _connect(self, address: str) -> Connection:
        host, separator, port = address.rpartition(":")
        if not separator or not _is_port(port):
            raise ConnectError(address, "not an address of the form host:port", is_final=True)
        try:
            transport = await self._open(host.strip("[]"), int(port))
        except (OSError, *STREAM_ERRORS) as error:
            reason = failure_reason(error, self._tls, host)
            raise ConnectError(address, reason, is_final=isinstance(error, ssl.SSLError)) from error
        except ValueError as error:  # asyncio encodes the name itself
            reason = f"the host is no name of a machine ({error})"
            raise ConnectError(address, reason, is_final=True) from error
        if self._is_closed:
            # The client was closed meanwhile; no task of it would close this connection.
            await transport.aclose()
            raise ClosedError("the client is closed")
        translator = None if self._translator is None else self._translator(address)
        hint = silence_hint(self._tls)
        connection = Connection(transport, address, self._on_request, hint, translator)
        self.connections[address] = connection
        self._log.connected(address)
        self._start_soon(self._run, connection)
        self._on_connected(address)
        return connection

    async def _open(self, host: str, port: int) -> Transport:
        if self._dial is None:
            return await connect_tcp(host, port, None if self._tls is None else self._tls.context())
        return StreamTransport(await self._dial(host, port))

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._ended(connection)

    def _ended(self, connection: Connection) -> None:
        known = self.connections.get(connection.address)
        if known is connection:
            del self.connections[connection.address]
        elif known is not None:
            return  # another one has replaced it
        if not self._is_closed and not self.is_over():
            self._log.lost(connection.address, connection.close_reason)
            if not connection.has_received:
                # As a connection that could not be made: the next attempt comes after a pause,
                # or a peer that accepts and closes would be tried without end.
                error = ConnectError(connection.address, connection.close_reason)
                self._failures[connection.address] = self._now_s(), error


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= 0xFFFF
