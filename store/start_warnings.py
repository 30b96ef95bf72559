"""Which warnings of a start speak of damage, and which of what a crash or a setting leaves.

fsck reports every warning of a start. One that speaks of damage is an error there; one that is
logged with `extra=LEFTOVER` is a warning, because nothing is wrong with the files.
"""

from __future__ import annotations

import logging
from typing import Final

LEFTOVER: Final = {"is_leftover": True}
"""For `extra` of a log call."""


def is_leftover(record: logging.LogRecord) -> bool:
    """Whether a warning was logged as one that needs no repair."""
    return getattr(record, "is_leftover", False) is True
