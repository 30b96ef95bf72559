"""The page of state tables is that of the code."""

from __future__ import annotations

from tests.docs.pages import ROOT
from tests.docs.state_tables import page


def test_the_page_is_drawn_from_the_code() -> None:
    drawn = (ROOT / "docs" / "states.md").read_text(encoding="utf-8")
    assert drawn == page(), "draw it again: python -m tests.docs.state_tables > docs/states.md"
