"""broker/tables/topic_queues.py: numbers of queues that can be used."""

from __future__ import annotations

from random import Random

import pytest

from trocket.broker.tables.topic_queues import (
    any_queue,
    bounded_topic,
    mended_group,
    mended_topic,
    retry_queue_count,
)
from trocket.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from trocket.remoting.errors import RequestRefused
from trocket.remoting.number_fields import QUEUE_COUNT_MAX
from trocket.remoting.response_codes import ResponseCode


def topic(read: int, write: int) -> TopicConfig:
    return TopicConfig(topic_name="T", read_queue_nums=read, write_queue_nums=write)


@pytest.mark.parametrize(
    ("counts", "mended"),
    [
        ((4, 4), (4, 4)),
        ((4, 0), (4, 0)),  # being drained
        ((4, -1), (4, 0)),
        ((0, 0), (1, 1)),
        ((0, 8), (8, 8)),
        ((-5, 8), (8, 8)),
        ((-1, -1), (1, 1)),
        ((100_000, 100_000), (100_000, 100_000)),
    ],
)
def test_a_topic_of_an_old_table_can_be_read(counts, mended, caplog):
    made = mended_topic(topic(*counts))
    assert (made.read_queue_nums, made.write_queue_nums) == mended
    assert bool(caplog.records) == (counts != mended or counts[0] > QUEUE_COUNT_MAX)


@pytest.mark.parametrize(
    ("counts", "stored_count", "bounded"),
    [
        ((100_000, 4), 0, (4, 4)),
        ((4, 100_000), 6, (6, 6)),
        ((100_000, 100_000), 0, (8, 8)),
        ((100_000, 100_000), 12, (12, 12)),
        ((100_000, 4), 70_000, (70_000, 70_000)),  # messages lie in those queues
        ((100_000, 0), 0, (1, 0)),
        ((4, 0), 4, (4, 4)),
    ],
)
def test_a_topic_of_wrong_counts_covers_the_queues_of_the_store(
    counts, stored_count, bounded, caplog
):
    made = bounded_topic(topic(*counts), stored_count, 8, "topics.json")
    assert (made.read_queue_nums, made.write_queue_nums) == bounded
    assert bool(caplog.records) == (max(counts) > QUEUE_COUNT_MAX)


@pytest.mark.parametrize(("counts", "chosen"), [((2, 2), {0, 1}), ((1, 4), {0}), ((4, 1), {0})])
def test_the_broker_chooses_a_queue_that_is_written_and_read(counts, chosen):
    assert {any_queue(topic(*counts), Random(seed)) for seed in range(50)} == chosen


@pytest.mark.parametrize("counts", [(0, 4), (4, 0), (0, 0), (-1, 4)])
def test_there_is_no_queue_to_choose(counts):
    with pytest.raises(RequestRefused, match="readQueueNums") as refused:
        any_queue(topic(*counts), Random(1))
    assert refused.value.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("asked", "made"),
    [(-1, 1), (0, 1), (1, 1), (64, 64), (QUEUE_COUNT_MAX + 1, QUEUE_COUNT_MAX)],
)
def test_a_retry_topic_has_a_bounded_number_of_queues(asked, made):
    assert retry_queue_count(asked) == made


@pytest.mark.parametrize(
    ("count", "used"), [(-1, 1), (QUEUE_COUNT_MAX + 1, QUEUE_COUNT_MAX), (2**31, QUEUE_COUNT_MAX)]
)
def test_a_group_out_of_range_is_brought_into_it(count, used, caplog):
    group = SubscriptionGroupConfig(group_name="g", retry_queue_nums=count)
    assert mended_group(group).retry_queue_nums == used
    assert f"retryQueueNums of group 'g' is {count}" in caplog.text


def test_a_group_that_is_in_range_is_left_as_it_is(caplog):
    for count in (0, 1, QUEUE_COUNT_MAX):
        group = SubscriptionGroupConfig(group_name="g", retry_queue_nums=count)
        assert mended_group(group) is group
    assert caplog.records == []
