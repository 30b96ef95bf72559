"""Plans for static topics: new ones, more queues, moves, and the rest of a failed change."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from trocket.client import ConfigurationError
from trocket.client.core.static_topics import (
    plan_completion,
    plan_move,
    plan_static_topic,
    rounded_up,
    with_logic_offsets,
    with_other_brokers,
)

NOW = 1_700_000_000_000


def created(queues=4, brokers=("a", "b")):
    return plan_static_topic("T", queues, brokers, {}, now_ms=NOW)


def hosted(plan, broker):
    return plan.configs[broker].mapping_detail.hosted_queues


def test_queues_are_spread_over_the_brokers():
    plan = created()
    assert plan.leaders == {0: "a", 1: "b", 2: "a", 3: "b"}
    assert (plan.epoch, plan.moved) == (NOW, {})
    for name, config in plan.configs.items():
        assert (config.topic_name, config.read_queue_nums, config.write_queue_nums) == ("T", 2, 2)
        detail = config.mapping_detail
        assert (detail.bname, detail.total_queues, detail.epoch) == (name, 4, NOW)
        assert [items[0].queue_id for items in detail.hosted_queues.values()] == [0, 1]


def test_more_queues_go_to_the_brokers_with_the_fewest():
    plan = plan_static_topic("T", 6, ["c"], created().configs, now_ms=NOW)
    assert plan.epoch == NOW + 1_000
    assert Counter(plan.leaders.values()) == {"a": 2, "b": 2, "c": 2}
    assert {config.mapping_detail.total_queues for config in plan.configs.values()} == {6}
    assert plan.configs["a"].write_queue_nums == 2


@pytest.mark.parametrize(
    ("queues", "brokers", "remark"),
    [
        (3, ["a"], "Cannot decrease the queue num for static topic 3 < 4"),
        (4, ["a"], "The topic queue num is equal the existed queue num, do nothing"),
        (0, ["a"], "has 1 to 65536 queues, not 0"),
        (70_000, ["a"], "has 1 to 65536 queues, not 70000"),
        (5, [], "no broker is given"),
    ],
)
def test_a_number_of_queues_that_cannot_be_is_refused(queues, brokers, remark):
    with pytest.raises(ConfigurationError, match=remark):
        plan_static_topic("T", queues, brokers, created().configs, now_ms=NOW)


def test_a_move_moves_as_few_queues_as_possible():
    plan = plan_move("T", ["a", "c"], created().configs, now_ms=NOW)
    assert plan.leaders == {0: "a", 1: "c", 2: "a", 3: "c"}
    assert plan.moved == {1: "b", 3: "b"}
    assert (plan.brokers_in, plan.brokers_out) == (["c"], ["b"])
    items = hosted(plan, "c")[3]
    assert items == hosted(plan, "b")[3]
    assert [(each.gen, each.bname, each.queue_id, each.logic_offset) for each in items] == [
        (0, "b", 1, 0),
        (1, "c", 1, -1),
    ]
    assert plan_move("T", ["a", "b"], created().configs, now_ms=NOW).moved == {}


def test_the_logic_offsets_of_moved_queues_leave_a_gap():
    plan = plan_move("T", ["b"], created().configs, now_ms=NOW)
    decided = with_logic_offsets(plan, {0: 3, 2: 7_000})
    assert [hosted(decided, "b")[queue_id][-1].logic_offset for queue_id in (0, 2)] == [
        10_000,
        20_000,
    ]
    assert hosted(decided, "a")[0] == hosted(decided, "b")[0]
    again = plan_move("T", ["a"], decided.configs, now_ms=NOW)
    assert [item.gen for item in hosted(again, "a")[0]] == [0, 1, 2]
    assert [rounded_up(offset) for offset in (0, 4_999, 5_000, 10_000)] == [
        10_000,
        10_000,
        20_000,
        20_000,
    ]


def test_the_other_brokers_of_the_cluster_get_the_topic_without_queues():
    plan = with_other_brokers(created(), ["a", "b", "c"])
    config = plan.configs["c"]
    assert (config.read_queue_nums, config.write_queue_nums) == (0, 0)
    assert config.mapping_detail.epoch == plan.epoch
    assert config.mapping_detail.total_queues == 4
    assert config.mapping_detail.hosted_queues == {}


def test_a_topic_that_is_not_static_or_contradicts_itself_is_refused():
    configs = created().configs
    plain = {**configs, "b": msgspec.structs.replace(configs["b"], mapping_detail=None)}
    with pytest.raises(ConfigurationError, match="T is not static there"):
        plan_move("T", ["a"], plain, now_ms=NOW)
    few = msgspec.structs.replace(configs["a"], write_queue_nums=1)
    with pytest.raises(ConfigurationError, match="overflow the write queues"):
        plan_move("T", ["a"], {**configs, "a": few}, now_ms=NOW)
    with pytest.raises(ConfigurationError, match="does not match the real hosted queues 4 != 2"):
        plan_move("T", ["a"], {"a": configs["a"]}, now_ms=NOW)
    detail = msgspec.structs.replace(configs["a"].mapping_detail, epoch=NOW + 1)
    other = msgspec.structs.replace(configs["a"], mapping_detail=detail)
    with pytest.raises(ConfigurationError, match="epoch does not match"):
        plan_move("T", ["a"], {**configs, "a": other}, now_ms=NOW)
    with pytest.raises(ConfigurationError, match="no broker has a topic"):
        plan_move("T", ["a"], {}, now_ms=NOW)


def test_nothing_is_completed_where_the_brokers_agree():
    assert plan_completion("T", created().configs, now_ms=NOW) is None
    assert plan_completion("T", {}, now_ms=NOW) is None


@pytest.mark.parametrize("told", [{"b"}, {"a", "b"}])
def test_a_move_that_failed_is_completed(told):
    before = created().configs
    plan = plan_move("T", ["b"], before, now_ms=NOW)
    present = {name: (plan.configs if name in told else before)[name] for name in before}
    rest = plan_completion("T", present, now_ms=NOW)
    assert rest is not None
    assert rest.moved == plan.moved
    assert rest.leaders == plan.leaders
    assert rest.epoch > plan.epoch
    decided = with_logic_offsets(rest, {0: 1, 2: 1})
    assert plan_completion("T", decided.configs, now_ms=NOW) is None
    assert plan_move("T", ["b"], decided.configs, now_ms=NOW).moved == {}


def test_a_queue_without_items_tells_nothing():
    configs = created().configs
    detail = configs["b"].mapping_detail
    detail = msgspec.structs.replace(
        detail, epoch=NOW - 1, hosted_queues={**detail.hosted_queues, 0: []}
    )
    present = {**configs, "b": msgspec.structs.replace(configs["b"], mapping_detail=detail)}
    rest = plan_completion("T", present, now_ms=NOW)
    assert rest is not None
    assert rest.leaders == created().leaders


def test_a_creation_that_failed_is_completed():
    plan = created()
    rest = plan_completion("T", {"a": plan.configs["a"]}, now_ms=NOW)
    assert rest is None, "there is nothing to complete with one broker"
    more = plan_static_topic("T", 4, ["a", "b"], {"a": plan.configs["a"]}, now_ms=NOW)
    assert Counter(more.leaders.values()) == {"a": 2, "b": 2}
