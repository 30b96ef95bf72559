"""The plan of a stream: every message once, despite crashes, moved, new and missing queues."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client.errors import ConnectError
from trocket.spark.errors import DataLossError, SparkConnectorError
from trocket.spark.missing_queues import Missing
from trocket.spark.queue_offsets import Queue, StreamOffset, lag
from trocket.spark.source_options import source_options
from trocket.spark.stream_plan import StreamPlan, batch_ranges

A, B, C = (Queue("T", "b", queue_id) for queue_id in range(3))


class FakeCluster:
    """Queues as dicts of their ends, and what was asked and committed."""

    def __init__(self, **ends) -> None:
        self.ends = {Queue("T", "b", "abc".index(key)): end for key, end in ends.items()}
        self.first = {}
        self.committed = {}
        self.sizes = {}
        self.call_count = 0
        self.is_refusing = False
        self.reasons = {}
        self.hidden = set()
        self.asked_for = []

    def queues(self, options, *, is_strict=True):
        return sorted(self.ends.keys() - self.hidden)

    def missing(self, queues):
        self.asked_for += queues
        return {queue: self.reasons.get(queue, Missing.AWAY) for queue in queues}

    def max_offset(self, queue):
        self.call_count += 1
        return self.ends[queue]

    def min_offset(self, queue):
        self.call_count += 1
        return self.first.get(queue, 0)

    def offset_at(self, queue, timestamp_ms):
        raise AssertionError

    def committed_offset(self, queue, group):
        return None

    def mean_size(self, queue, offset, group):
        return self.sizes.get(queue)

    def commit_offset(self, queue, group, offset):
        if self.is_refusing:
            raise ConnectError("b", "gone")
        self.committed[queue] = offset


class Time:
    """A clock that advances when a caller waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def wait(self, seconds) -> None:
        self.now += seconds


def plan_of(cluster, time=None, **given):
    options = source_options({"nameServer": "a:1", "topic": "T", **given})
    time = time or Time()
    return StreamPlan(options, lambda: cluster, lambda: time.now, time.wait)


def again(offset: StreamOffset) -> StreamOffset:
    """As Spark gives it back."""
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))


def step(plan, start, count=None, *, all_of_it=False):
    """The next start, and the ranges of the batch up to it; None: there is none."""
    end = plan.next_end(start, count, all_of_it=all_of_it)
    if end is None:
        return None
    return again(end), {
        each.queue: (each.start, each.end) for each in batch_ranges(start, end) if each.size
    }


def test_a_crash_in_the_first_batch_loses_nothing_though_latest_moved() -> None:
    cluster = FakeCluster(a=100, b=5)
    plan = plan_of(cluster)
    start = again(plan.initial())
    assert start.is_boot
    assert plan.initial() == plan.initial()
    cluster.ends[A] = 120
    end, ranges = step(plan, start)
    assert ranges == {A: (100, 120)}
    # Another process asks anew where the query begins, and gets the end that was written down.
    cluster.ends[A] = 150
    moved = again(plan_of(cluster).initial())
    assert moved.offsets[A] == 150
    assert {(r.start, r.end) for r in batch_ranges(moved, end) if r.size} == {(100, 120)}


def test_the_beginning_is_written_down_by_an_empty_batch_at_once() -> None:
    cluster = FakeCluster(a=100)
    plan = plan_of(cluster)
    end, ranges = step(plan, again(plan.initial()))
    assert (ranges, end.offsets, end.init, end.is_boot) == ({}, {A: 100}, {A: 100}, False)
    # Messages that arrive while no query runs are read by the next one.
    cluster.ends[A] = 130
    _, ranges = step(plan_of(cluster), end)
    assert ranges == {A: (100, 130)}


def test_without_news_there_is_no_batch_and_few_questions() -> None:
    cluster, time = FakeCluster(a=1, b=1, c=1), Time()
    plan = plan_of(cluster, time)
    start, _ = step(plan, again(plan.initial()))
    for _ in range(50):
        assert step(plan, start) is None
    began, before = time.now, cluster.call_count
    for _ in range(100):
        assert step(plan, start) is None
    assert (cluster.call_count - before) / (time.now - began) <= 5.1
    cluster.ends[B] = 2
    _, ranges = step(plan, start)
    assert ranges == {B: (1, 2)}


def test_a_limit_of_bytes_is_kept_by_what_the_next_messages_take() -> None:
    cluster = FakeCluster(a=1000, b=3000)
    plan = plan_of(cluster, startingOffsets="earliest", maxBytesPerTrigger="40000")
    cluster.sizes = {A: 100.0, B: 500.0}
    start, ranges = step(plan, again(plan.initial()), 10**9)
    assert ranges == {A: (0, 25), B: (0, 75)}
    assert 25 * 100 + 75 * 500 == 40_000
    # Messages as large as the limit come one by one, and a smaller number still counts.
    cluster.sizes = {A: 1e9, B: 1e9}
    assert step(plan, start, 10**9)[1] == {A: (25, 26), B: (75, 76)}
    cluster.sizes = {A: 1.0, B: 1.0}
    assert step(plan, start, 4)[1] == {A: (25, 26), B: (75, 78)}
    assert step(plan, start, None, all_of_it=True)[1] == {A: (25, 1000), B: (75, 3000)}


