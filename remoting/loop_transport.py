"""LoopTransport: a connection whose client is in the same process, without a socket.

Its owner passes the client's frames to `Connection.take`, and is given the server's bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from .channel import Buffer


class LoopTransport:
    """Passes what the server sends to a function. Owner: one connection.

    Args:
      remote_address, local_address: of the client and of the server, `ip:port`.
      on_started: called once, when the connection can answer later what it cannot answer at once.
      on_data: called with whole frames that the server sends.
      on_closed: called once, when the connection has ended.
    """

    def __init__(
        self,
        remote_address: str,
        local_address: str,
        *,
        on_started: Callable[[], None],
        on_data: Callable[[bytes], None],
        on_closed: Callable[[], None],
    ) -> None:
        self.remote_address = remote_address
        self.local_address = local_address
        self._on_started, self._on_data, self._on_closed = on_started, on_data, on_closed
        self._closed = trio.Event()

    async def receive(self) -> bytes:
        """Wait for the end; empty, as at the end of a stream."""
        self._on_started()
        await self._closed.wait()
        return b""

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        """Pass everything on."""
        self._on_data(b"".join(buffers))
        return []

    async def send_all(self, buffers: list[Buffer]) -> None:
        """Pass everything on."""
        self.send_nowait(buffers)

    def abort(self) -> None:
        """End the connection; may be called several times."""
        if not self._closed.is_set():
            self._closed.set()
            self._on_closed()
