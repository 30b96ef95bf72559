"""Pushdown of Spark's filters into a read. Pure: filters are matched by their classes' names.

Spark applies all filters again to the rows, so a bound may be too wide, but never too narrow.

Readers accept filters only with `pushdown=true`: Spark 4.3 keeps the filters of one query with the
DataFrame, and reuses that reader for the DataFrame's next query, even if it pushes no filters, so
that rows are missing. `tests/spark/test_source.py` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

_LOWER: Final = {"GreaterThan", "GreaterThanOrEqual"}
_UPPER: Final = {"LessThan", "LessThanOrEqual"}


@dataclass(frozen=True)
class Bounds:
    """The values that a column may have; None: any.

    Attributes:
      values: the allowed values.
      low, high: inclusive bounds; times in ms since 1970.
    """

    values: frozenset[Any] | None = None
    low: int | None = None
    high: int | None = None

    def allows(self, value: Any) -> bool:
        """Whether the filters may accept a number or text."""
        return (
            (self.values is None or value in self.values)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        )


ANYTHING: Final = Bounds()


def bounds(filters: Iterable[Any], column: str) -> Bounds:
    """The bounds of one column under filters that must all hold.

    Args:
      filters: Spark's filters.
      column: a column of strings, numbers or times.
    """
    values: frozenset[Any] | None = None
    low: int | None = None
    high: int | None = None
    for each in filters:
        if getattr(each, "attribute", None) != (column,):
            continue
        kind = type(each).__name__
        if kind in ("EqualTo", "In"):
            found = frozenset(each.value if kind == "In" else (each.value,))
            values = found if values is None else values & found
        elif kind in _LOWER and (bound := _number(each.value, math.floor)) is not None:
            low = bound if low is None else max(low, bound)
        elif kind in _UPPER and (bound := _number(each.value, math.ceil)) is not None:
            high = bound if high is None else min(high, bound)
    if values and all(isinstance(value, datetime) for value in values):
        low = max([*_some(low), min(_ms(value, math.floor) for value in values)])
        high = min([*_some(high), max(_ms(value, math.ceil) for value in values)])
        values = None
    return Bounds(values, low, high)


def _some(value: int | None) -> list[int]:
    return [] if value is None else [value]


def _number(value: Any, rounded: Any) -> int | None:
    if isinstance(value, datetime):
        return _ms(value, rounded)
    return value if isinstance(value, int) else None


def _ms(moment: datetime, rounded: Any) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime.fromtimestamp(0, UTC)
    micros = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return int(rounded(micros / 1000))
