"""Deadlines: what is due, and only that."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from trocket.broker.pop.deadlines import SLOT_S, Deadlines


def test_items_are_due_within_one_slot() -> None:
    deadlines = Deadlines[str]()
    assert deadlines.next_s == math.inf
    deadlines.add("a", 1.001)
    assert 1.001 <= deadlines.next_s <= 1.001 + SLOT_S
    assert deadlines.take_due(1.0, 10) == []
    assert deadlines.take_due(1.001 + SLOT_S, 10) == ["a"]
    assert deadlines.next_s == math.inf


def test_many_are_taken_in_parts_and_may_be_removed_meanwhile() -> None:
    deadlines = Deadlines[int]()
    for number in range(10):
        deadlines.add(number, 1.0)
    taken = deadlines.take_due(2.0, 4)
    left = set(range(10)) - set(taken)
    assert len(taken) == 4
    assert deadlines.next_s < 2.0
    removed = left.pop()
    deadlines.remove(removed, 1.0)
    assert set(deadlines.take_due(2.0, 100)) == left


@given(
    st.lists(st.tuples(st.floats(0, 10), st.booleans()), max_size=50),
    st.lists(st.floats(0, 12), max_size=10),
)
def test_each_item_is_taken_once_when_it_is_due(
    items: list[tuple[float, bool]], times: list[float]
) -> None:
    deadlines = Deadlines[int]()
    for number, (deadline_s, _) in enumerate(items):
        deadlines.add(number, deadline_s)
    for number, (deadline_s, is_removed) in enumerate(items):
        if is_removed:
            deadlines.remove(number, deadline_s)
    taken: list[int] = []
    for now_s in [*sorted(times), 20.0]:
        for number in deadlines.take_due(now_s, 1_000):
            assert items[number][0] <= now_s
            taken.append(number)
    assert sorted(taken) == [number for number, (_, removed) in enumerate(items) if not removed]
