"""Answers about health while a store is opened, given by a thread.

To open a store after a crash may take minutes, in which the broker's event loop does nothing else.
A probe must learn meanwhile that the process lives, or it would be killed and begin again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from ...remoting.metrics.answers import LIVE, Answer, answer_of
from ...remoting.metrics.http_server import HttpServer
from ...remoting.tls_server import ServerTls
from .health import RECOVERING

PATIENCE_S: Final = 1.0
"""Seconds until the thread starts; most stores are open before."""


@contextmanager
def answered_while_opening(listener: socket.socket, tls: ServerTls | None = None) -> Iterator[None]:
    """Answer on a listening socket until the block ends.

    Args:
      listener: stays open.
      tls: encrypts the connections; None: they are plain.
    """
    done = threading.Event()
    thread = threading.Thread(target=_run, args=(listener, tls, done), name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _run(listener: socket.socket, tls: ServerTls | None, done: threading.Event) -> None:
    if done.wait(PATIENCE_S):
        return
    trio.run(_serve, listener, tls, done)


async def _serve(listener: socket.socket, tls: ServerTls | None, done: threading.Event) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(HttpServer(_answer, tls=tls).serve, listener)
        await trio.to_thread.run_sync(done.wait)
        nursery.cancel_scope.cancel()


async def _answer(path: str) -> Answer:
    if path.partition("?")[0] == "/health/live":
        return LIVE
    return answer_of([RECOVERING])
