"""Samples of a counter."""

from __future__ import annotations

from trocket.broker.stats.stats_item import MINUTE, SAMPLE_INTERVAL_MS, StatsItem


def test_a_sample_leaves_the_garbage_collector_no_new_object():
    """There are three counters for each queue: its next look for young objects took 40 ms."""
    item = StatsItem()
    item.sample(0, 0)
    kept = item._samples
    for number in range(1, 20):
        item.add(5, 1)
        item.sample(number * SAMPLE_INTERVAL_MS, number)
    assert item._samples is kept
    assert item.growth(MINUTE).sum == 6 * 5
