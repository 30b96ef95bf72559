"""Log lines as JSON objects, for collectors such as Loki, Elasticsearch or Vector."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    """One line for each record, with its traceback: members time (UTC), level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line; `traceback` and `stack` are there only if the record has them."""
        at = datetime.fromtimestamp(record.created, UTC)
        members = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            members["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            members["stack"] = self.formatStack(record.stack_info)
        # ASCII: no text of a peer can end the line or a terminal's state.
        return json.dumps(members)
