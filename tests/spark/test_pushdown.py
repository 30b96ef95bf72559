"""Filters become bounds that are never too narrow."""

from __future__ import annotations

from collections import namedtuple
from datetime import UTC, datetime, timedelta

import pytest

from trocket.spark.pushdown import ANYTHING, Bounds, bounds

# As pyspark's classes, which are distinguished by their names.
EqualTo = namedtuple("EqualTo", "attribute value")
In = namedtuple("In", "attribute value")
GreaterThan = namedtuple("GreaterThan", "attribute value")
GreaterThanOrEqual = namedtuple("GreaterThanOrEqual", "attribute value")
LessThan = namedtuple("LessThan", "attribute value")
LessThanOrEqual = namedtuple("LessThanOrEqual", "attribute value")
IsNull = namedtuple("IsNull", "attribute")
Not = namedtuple("Not", "child")

T = ("topic",)
OFFSET = ("queueOffset",)
TIME = ("storeTimestamp",)
MOMENT = datetime(2026, 11, 22, 10, 0, 0, 1500, UTC)
MOMENT_MS = 1_795_341_600_001


@pytest.mark.parametrize(
    ("filters", "column", "expected"),
    [
        ([], "topic", ANYTHING),
        ([EqualTo(T, "a")], "topic", Bounds(frozenset({"a"}))),
        ([In(T, ("a", "b")), EqualTo(T, "b")], "topic", Bounds(frozenset({"b"}))),
        ([EqualTo(T, "a"), EqualTo(T, "b")], "topic", Bounds(frozenset())),
        ([EqualTo(T, "a")], "queueOffset", ANYTHING),
        ([EqualTo(("topic", "inner"), "a")], "topic", ANYTHING),
        ([Not(EqualTo(T, "a")), IsNull(T)], "topic", ANYTHING),
        ([GreaterThan(OFFSET, 5), LessThanOrEqual(OFFSET, 9)], "queueOffset", Bounds(None, 5, 9)),
        ([GreaterThanOrEqual(OFFSET, 5), GreaterThan(OFFSET, 7)], "queueOffset", Bounds(None, 7)),
        ([LessThan(OFFSET, "x")], "queueOffset", ANYTHING),
        # Half a millisecond is cut off below, and added above.
        ([GreaterThan(TIME, MOMENT)], "storeTimestamp", Bounds(None, MOMENT_MS)),
        ([LessThan(TIME, MOMENT)], "storeTimestamp", Bounds(None, None, MOMENT_MS + 1)),
        ([EqualTo(TIME, MOMENT)], "storeTimestamp", Bounds(None, MOMENT_MS, MOMENT_MS + 1)),
        (
            [In(TIME, (MOMENT, MOMENT + timedelta(days=1))), LessThan(TIME, MOMENT)],
            "storeTimestamp",
            Bounds(None, MOMENT_MS, MOMENT_MS + 1),
        ),
        (
            [GreaterThan(TIME, MOMENT.replace(tzinfo=None))],
            "storeTimestamp",
            Bounds(None, MOMENT_MS),
        ),
    ],
    ids=str,
)
def test_filters_leave_bounds(filters, column, expected) -> None:
    assert bounds(filters, column) == expected


def test_bounds_allow_what_may_be_wanted() -> None:
    assert ANYTHING.allows("x")
    assert Bounds(frozenset({"a"})).allows("a")
    assert not Bounds(frozenset({"a"})).allows("b")
    assert not Bounds(frozenset()).allows("a")
    assert [n for n in range(10) if Bounds(None, 3, 5).allows(n)] == [3, 4, 5]
