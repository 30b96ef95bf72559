"""Texts for people: what comes from elsewhere, made fit for one line."""

from __future__ import annotations


def one_line(message: object) -> str:
    """A string without line breaks, such as an error's for a log, a terminal or a page."""
    return " ".join(str(message).split())
