"""Batches that fill up, with times as arguments."""

from __future__ import annotations

from trocket.client.pushing.batches import Batches


def test_a_batch_is_full_or_due() -> None:
    batches = Batches[str](2, 5.0)
    assert batches.due_s is None
    assert batches.take_due(100.0) is None
    assert batches.add("x", "a", 1.0) is None
    assert batches.due_s == 6.0
    assert batches.take_due(5.9) is None
    assert batches.add("x", "b", 2.0) == ["a", "b"]
    assert batches.due_s is None
    assert batches.add("x", "c", 3.0) is None
    assert batches.take_due(8.0) == ["c"]


def test_each_key_has_its_batch_and_the_oldest_is_due_first() -> None:
    batches = Batches[str](3, 5.0)
    batches.add("x", "a", 1.0)
    batches.add("y", "b", 2.0)
    batches.add("x", "c", 3.0)
    assert batches.last_items == [("x", "c"), ("y", "b")]
    assert batches.due_s == 6.0
    assert batches.take_due(7.0) == ["a", "c"]
    assert batches.take_due(6.5) is None
    assert batches.take_due(7.0) == ["b"]


def test_without_lingering_a_batch_is_due_at_once() -> None:
    batches = Batches[str](3, 0.0)
    batches.add("x", "a", 1.0)
    assert batches.take_due(1.0) == ["a"]
    batches.add("x", "b", 2.0)
    batches.add("y", "c", 2.0)
    assert batches.take_all() == ["b", "c"]
    assert batches.take_due(9.0) is None
