"""Log lines as JSON objects, for collectors such as Loki, Elasticsearch or Vector."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

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
