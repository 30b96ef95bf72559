"""A limit of repeated log lines: an event that occurs thousands of times a second is counted.

A burst of lines fills the disk that the store needs, and hides every other line. So each event,
which is the template of a line in its logger, has a number of lines per interval. Lines beyond it
are counted and left out, but the last one, which is written with the count when the interval is
over: by the next line of any event, or at the end. A line of level CRITICAL is always written.

An event with several lines at a time, such as those that another process wrote, has its own limit:
`extra={"lines_max": 200}` in the call of the logger.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import IO, Any, Final

LINES_MAX: Final = 20
"""Lines of one event in an interval: enough to see which clients or topics it is about."""

INTERVAL_S: Final = 10.0
"""Seconds that are counted together: 20 lines in 10 s are some 20 MB a day."""

EVENTS_MAX: Final = 512
"""Events that are counted at a time; there are about 250, and those of other packages."""


class _Count:
    """The lines of one event since `began_s`."""

    __slots__ = ("began_s", "last", "left_out", "written")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.written = 0
        self.left_out = 0
        self.last: logging.LogRecord | None = None  # of those that were left out


class LimitedHandler(logging.StreamHandler[Any]):
    """Writes lines to a stream, of each event at most its limit in `INTERVAL_S`.

    Args:
      stream: gets the lines.
      now_s: a monotonic clock, seconds.
    """

    def __init__(self, stream: IO[str], *, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now_s = now_s
        self._counts: dict[tuple[str, int, str], _Count] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or count it."""
        now_s = self._now_s()
        self._end_intervals(now_s)
        if record.levelno >= logging.CRITICAL:
            super().emit(record)
            return
        key = (record.name, record.levelno, str(record.msg))
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= EVENTS_MAX:
                self._end(next(iter(self._counts)))
            count = self._counts[key] = _Count(now_s)
        if count.written < getattr(record, "lines_max", LINES_MAX):
            count.written += 1
            super().emit(record)
        else:
            count.left_out += 1
            count.last = record

    def close(self) -> None:
        """Write what was left out, and forget the stream."""
        for key in list(self._counts):
            self._end(key)
        super().close()

    def _end_intervals(self, now_s: float) -> None:
        """End the intervals that are over; the oldest come first."""
        while self._counts:
            key = next(iter(self._counts))
            if now_s - self._counts[key].began_s < INTERVAL_S:
                return
            self._end(key)

    def _end(self, key: tuple[str, int, str]) -> None:
        """Write the last line that was left out, with the number of those before it."""
        count = self._counts.pop(key)
        if count.last is not None:
            if count.left_out > 1:
                count.last.left_out = count.left_out - 1
            super().emit(count.last)


class TextFormatter(logging.Formatter):
    """Lines for people; see `LimitedHandler` for the count at the end."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line, and its traceback."""
        text = super().format(record)
        left_out = getattr(record, "left_out", 0)
        if not left_out:
            return text
        head, newline, rest = text.partition("\n")
        return f"{head} ({left_out:,} more of these were left out){newline}{rest}"
