"""Numbers in what brokers and people write."""

from __future__ import annotations

from typing import Final

DIGITS_MAX: Final = 18
"""Digits of a number that fits into a Java long, whatever they are."""


def whole_number(text: str, digits_max: int = DIGITS_MAX) -> int | None:
    """An integer of 0 or more in a string; None: it is none, or has more digits."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= digits_max
    return int(text) if is_number else None


def number(text: str | None) -> int | None:
    """As `whole_number`, of a string that may have spaces around it, or be missing."""
    return whole_number((text or "").strip())
