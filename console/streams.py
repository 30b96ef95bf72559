"""The open event streams, which end with the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio


class Streams:
    """The event streams that are open.

    Attributes:
      count: how many there are.
      have_ended: the console ends: none goes on.
    """

    def __init__(self) -> None:
        self.count = 0
        self.have_ended = False
        self._waiting: set[anyio.CancelScope] = set()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Count a stream while the block runs."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[anyio.CancelScope]:
        """Wait for news in the block, for some seconds, or until the console ends."""
        with anyio.move_on_after(seconds) as scope:
            self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)

    def end(self) -> None:
        """End all streams: a server would wait for them, and they have no end."""
        self.have_ended = True
        for scope in list(self._waiting):
            scope.cancel()
