"""The rows of a long table that a page shows at once."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from trocket.console.errors import PageError
from trocket.console.pages.rows import ROWS_MAX, rows_of


class Row(NamedTuple):
    topic: str


ROWS = [Row(f"Topic{number:03}") for number in range(2 * ROWS_MAX + 10)]


def test_a_table_is_walked_page_by_page_without_a_gap() -> None:
    seen: list[Row] = []
    begin: int | None = 0
    while begin is not None:
        rows = rows_of(ROWS, "topic", {"from": str(begin)})
        assert (rows.begin, rows.total, rows.is_part) == (begin, len(ROWS), True)
        seen += rows.shown
        begin = rows.after
    assert seen == ROWS
    assert rows.before == ROWS_MAX
    assert rows_of(ROWS, "topic", {}).before is None


def test_a_name_is_found_in_upper_and_lower_case() -> None:
    rows = rows_of(ROWS, "topic", {"name": " topic01 "})
    assert [each.topic for each in rows.shown] == [f"Topic01{digit}" for digit in range(10)]
    assert (rows.matching, rows.total, rows.after, rows.is_part) == (10, len(ROWS), None, True)
    nothing = rows_of(ROWS, "topic", {"name": "other", "from": "5"})
    assert (nothing.shown, nothing.begin, nothing.end, nothing.is_part) == ([], 0, 0, True)


def test_a_short_table_is_shown_whole() -> None:
    rows = rows_of(ROWS[:3], "topic", {})
    assert (list(rows.shown), rows.after, rows.is_part) == (ROWS[:3], None, False)


def test_a_page_behind_the_last_row_is_the_last_page() -> None:
    rows = rows_of(ROWS, "topic", {"from": "999999999"})
    assert (rows.begin, list(rows.shown)) == (2 * ROWS_MAX, ROWS[2 * ROWS_MAX :])


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "9" * 10, "\u0665"])
def test_where_to_begin_must_be_a_number(text: str) -> None:
    with pytest.raises(PageError, match="no_number"):
        rows_of(ROWS, "topic", {"from": text})
