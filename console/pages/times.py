"""Times in queries and forms."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ..errors import PageError
from .page import Ask

MS_DIGITS_MAX: Final = 15
"""Digits of milliseconds since 1970: the year 9999 has 15."""


def time_ms(ask: Ask, name: str) -> int | None:
    """A field with a time: ms since 1970, or ISO 8601, in UTC where it names no zone.

    Returns: ms since 1970; None: the field is empty.
    Raises: PageError: it is no time.
    """
    text = ask.query.get(name, "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= MS_DIGITS_MAX:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        ms = int(at.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise PageError(400, "no_time", value=text) from None
    if ms < 0:
        raise PageError(400, "no_time", value=text)
    return ms
