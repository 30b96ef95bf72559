"""When a server collects all garbage: seldom, and the more seldom the longer it takes."""

from __future__ import annotations

import gc

import pytest
import trio
import trio.testing

from trocket.common import collector, process
from trocket.common.collector import (
    AUTOMATIC_NEVER,
    GROWTH_MAX,
    LOOK_INTERVAL_S,
    MOVES_MIN,
    REST_MIN_S,
    REST_RATIO,
    Collector,
)

THRESHOLDS = (AUTOMATIC_NEVER, 0)
"""What Python says of its threshold then; 0: it collects in small parts, and has none."""


class Heap:
    """A collector's process in numbers."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.took_s = 0.005
        self.moved = MOVES_MIN
        self.size = 50_000_000
        self.collections = 0
        self.collector = Collector(
            collect=self._collect,
            moves=lambda: self.moved,
            memory=lambda: self.size,
            elapsed_s=lambda: self.now_s,
        )

    def _collect(self) -> None:
        self.collections += 1
        self.now_s += self.took_s

    def collections_in(self, seconds: float) -> int:
        before, end_s = self.collections, self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += LOOK_INTERVAL_S
            self.collector.look()
        return self.collections - before


def test_a_small_heap_is_collected_each_minute() -> None:
    assert Heap().collections_in(10 * REST_MIN_S) in (9, 10)


def test_a_large_heap_stands_still_for_a_thousandth_of_the_time() -> None:
    heap = Heap()
    heap.took_s = 2.0
    assert heap.collections_in(REST_MIN_S) == 1
    assert heap.collections_in(REST_RATIO * heap.took_s - LOOK_INTERVAL_S) == 0
    assert heap.collections_in(2 * LOOK_INTERVAL_S) == 1


def test_growth_does_not_wait_and_is_counted_from_the_last_collection() -> None:
    heap = Heap()
    heap.size += GROWTH_MAX - 1
    assert heap.collections_in(LOOK_INTERVAL_S) == 0
    heap.size += 1
    assert heap.collections_in(LOOK_INTERVAL_S) == 1
    assert heap.collections_in(LOOK_INTERVAL_S) == 0
    heap.size += GROWTH_MAX
    assert heap.collections_in(LOOK_INTERVAL_S) == 1


def test_an_idle_server_collects_nothing() -> None:
    heap = Heap()
    heap.moved = MOVES_MIN - 1
    heap.size += GROWTH_MAX
    assert heap.collections_in(10 * REST_MIN_S) == 0


def test_the_memory_of_this_process_is_known_where_the_system_says_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert collector.own_memory() >= 0

    def missing(self: object, encoding: str) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(collector.Path, "read_text", missing)
    assert collector.own_memory() == 0


async def test_only_full_collections_are_not_begun_by_python(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = gc.get_threshold()
    looks = 0

    def looked(self: Collector) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(Collector, "look", looked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Collector().run)
        await trio.testing.wait_all_tasks_blocked()
        assert gc.get_threshold()[:2] == before[:2]
        assert gc.get_threshold()[2] in THRESHOLDS
        await trio.sleep(2.5 * LOOK_INTERVAL_S)
        nursery.cancel_scope.cancel()
    assert looks == 2
    assert gc.get_threshold() == before


def test_a_server_has_a_collector() -> None:
    before, found = gc.get_threshold(), []

    async def main(stop: trio.CancelScope) -> None:
        await trio.testing.wait_all_tasks_blocked()
        found.append(gc.get_threshold()[2])

    assert process.serve(main, program="prog") == process.EXIT_OK
    assert found[0] in THRESHOLDS
    assert gc.get_threshold() == before
