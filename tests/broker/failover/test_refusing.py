"""Connections to a broker of a set that cannot be opened are closed at once."""

from __future__ import annotations

import errno
import os
import socket

import pytest
import trio

from trocket.broker.failover.refusing import refuse_connections
from trocket.broker.settings.listening import listen

DEADLINE_S = 60.0
PAUSE_S = 5.0


async def test_each_connection_is_closed_and_the_listener_stays_open() -> None:
    listeners = listen("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse_connections, listeners)
        with trio.fail_after(DEADLINE_S):
            for listener in listeners:
                for _ in range(2):
                    stream = await trio.open_tcp_stream(*listener.getsockname())
                    assert await stream.receive_some() == b""
                    await stream.aclose()
        nursery.cancel_scope.cancel()
    assert all(listener.fileno() != -1 for listener in listeners)
    for listener in listeners:
        listener.close()


class _NoCopy(socket.socket):
    def dup(self) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("count", [0, 1])
async def test_the_pause_is_kept_where_no_listener_can_be_copied(
    autojump_clock: object, count: int
) -> None:
    listeners = [_NoCopy() for _ in range(count)]
    with trio.move_on_after(PAUSE_S) as pause:
        await refuse_connections(listeners)
    assert pause.cancelled_caught
    for listener in listeners:
        listener.close()
