"""A turn: reading, processing and answering what came at one moment.

One receive per connection, every complete frame to its processor, then one write to the store and
one send per connection for all answers. There is no task, lock or channel hop per request.

Java counterpart: none; Netty's channelReadComplete with flush comes nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Writer(Protocol):
    """Somebody with something to send at the turn's end."""

    def flush(self) -> None:
        """Send it, as far as that goes without waiting."""


class Turn:
    """What all connections of one process share: the channels with something to send.

    Args:
      on_end: called once at the end of every turn, before anything is sent: a broker writes what
        was appended, and wakes who waited for it.

    Attributes:
      active: a turn is under way; what is written leaves at its end.
      dirty: channels with something to send.
    """

    __slots__ = ("active", "dirty", "on_end")

    def __init__(self, on_end: Callable[[], None] | None = None) -> None:
        self.active = False
        self.dirty: list[Writer] = []
        self.on_end = on_end

    def end(self) -> None:
        """Run `on_end`, then send what the turn wrote."""
        try:
            if self.on_end is not None:
                self.on_end()
        finally:
            self.active = False
            if self.dirty:
                dirty, self.dirty = self.dirty, []
                for channel in dirty:
                    channel.flush()
