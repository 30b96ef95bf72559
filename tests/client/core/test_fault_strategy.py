"""client/core/fault_strategy.py: turns, retries, slow brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core.fault_strategy import (
    FaultStrategy,
    RoundRobinIndex,
)
from trocket.client.core.routes import TopicPublishInfo
from trocket.remoting.bodies import MessageQueue

from .apache_tables import table


def info_of(**counts: int) -> TopicPublishInfo:
    """The queues of brokers, given how many each has."""
    queues = [MessageQueue("T", name, n) for name, count in counts.items() for n in range(count)]
    return TopicPublishInfo("T", tuple(queues))


def picked(strategy, info, count, *, index=None, **options) -> str:
    """The brokers' names of the given number of picks, in order."""
    index = index or RoundRobinIndex(-1)
    queues = [strategy.select(info, index, **options) for _ in range(count)]
    return "".join(queue.broker_name for queue in queues)


def test_a_latency_is_avoided_as_long_as_by_apache():
    strategy = FaultStrategy()
    rows = table("latencies")
    assert [[ms, strategy.not_available_ms(ms)] for ms, _ in rows] == rows
    assert strategy.not_available_ms(549.9) == 0
    assert {duration for _, duration in rows} == {0, 2000, 5000, 6000, 10_000, 30_000}


def test_queues_are_taken_in_turn():
    index = RoundRobinIndex(-1)
    info = info_of(a=2, b=1)
    picks = [FaultStrategy().select(info, index) for _ in range(4)]
    assert picks == [*info.queues, info.queues[0]]


@given(start=st.integers(-(2**40), 2**40))
def test_an_index_counts_on_from_anywhere_and_wraps(start):
    index = RoundRobinIndex(start)
    numbers = [index.next() for _ in range(3)]
    assert numbers == [(start + n) % 2**31 for n in (1, 2, 3)]
    index.reset(2**31 - 1)
    assert index.next() == 0


def test_a_retry_goes_to_another_broker():
    info = info_of(a=2, b=2, c=1)
    assert picked(FaultStrategy(), info, 5, last_broker_name="a") == "bbcbb"
    assert picked(FaultStrategy(), info, 4, last_broker_name="b") == "aaca"


def test_a_retry_with_one_broker_goes_to_it_again():
    assert picked(FaultStrategy(), info_of(a=2), 3, last_broker_name="a") == "aaa"


@pytest.mark.parametrize("is_on", [False, True])
def test_without_queues_there_is_none(is_on):
    strategy = FaultStrategy(send_latency_fault_enable=is_on)
    for last in (None, "a"):
        index = RoundRobinIndex()
        assert strategy.select(info_of(), index, now_ms=0, last_broker_name=last) is None


def test_while_the_rules_are_off_nothing_is_learnt():
    strategy = FaultStrategy()
    strategy.update("a", 99_999, True, False, 0)
    assert strategy.is_available("a", 0)
    assert strategy.is_reachable("a")
    assert picked(strategy, info_of(a=1, b=1), 4, now_ms=0) == "abab"


def test_a_slow_broker_is_avoided_until_its_time_is_over():
    strategy = FaultStrategy(send_latency_fault_enable=True)
    strategy.update("a", 600, False, True, 1000)
    assert not strategy.is_available("a", 2999)
    assert strategy.is_available("a", 3000)
    assert picked(strategy, info_of(a=2, b=1), 3, now_ms=2999) == "bbb"
    assert picked(strategy, info_of(a=2, b=1), 3, now_ms=3000) == "aab"


def test_a_quick_answer_does_not_end_the_time_of_a_slow_one():
    strategy = FaultStrategy(send_latency_fault_enable=True)
    strategy.update("a", 600, False, True, 0)
    strategy.update("a", 10, False, True, 100)
    strategy.update("a", 600, False, True, -500)
    assert not strategy.is_available("a", 1999)
    assert strategy.is_available("a", 2000)


def test_a_failed_send_counts_as_ten_seconds():
    strategy = FaultStrategy(send_latency_fault_enable=True)
    strategy.update("a", 3, True, True, 0)
    assert not strategy.is_available("a", 9999)
    assert strategy.is_available("a", 10_000)
    assert strategy.tolerance.items["a"].current_latency_ms == 3


def test_when_all_are_slow_the_reachable_ones_are_taken():
    strategy = FaultStrategy(send_latency_fault_enable=True)
    for name in "abc":
        strategy.update(name, 20_000, True, name != "b", 0)
    assert picked(strategy, info_of(a=1, b=1, c=1), 4, now_ms=1) == "acac"
    assert picked(strategy, info_of(a=1, b=1, c=1), 2, now_ms=1, last_broker_name="a") == "cc"


def test_when_none_is_left_the_next_in_turn_is_taken():
    strategy = FaultStrategy(send_latency_fault_enable=True)
    strategy.update("a", 0, True, False, 0)
    strategy.update("b", 0, True, False, 0)
    assert set(picked(strategy, info_of(a=1, b=1), 4, now_ms=1)) == {"a", "b"}
    assert picked(strategy, info_of(a=1), 1, now_ms=1, last_broker_name="a") == "a"


@given(
    counts=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), min_size=1),
    slow=st.sets(st.sampled_from("abcd")),
    gone=st.sets(st.sampled_from("abcd")),
    last=st.none() | st.sampled_from("abcd"),
    start=st.integers(0, 20),
)
def test_the_best_brokers_there_are_are_taken(counts, slow, gone, last, start):
    strategy = FaultStrategy(send_latency_fault_enable=True)
    for name in slow | gone:
        strategy.update(name, 700, False, name not in gone, 0)
    others = counts.keys() - {last}
    best = others - slow - gone or others - gone or counts.keys()
    index = RoundRobinIndex(start)
    info = info_of(**counts)
    seen = {strategy.select(info, index, now_ms=5, last_broker_name=last) for _ in range(40)}
    assert {queue.broker_name for queue in seen} == best
    assert seen == {queue for queue in info.queues if queue.broker_name in best}


def test_tables_of_ones_own_are_used_and_checked():
    strategy = FaultStrategy(
        send_latency_fault_enable=True,
        latency_max_ms=(10, 20),
        not_available_duration_ms=(1, 2),
    )
    assert [strategy.not_available_ms(ms) for ms in (9, 10, 20)] == [0, 1, 2]
    with pytest.raises(ValueError, match="1 latencies and 2 durations"):
        FaultStrategy(latency_max_ms=(10,), not_available_duration_ms=(1, 2))
    with pytest.raises(ValueError, match="do not ascend"):
        FaultStrategy(latency_max_ms=(20, 10), not_available_duration_ms=(1, 2))
