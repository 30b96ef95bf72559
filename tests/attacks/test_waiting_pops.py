"""Floods of waiting pops: each slice of the event loop has an end, and others have their places.

What is tested is counted work: how many requests are served again in one slice, in which order.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.harness import FakeChannel
from tests.broker.pop.waiting import Waits
from trocket.broker.pop.waiting_requests import (
    STEPS_PER_SLICE,
    TRIES_PER_SLICE,
    Polling,
    PollingKey,
)
from trocket.broker.settings.config import BrokerConfig

CHANNEL_SHARE = BrokerConfig().held_pulls_per_connection_max
GROUP_SHARE = BrokerConfig().held_pulls_per_group_max
KEY_SIZE = BrokerConfig().pop_polling_size


def flood(waits: Waits, channel: FakeChannel, number: int, **options: int) -> int:
    """Poll so often on one connection, for keys enough; return how many wait."""
    held = 0
    for index in range(number):
        polling = waits.poll(f"T{index // KEY_SIZE}", channel=channel, **options)
        held += polling is Polling.WAITS
    return held


def slices(waits: Waits) -> list[int]:
    """Run until nothing is due; return how many requests each slice served."""
    served = []
    while True:
        before = len(waits.served)
        left_s = waits.requests.run_slice()
        served.append(len(waits.served) - before)
        if left_s > 0:
            return served


@pytest.mark.slow
def test_one_connection_and_one_group_cannot_take_the_places_of_all_others() -> None:
    waits = Waits()
    # Half of the places of maxPopPollingSize are free for everyone; the group's share is taken.
    assert flood(waits, FakeChannel(), 100_000) == 50_000
    assert waits.poll("U", channel=FakeChannel()) is Polling.FULL
    others = FakeChannel()
    held = [waits.poll("U", f"G{index // 100}", channel=others) for index in range(5_000)]
    assert held.count(Polling.WAITS) == CHANNEL_SHARE
    assert waits.poll("U", "honest") is Polling.WAITS


def test_one_key_has_its_places() -> None:
    waits = Waits()
    for _ in range(KEY_SIZE):
        waits.hold()
    assert waits.poll() is Polling.FULL
    assert waits.poll(queue_id=0) is Polling.WAITS
    # Those that are woken and not served yet count, too.
    assert waits.requests.wake(PollingKey("T", "G", -1))
    assert waits.poll() is Polling.FULL


def test_there_are_so_many_keys() -> None:
    waits = Waits(BrokerConfig(pop_polling_map_size=10))
    for queue_id in range(10):
        waits.hold(queue_id=queue_id)
    assert waits.poll(queue_id=10) is Polling.FULL
    assert waits.poll(queue_id=9) is Polling.WAITS


def test_all_that_wait_fit_into_the_memory_of_held_requests() -> None:
    waits = Waits()
    channel = FakeChannel()
    channel.memory.held_requests.limit = 1_000_000
    assert flood(waits, channel, 2_000) < 1_000
    assert channel.memory.held_requests.used <= 1_000_000


@pytest.mark.slow
def test_many_that_are_over_together_are_served_in_parts_and_one_of_each_connection() -> None:
    waits = Waits()
    flood(waits, FakeChannel(), 20_000, wait_ms=5_000)
    honest = waits.hold("U", "honest", wait_ms=5_000)
    waits.now_s += 5.0
    served = slices(waits)
    assert max(served) == TRIES_PER_SLICE
    assert sum(served) == len(waits.over) == 20_001
    # It waits at most until all that are over are known, not until they are served.
    assert waits.over.index(honest) < 20_000 / STEPS_PER_SLICE * TRIES_PER_SLICE
    assert waits.requests.count == 0


def test_a_storm_of_messages_is_served_in_parts_and_one_of_each_connection() -> None:
    waits = Waits()
    hostile = FakeChannel()
    for queue_id in range(5_000):
        waits.hold(queue_id=queue_id, channel=hostile)
    honest = waits.hold("U")
    waits.requests.arrived([("T", queue_id) for queue_id in range(5_000)] + [("U", 0)])
    served = slices(waits)
    assert max(served) == TRIES_PER_SLICE
    assert sum(served) == 5_001
    assert waits.served.index(honest) < 5_000 / STEPS_PER_SLICE * TRIES_PER_SLICE + 2


@pytest.mark.slow
def test_a_message_for_thousands_of_groups_wakes_them_in_parts() -> None:
    waits = Waits()
    channels = [FakeChannel() for _ in range(100)]
    for index in range(10_000):
        waits.hold(group=f"G{index}", channel=channels[index % 100])
    waits.requests.arrived([("T", 0)])
    waits.requests.arrived([("T", 0)])  # before anyone was woken for the first one
    served = slices(waits)
    assert max(served) == TRIES_PER_SLICE
    assert sum(served) == 10_000


def test_a_slice_ends_after_its_time() -> None:
    waits = Waits()
    waits.tick_s = 1.0
    for queue_id in range(5):
        waits.hold(queue_id=queue_id)
    waits.requests.arrived([("T", queue_id) for queue_id in range(5)])
    assert waits.requests.run_slice() == 0
    assert len(waits.served) == 1


def test_the_end_of_a_connection_with_thousands_of_pops_is_no_work_at_once() -> None:
    waits = Waits()
    channel = FakeChannel()
    flood(waits, channel, 5_000)
    channel.closed = True
    waits.requests.channel_closed(channel)  # type: ignore[arg-type]
    assert waits.requests.count == 5_000
    waits.requests.run_slice()
    assert 0 < waits.requests.count <= 5_000
    slices(waits)
    assert waits.requests.count == 0
    assert flood(waits, FakeChannel(), 5_000) == 5_000  # their places are free again


@pytest.mark.parametrize("wait_ms", [1, 49, 0, -1, -(2**63)])
def test_a_flood_of_tiny_poll_times_leaves_nothing(wait_ms: int) -> None:
    waits = Waits()
    for _ in range(1_000):
        assert waits.poll(wait_ms=wait_ms) is Polling.TIMEOUT
    assert waits.requests.count == 0
    assert slices(waits) == [0]


@pytest.mark.slow
def test_requests_that_come_and_go_for_ever_leave_nothing_behind(traced: Callable[[], int]) -> None:
    """Each is woken long before its time is over."""
    waits = Waits()
    channel = FakeChannel()

    def come_and_go(times: int) -> int:
        """Bytes that it took."""
        for _ in range(times):
            assert waits.poll(channel=channel) is Polling.WAITS
            waits.requests.arrived([("T", 0)])
            waits.run()
        return traced()

    waits.serve = lambda request, channel: None
    before = come_and_go(100)
    assert come_and_go(5_000) - before < 5_000 * 200  # the keys that the test keeps
    assert waits.requests.count == 0
