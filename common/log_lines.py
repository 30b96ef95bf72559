"""Log lines: JSON objects for collectors, and a limit of repeated ones, which are counted.

A burst of lines fills the disk that the store needs, and hides every other line. So each event,
which is the template of a line in its logger, has a number of lines per interval. Lines beyond it
are counted and left out, but the last one, which is written with the count when the interval is
over: by the next line of any event, or at the end. A line of level CRITICAL is always written.

An event with several lines at a time, such as those that another process wrote, has its own limit:
`extra={"lines_max": 200}` in the call of the logger.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import IO, Any, Final

# Log lines as JSON objects, for collectors such as Loki, Elasticsearch or Vector.

MEMBERS: Final = ("time", "level", "logger", "message", "event", "left_out", "traceback", "stack")
"""The members that lines of all events have; no value of an event has such a name."""

_PLACEHOLDER: Final = re.compile(r"%\(([^)]*)\)[-#0 +]*[0-9]*(?:\.[0-9]+)?[a-zA-Z]")


class JsonFormatter(logging.Formatter):
    """One line for each record, with its traceback.

    Members: time (UTC), level, logger, message, the values of the event by their names, and event:
    the message with the names in place of the values, the same for all lines of one event.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record's line; `traceback`, `stack` and `left_out` are there only if it has them."""
        at = datetime.fromtimestamp(record.created, UTC)
        members: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if isinstance(record.args, Mapping):
            members["event"] = event_of(record)
            for name, value in record.args.items():
                members.setdefault(name, _plain(value))
        left_out = getattr(record, "left_out", 0)
        if left_out:
            members["left_out"] = left_out
        if record.exc_info and record.exc_info[0] is not None:
            members["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            members["stack"] = self.formatStack(record.stack_info)
        # ASCII: no text of a peer can end the line or a terminal's state.
        return json.dumps(members)


def event_of(record: logging.LogRecord) -> str:
    """The text that all lines of one event share: `topic {topic} is deleted`."""
    return _PLACEHOLDER.sub(r"{\1}", str(record.msg)).replace("%%", "%")


def _plain(value: Any) -> Any:
    """A value for JSON: numbers and lists of strings as they are, anything else by `str`."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [str(each) for each in value]
    return str(value)


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