def test_a_limit_is_kept_and_the_rest_comes_next() -> None:
    cluster = FakeCluster(a=1000, b=10)
    plan = plan_of(cluster, startingOffsets="earliest")
    start = again(plan.initial())
    seen: dict[Queue, int] = {}
    while (found := step(plan, start, 100)) is not None:
        start, ranges = found
        assert sum(end - first for first, end in ranges.values()) <= 102
        for queue, (first, end) in ranges.items():
            assert first == seen.get(queue, 0)
            seen[queue] = end
    assert seen == {A: 1000, B: 10}
    assert step(plan_of(cluster), StreamOffset({A: 0, B: 0}), 5, all_of_it=True)[1] == {
        A: (0, 1000), B: (0, 10)}  # fmt: skip


def test_a_minimum_waits_for_it_or_for_its_time() -> None:
    cluster, time = FakeCluster(a=0), Time()
    plan = plan_of(cluster, time, minOffsetsPerTrigger="10", maxTriggerDelay="60s")
    start, _ = step(plan, again(plan.initial()))
    cluster.ends[A] = 9
    assert step(plan, start) is None
    cluster.ends[A] = 10
    time.now += 1
    start, ranges = step(plan, start)
    assert ranges == {A: (0, 10)}
    cluster.ends[A] = 11
    assert step(plan, start) is None
    time.now += 61
    assert step(plan, start)[1] == {A: (10, 11)}


def test_a_new_queue_is_read_from_its_beginning_also_after_a_crash() -> None:
    cluster, time = FakeCluster(a=5), Time()
    plan = plan_of(cluster, time, queueDiscoveryInterval="30s")
    start, _ = step(plan, again(plan.initial()))
    cluster.ends[B], cluster.first[B] = 9, 3
    assert step(plan, start) is None
    time.now += 31
    end, ranges = step(plan, start)
    assert ranges == {B: (3, 9)}
    assert end.init == {B: 3}
    cluster.first[B] = 0
    assert {(r.start, r.end) for r in batch_ranges(start, end) if r.size} == {(3, 9)}
    assert step(plan, end) is None


def test_now_is_pinned_and_reached_though_more_comes_and_a_queue_appears() -> None:
    cluster = FakeCluster(a=10)
    plan = plan_of(cluster, startingOffsets="earliest")
    start = again(plan.initial())
    plan.pin()
    cluster.ends.update({A: 50, C: 7})
    seen = []
    while (found := step(plan, start, 4)) is not None:
        start, ranges = found
        seen.append(ranges[A])
    assert seen == [(0, 4), (4, 8), (8, 10)]


def test_a_recreated_topic_is_an_error_with_pinned_ends_too() -> None:
    plan = plan_of(FakeCluster(a=1))
    plan.pin()
    with pytest.raises(DataLossError, match="read up to 5, but the queue ends at 1"):
        step(plan, StreamOffset({A: 5}))


def test_what_is_gone_is_an_error_or_a_warning_and_the_rest_is_read(caplog) -> None:
    def lose(**given):
        cluster = FakeCluster(a=100, b=3)
        cluster.first[A] = 40
        plan = plan_of(cluster, **given)
        return step(plan, StreamOffset({A: 10, B: 50}))

    with pytest.raises(DataLossError, match=r"queue 0: the messages \[10, 40\) are gone"):
        lose()
    end, ranges = lose(failOnDataLoss="false")
    assert ranges == {A: (40, 100), B: (0, 3)}
    assert end.offsets == {A: 100, B: 3}
    assert "queue 1: the query has read up to 50, but the queue ends at 3" in caplog.text


def test_a_queue_that_is_not_there_for_a_while_keeps_its_place(caplog) -> None:
    cluster, time = FakeCluster(a=5, b=5), Time()
    plan = plan_of(cluster, time)
    start, _ = step(plan, again(plan.initial()))
    del cluster.ends[B]
    cluster.ends[A] = 6
    time.now += 31
    start, ranges = step(plan, start)
    assert (ranges, start.offsets) == ({A: (5, 6)}, {A: 6, B: 5})
    for _ in range(3):
        assert step(plan, start) is None
    assert caplog.text.count(f"{B}: its broker is not registered") == 1
    assert cluster.asked_for == [B]  # until the queues are looked up again
    cluster.ends[B] = 8
    time.now += 31
    assert step(plan, start)[1] == {B: (5, 8)}


