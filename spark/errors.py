"""Errors of the connector; Spark shows their messages inside its own errors.

::

    SparkConnectorError
    ├── OptionError          an invalid option or schema (a ValueError, too)
    ├── DataLossError        requested rows no longer exist, or have changed
    │   └── QueueGoneError   the broker of a queue does not have its topic any more
    ├── CorruptStoreError    a file holds bytes that are not records
    └── RowRefusedError      a row that no broker would accept

A message names the topic, queue and offset, or the file and position, and what to do. All errors
can be pickled: workers send them to the driver.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final


class SparkConnectorError(Exception):
    """Base of all errors of the connector."""


class OptionError(SparkConnectorError, ValueError):
    """An option or a schema is invalid; nothing was read or written."""


class DataLossError(SparkConnectorError):
    """Requested rows are gone; `failOnDataLoss=false` reads the rest."""


class QueueGoneError(DataLossError):
    """The broker of a queue does not have its topic any more."""


class CorruptStoreError(SparkConnectorError):
    """A store's file is damaged; `mode=permissive` reads the rest."""


class RowRefusedError(SparkConnectorError):
    """A row cannot become a message."""


SIMILAR: Final = 0.6
"""Least similarity of a name that a hint gives, 0 … 1: as `difflib` has it by default."""


def nearest(wanted: str, known: Iterable[str]) -> str:
    """A hint with the known name that is most similar to an unknown one; "": none is."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(wanted.lower(), by_lower, n=1, cutoff=SIMILAR)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""
