"""What can go wrong in the connector; Spark shows the texts inside its own errors.

::

    SparkConnectorError
    ├── OptionError          an option or a user's schema that cannot be right (a ValueError too)
    ├── DataLossError        rows that were asked for are not there any more, or not as they were
    ├── CorruptStoreError    a file holds bytes that are no records
    └── RowRefusedError      a row that no broker would take

A text names the topic, queue and offset, or the file and position, and what to do. All of them can
be pickled: they travel from a worker to the driver.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SparkConnectorError(Exception):
    """Base of all errors of the connector."""


class OptionError(SparkConnectorError, ValueError):
    """An option or a schema cannot be right; nothing was read or written."""


class DataLossError(SparkConnectorError):
    """Rows are gone; with `failOnDataLoss=false` the rest is read."""


class CorruptStoreError(SparkConnectorError):
    """A store's file is damaged; with `mode=permissive` the rest is read."""


class RowRefusedError(SparkConnectorError):
    """A row cannot become a message."""


def nearest(wanted: str, known: Iterable[str]) -> str:
    """A hint that names the known name most like an unknown one; "" when there is none."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(wanted.lower(), by_lower, n=1, cutoff=0.0)
    return f"; the nearest there is: {by_lower[found[0]]}" if found else ""
