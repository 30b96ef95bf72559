"""A turn: reading, processing and answering what came at one moment.

One receive per connection, every complete frame to its processor, then one write to the store and
one send per connection for all answers. There is no task, lock or channel hop per request.

Java counterpart: none; Netty's channelReadComplete with flush comes nearest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ..common.supervision import FailureLog
from .loop_monitor import LoopMonitor

logger = logging.getLogger(__name__)


class Writer(Protocol):
    """Somebody with something to send at the turn's end."""

    def flush(self) -> None:
        """Send it, as far as that goes without waiting."""

    def close(self, reason: str) -> None:
        """Close the connection: what it was to send cannot be sent."""


class Turn:
    """What all connections of one process share: the channels with something to send.

    Args:
      on_end: called once at the end of every turn, before anything is sent: a broker writes what
        was appended, and wakes who waited for it.

    Attributes:
      active: a turn is under way; what is written leaves at its end.
      dirty: channels with something to send.
      monitor: told of what takes long.
    """

    __slots__ = ("_failures", "active", "dirty", "monitor", "on_end")

    def __init__(self, on_end: Callable[[], None] | None = None) -> None:
        self.active = False
        self.dirty: list[Writer] = []
        self.monitor = LoopMonitor()
        self.on_end = on_end
        self._failures = FailureLog(logger)

    def end(self) -> None:
        """Run `on_end`, then send what the turn wrote.

        An error that is not expected costs the step in which it happened: the channel whose flush
        failed is closed, and the others are flushed. `on_end` must not have written an answer that
        is not true when it raises.
        """
        try:
            if self.on_end is not None:
                self.on_end()
        except Exception as error:  # noqa: BLE001 - our bug: others are served on
            meaning = "Requests of that turn may stay without an answer; the next turn is served"
            self._failures.note("the end of a turn", meaning, error)
        finally:
            self.active = False
            if self.dirty:
                self.flush()

    def flush(self) -> None:
        """Send what was written; a channel that fails by a bug of ours is closed."""
        dirty, self.dirty = self.dirty, []
        for channel in dirty:
            try:
                channel.flush()
            except Exception as error:  # noqa: BLE001 - the others are flushed
                self._failures.note("sending to a client", "Its connection is closed", error)
                channel.close(f"sending failed: {type(error).__name__}")
