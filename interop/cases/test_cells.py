"""The one test of the harness: a cell behaves as with Apache's, or differs deliberately."""

from __future__ import annotations

from collections.abc import Callable


def test_cell(check_cell: Callable[[], None]) -> None:
    """One feature with one client on one broker under one fault."""
    check_cell()
