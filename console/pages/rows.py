"""The rows of a long table that a page shows at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...operations.whole_numbers import whole_number
from ..errors import PageError

ROWS_MAX: Final = 200
"""Rows of a page. A cluster may have thousands of topics; a browser takes half a second for 1,000
rows, and those that matter come first."""
BEGIN_DIGITS_MAX: Final = 9


class Rows(NamedTuple):
    """Some rows of a table.

    Attributes:
      shown: these rows.
      begin: the number of the first of them, from 0, among those that match.
      matching: rows with `name` in their names.
      total: all rows.
      name: what was looked for; "": everything.
    """

    shown: Sequence[Any]
    begin: int
    matching: int
    total: int
    name: str

    @property
    def end(self) -> int:
        """The number after that of the last row that is shown."""
        return self.begin + len(self.shown)

    @property
    def before(self) -> int | None:
        """Where the page before begins; None: this is the first one."""
        return max(0, self.begin - ROWS_MAX) if self.begin else None

    @property
    def after(self) -> int | None:
        """Where the next page begins; None: this is the last one."""
        return self.end if self.end < self.matching else None

    @property
    def is_part(self) -> bool:
        """Whether the table has other rows."""
        return len(self.shown) < self.total


def rows_of(rows: Sequence[Any], field: str, query: Mapping[str, str]) -> Rows:
    """The rows that a query asks for, in their order.

    Args:
      field: of a row, with its name.
      query: `name`: a part of the name, in upper or lower case; `from`: the first row.

    Raises: PageError: `from` is no number.
    """
    name = query.get("name", "").strip()
    text = query.get("from", "").strip() or "0"
    begin = whole_number(text, BEGIN_DIGITS_MAX)
    if begin is None:
        raise PageError(400, "no_number", name="from", value=text)
    wanted = name.casefold()
    found = [each for each in rows if wanted in getattr(each, field).casefold()] if name else rows
    if begin >= len(found):  # they have become fewer
        begin = max(0, (len(found) - 1) // ROWS_MAX * ROWS_MAX)
    return Rows(found[begin : begin + ROWS_MAX], begin, len(found), len(rows), name)
