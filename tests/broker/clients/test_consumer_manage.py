"""14, 15 and 38."""

from __future__ import annotations

import pytest

from trocket.remoting.codec import NO_EXT_FIELDS
from trocket.remoting.request_codes import RequestCode

from ..harness import BrokerTables, FakeChannel, consumer, heartbeat, subscription

QUEUE = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


def broker_with_topic():
    broker = BrokerTables()
    broker.create_topic("T", 2)
    broker.groups.find("g")
    return broker


def test_the_members_of_a_group_are_listed():
    broker = BrokerTables()
    for name in ("c1", "c2"):
        broker.heartbeat(FakeChannel(), heartbeat(name, consumer("g", subscription("T"))))
    answer = broker.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert (answer.code, answer.body) == (0, b'{"consumerIdList":["c1","c2"]}')


def test_a_group_without_members_is_an_error():
    answer = BrokerTables().ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert (answer.code, answer.remark) == (1, "no consumer for this group, g")
    assert answer.ext_fields is not NO_EXT_FIELDS


def test_what_is_committed_is_answered():
    broker = broker_with_topic()
    broker.store.queues["T", 0] = (0, 7)
    answer = broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, QUEUE | {"commitOffset": "7"})
    assert (answer.code, answer.remark) == (0, None)
    answer = broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE)
    assert (answer.code, answer.ext_fields) == (0, {"offset": "7"})


@pytest.mark.parametrize(
    ("queue", "in_memory", "set_zero", "code", "remark"),
    [
        ((0, 3), True, None, 0, None),
        ((0, 3), True, "true", 0, None),
        (
            (0, 3),
            True,
            "false",
            22,
            "Not found, do not set to zero, maybe this group boot first",
        ),
        ((0, 3), False, None, 22, NOT_FOUND),
        ((1, 3), True, None, 22, NOT_FOUND),
        ((0, 0), True, None, 22, NOT_FOUND),
        (None, True, None, 22, NOT_FOUND),
    ],
)
def test_a_new_group_starts_at_0_where_the_whole_queue_is_in_memory(
    queue, in_memory, set_zero, code, remark
):
    broker = broker_with_topic()
    broker.store.in_memory = in_memory
    if queue is not None:
        broker.store.queues["T", 0] = queue
    fields = QUEUE if set_zero is None else QUEUE | {"setZeroIfNotFound": set_zero}
    answer = broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    assert (answer.code, answer.remark) == (code, remark)
    assert dict(answer.ext_fields) == ({"offset": "0"} if code == 0 else {})


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"consumerGroup": "h"}, 26, "Group h not exist!"),
        ({"topic": "U"}, 17, "Topic U not exist!"),
    ],
)
def test_an_offset_of_an_unknown_group_or_topic_is_refused(more, code, remark):
    broker = broker_with_topic()
    answer = broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, QUEUE | {"commitOffset": "7"} | more)
    assert (answer.code, answer.remark) == (code, remark)
    assert broker.offsets.offset_table == {}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"queueId": "2"}, "topic[T] has no queue 2"),
        ({"queueId": "-1"}, "topic[T] has no queue -1"),
        ({"commitOffset": "-1"}, "it is negative"),
        ({"commitOffset": "8"}, "topic[T] queue 0 ends at 7"),
    ],
)
def test_an_offset_that_nothing_can_have_is_answered_as_apache_does_and_not_stored(more, reason):
    broker = broker_with_topic()
    broker.store.queues["T", 0] = (0, 7)
    fields = QUEUE | {"commitOffset": "7"} | more
    answer = broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert answer.code == 0
    assert answer.remark == f"commitOffset[{fields['commitOffset']}] is not stored: {reason}"
    assert broker.offsets.offset_table == {}


def test_a_queue_that_the_topic_had_until_lately_is_still_committed():
    broker = broker_with_topic()
    broker.store.queues["T", 5] = (0, 9)
    fields = QUEUE | {"queueId": "5", "commitOffset": "7"}
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    assert broker.offsets.query_offset("g", "T", 5) == 7


@pytest.mark.parametrize("missing", ["consumerGroup", "topic", "queueId", "commitOffset"])
def test_a_missing_field_is_named(missing):
    fields = QUEUE | {"commitOffset": "7"}
    del fields[missing]
    answer = broker_with_topic().ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert (answer.code, answer.remark) == (1, f"the custom field <{missing}> is null")
