"""Each cell of the harness is as with Apache's, or deliberately different."""

from __future__ import annotations

from collections.abc import Callable


def test_cell(judge_cell: Callable[[], None]) -> None:
    """One feature with one client on one broker under one fault."""
    judge_cell()
