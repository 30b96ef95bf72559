"""The process of a console: its listener, its web server, and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..client import Admin
from .accounts import OpenClient
from .app import make_app
from .clock import Clock
from .console import Console
from .settings import ConsoleSettings

CONNECTIONS_MAX: Final = 1_000
"""Open connections; a newer one is closed at once. A few people and their event streams need far
fewer, and a process may open 1,024 files where its limit was not raised."""
REQUEST_S: Final = 10.0
"""How long a connection may take until its first request is complete."""
SHUTDOWN_S: Final = 2
"""How long open requests have at the end; event streams would never end."""
HEADER_SIZE_MAX: Final = 32 << 10
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class _LimitedConnection(H11Protocol):
    """A connection that must send a request soon, and one of at most CONNECTIONS_MAX."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_S, self._check)

    def _check(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        deadline = getattr(self, "_deadline", None)
        if deadline is not None:
            deadline.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """A server that says when it serves, and that it ends."""

    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)

    def close(self) -> None:
        """Close what is still open: uvicorn leaves it so where it is cancelled."""
        for server in getattr(self, "servers", ()):
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End at SIGINT and SIGTERM, which is no failure: uvicorn would raise the signal again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def listener(settings: ConsoleSettings) -> socket.socket:
    """A socket that listens where the settings say. Raises: OSError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((settings.host, settings.port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


async def serve(
    settings: ConsoleSettings,
    admin: Admin,
    sock: socket.socket,
    ready: Callable[[Console], None] = lambda console: None,
    *,
    clock: Clock | None = None,
    open_client: OpenClient | None = None,
) -> None:
    """Serve pages until SIGINT or SIGTERM, or until it is cancelled. Runs under asyncio.

    Args:
      admin: open.
      ready: called once requests are served.
      clock: of a broker under test; None: there is none.
      open_client: as in Console.running.

    Raises: ConfigurationError: a file of the settings is wrong.
    """
    async with Console.running(settings, admin, clock, open_client) as console:
        config = uvicorn.Config(
            make_app(console),
            http=_LimitedConnection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=HEADER_SIZE_MAX,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        server = _Server(config, lambda: ready(console), console.streams.end)
        try:
            await server.serve(sockets=[sock])
        finally:
            server.close()
