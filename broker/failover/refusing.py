"""Refuses connections while a broker of a set cannot be opened.

Its listening sockets stay open between two roles, so a client would connect, and wait for answers
until its time limit. A connection that is closed at once sends it to another broker.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from typing import Final

import trio

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""After an accept that failed, such as without a free descriptor: one attempt a second costs
nothing."""


async def refuse_connections(listeners: Iterable[socket.socket]) -> None:
    """Accept connections, and close each at once, until cancelled; the listeners stay open."""
    async with trio.open_nursery() as nursery:
        for listener in listeners:
            nursery.start_soon(_refuse, listener)
        await trio.sleep_forever()  # also where no listener could be copied


async def _refuse(listener: socket.socket) -> None:
    try:
        with trio.socket.from_stdlib_socket(listener.dup()) as accepting:
            while True:
                try:
                    connection, _ = await accepting.accept()
                    connection.close()
                except OSError as error:
                    logger.warning(
                        "a connection to a broker that cannot be opened was not refused; its "
                        "client waits: %(error)s",
                        {"error": error},
                    )
                    await trio.sleep(RETRY_S)
    except OSError as error:  # the socket was not copied
        logger.warning(
            "connections wait until this broker can be opened: %(error)s", {"error": error}
        )