@pytest.mark.parametrize("is_pinned", [False, True], ids=["continuous", "availableNow"])
def test_a_queue_that_is_back_when_it_is_asked_for_is_read_at_once(is_pinned) -> None:
    cluster, time = FakeCluster(a=5, b=5), Time()
    start, _ = step(plan_of(cluster, time), again(plan_of(cluster, time).initial()))
    cluster.hidden = {B}
    cluster.ends[B], cluster.reasons[B] = 8, None
    plan = plan_of(cluster, time)
    if is_pinned:
        plan.pin()
    start, ranges = step(plan, start)
    assert ranges == {B: (5, 8)}
    cluster.ends[B] = 9
    found = step(plan, start)
    assert found is None if is_pinned else found[1] == {B: (8, 9)}


def test_a_topic_that_no_name_server_knows_keeps_its_place_if_loss_is_allowed(caplog) -> None:
    def lose(**given):
        cluster, time = FakeCluster(a=5, b=5), Time()
        plan = plan_of(cluster, time, topic="", topicPattern="T", **given)
        start, _ = step(plan, again(plan.initial()))
        del cluster.ends[B]
        cluster.reasons[B] = Missing.UNKNOWN
        time.now += 31
        assert step(plan, start) is None
        cluster.ends[B] = 9
        time.now += 31
        return step(plan, start)[1]

    with pytest.raises(DataLossError, match="no name server knows the topic T: it was deleted, or"):
        lose()
    assert lose(failOnDataLoss="false") == {B: (5, 9)}
    assert caplog.text.count("data loss") == 1


def test_offsets_are_committed_and_a_refusal_stops_nothing(caplog) -> None:
    cluster, time = FakeCluster(a=5), Time()
    plan = plan_of(cluster, time, consumerGroup="g", startingOffsets="earliest")
    start, _ = step(plan, again(plan.initial()))
    assert cluster.committed == {}  # planned, not done
    step(plan, start)
    assert cluster.committed == {A: 5}
    cluster.is_refusing = True
    plan.commit(StreamOffset({A: 6}))
    assert "committing offset 6 failed" in caplog.text
    cluster.is_refusing = False
    plan.commit(StreamOffset({A: 6}))
    assert cluster.committed == {A: 6}
    other = FakeCluster(a=5)
    plan_of(other).commit(StreamOffset({A: 5}))
    assert other.committed == {}


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=20),
       st.integers(1, 20), st.lists(st.booleans(), min_size=20, max_size=20))  # fmt: skip
def test_whatever_comes_and_crashes_each_message_is_read_once(news, count, crashes) -> None:
    cluster, time = FakeCluster(a=3), Time()
    plan = plan_of(cluster, time)
    start = again(plan.initial())
    begin = dict(start.offsets)
    seen: list[tuple[Queue, int]] = []
    for (key, more), crash in zip([*news, *[("a", 0)] * 200], [*crashes, *[False] * 200],
                                  strict=False):  # fmt: skip
        queue = Queue("T", "b", "abc".index(key))
        cluster.ends[queue] = cluster.ends.get(queue, 0) + more
        time.now += 40
        found = step(plan, start, count)
        if crash:
            # Between plan and commit: planned again by another process, from what was written.
            plan = plan_of(cluster, time)
            if start.is_boot:
                start = again(plan.initial())
        if found is None:
            continue
        ranges = batch_ranges(start, found[0])
        seen += [(r.queue, n) for r in ranges for n in range(r.start, r.end)]
        start = found[0]
    assert len(seen) == len(set(seen))
    assert set(seen) == {
        (queue, n) for queue, end in cluster.ends.items() for n in range(begin.get(queue, 0), end)
    }


def test_lag_is_what_the_progress_says() -> None:
    progress = {
        "latestOffset": StreamOffset({A: 10, B: 4, C: 1}).to_json(),
        "endOffset": StreamOffset({A: 7, B: 4}).to_json(),
    }
    assert lag(progress) == {A: 3, B: 0, C: 0}
    assert lag({"latestOffset": None}) == {}
    # PySpark has offsets as texts.
    assert lag({name: json.dumps(tree) for name, tree in progress.items()}) == {A: 3, B: 0, C: 0}
    assert lag({"latestOffset": "null", "endOffset": None}) == {}
    for other in ("seven", "7", '{"logOffset":0}', {"topic": {"0": 1}}):
        assert lag({"latestOffset": other, "endOffset": other}) == {}


@pytest.mark.parametrize("topics", [{"topic": "U"}, {"topic": "", "topicPattern": "U|V"}], ids=str)
def test_a_checkpoint_of_another_topic_is_refused(topics) -> None:
    cluster = FakeCluster(a=5)
    plan = plan_of(cluster, startingOffsets="earliest")
    done, ranges = step(plan, plan.initial())
    assert ranges == {A: (0, 5)}
    with pytest.raises(
        SparkConnectorError, match=r"checkpoint is of T, but the query reads U.*own"
    ):
        step(plan_of(cluster, **topics), done)
    # Of other topics beside its own it may be.
    cluster.ends[A] = 7
    assert step(plan_of(cluster, topic="", topics="U,T"), done)[1] == {A: (5, 7)}
