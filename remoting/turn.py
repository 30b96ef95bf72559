"""Turn: reads, processes and answers all requests that are readable at one moment.

One receive per connection, every complete frame to its processor, then one write to the store and
one send per connection for all answers. There is no task, lock or memory channel per request.

Java counterpart: none; the nearest is Netty's channelReadComplete with flush.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ..common.supervision import FailureLog
from .loop_monitor import LoopMonitor
from .request_times import RequestTimes

logger = logging.getLogger(__name__)


class Writer(Protocol):
    """The part of a channel that a turn uses at its end."""

    def flush(self) -> None:
        """Send as much as possible without blocking."""

    def close(self, reason: str) -> None:
        """Close the connection after a failed flush."""


class Turn:
    """The turn that all connections of one process share, with the channels to flush at its end.

    Args:
      on_end: called once at the end of every turn, before anything is sent: a broker commits
        appended messages, and wakes held pulls.

    Attributes:
      active: a turn is running; written answers are sent at its end.
      dirty: channels with unsent answers.
      outer: connections that others are inside of, flushed after them: what these answer is a part
        of what they send.
      monitor: records slow bursts.
      request_times: counts requests; None: they are not counted.
    """

    __slots__ = (
        "_failures",
        "_is_flushing",
        "active",
        "dirty",
        "monitor",
        "on_end",
        "outer",
        "request_times",
    )

    def __init__(self, on_end: Callable[[], None] | None = None) -> None:
        self.active = self._is_flushing = False
        self.dirty: list[Writer] = []
        self.outer: list[Writer] = []
        self.monitor = LoopMonitor()
        self.request_times: RequestTimes | None = None
        self.on_end = on_end
        self._failures = FailureLog(logger)

    def __enter__(self) -> None:
        """Begin a turn for work that no request asked for; it ends with the block."""
        self.active = True

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Run `on_end`, then send the answers of the turn.

        After an unexpected error the other steps are still run: a channel whose flush failed is
        closed, and the others are flushed. If `on_end` raises, it must not have written a wrong
        answer.
        """
        try:
            if self.on_end is not None:
                self.on_end()
        except Exception as error:  # noqa: BLE001 - our bug: the next turn is served
            meaning = "Requests of that turn may stay without an answer; the next turn is served"
            self._failures.note("the end of a turn", meaning, error)
        finally:
            # Before the flush: what is written from here on belongs to no turn, and leaves at once.
            self.active = False
            if self.dirty or self.outer:
                self.flush()

    def flush(self) -> None:
        """Send what was written; a channel that fails by a bug of ours is closed.

        A flush may write to other channels, as one that is inside of another connection does: they
        are flushed after it, and all that is written to one of them is still one send.
        """
        if self._is_flushing:
            return
        self._is_flushing = True
        try:
            while self.dirty or self.outer:
                if self.dirty:
                    dirty, self.dirty = self.dirty, []
                else:
                    dirty, self.outer = self.outer, []
                for channel in dirty:
                    try:
                        channel.flush()
                    except Exception as error:  # noqa: BLE001 - the others are flushed
                        meaning = "Its connection is closed"
                        self._failures.note("sending to a client", meaning, error)
                        channel.close(f"sending failed: {type(error).__name__}")
        finally:
            self._is_flushing = False
