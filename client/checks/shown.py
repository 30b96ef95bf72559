"""Values of programs in the texts of errors. Pure."""

from __future__ import annotations

from typing import Final

SHOWN_CHARS_MAX: Final = 60
"""Characters of a wrong value that an error shows."""


def shown(value: object) -> str:
    """A wrong value for an error's text, cut."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
