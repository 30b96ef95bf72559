"""A console beside a broker of `trocket.testing`, for a test that a person is to follow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

import anyio
import anyio.lowlevel

from ..client import Admin, Client
from .clock import EmbeddedBroker, EmbeddedClock
from .console import Console
from .server import listener, serve
from .settings import ConsoleSettings

START_S: Final = 30.0
"""How long the start and the end may take; both take some ms."""


@contextmanager
def console_beside(broker: EmbeddedBroker, **settings: Any) -> Iterator[str]:
    """Serve a console in a thread, while the block runs; the page Clock moves the broker's clock.

    ::

        with Broker() as broker, console_beside(broker) as address:
            print(address)
            breakpoint()

    Args:
      broker: running.
      settings: fields of ConsoleSettings. Without a port it is any free one.

    Yields: the address to open, with the token.
    Raises: OSError: the port is in use. ConfigurationError: a setting is wrong.
    """
    made = ConsoleSettings(**{"port": 0, **settings})
    clock = EmbeddedClock(broker)
    with serving_in_thread(made, lambda: Client(broker.url), clock=clock) as (console, port):
        yield console.login_address(port)


@contextmanager
def serving_in_thread(
    settings: ConsoleSettings,
    client_of: Callable[[], Client],
    *,
    name: str = "trocket-console",
    **options: Any,
) -> Iterator[tuple[Console, int]]:
    """Serve a console in a thread, while the block runs.

    Args:
      client_of: makes its client, which is not open yet.
      name: the thread is called so, in logs too.
      options: of `serve`.

    Yields: the console, and its port.
    Raises: OSError: the port is in use. ConfigurationError: a setting is wrong.
    """
    ready: Future[tuple[Console, anyio.CancelScope, Any]] = Future()

    async def main() -> None:
        with anyio.CancelScope() as scope:
            token = anyio.lowlevel.current_token()

            def started(console: Console) -> None:
                ready.set_result((console, scope, token))

            async with client_of() as client, Admin(client) as admin:
                await serve(settings, admin, sock, started, **options)

    def run() -> None:
        try:
            anyio.run(main, backend="asyncio")
        except BaseException as error:  # noqa: BLE001 - raised in the other thread
            if not ready.done():
                ready.set_exception(error)

    with listener(settings) as sock:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        console, scope, token = ready.result(START_S)
        try:
            yield console, sock.getsockname()[1]
        finally:
            anyio.from_thread.run_sync(scope.cancel, token=token)
            thread.join(START_S)
