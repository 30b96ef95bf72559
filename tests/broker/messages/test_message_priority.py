"""Priority messages: where a send puts them, and the order in which a pop reads queues."""

from __future__ import annotations

import pytest

from trocket.broker.messages.message_priority import (
    place_by_priority,
    pops_by_priority,
    queues_to_read,
)
from trocket.common.message_properties import properties_from_bytes
from trocket.native import extension
from trocket.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.response_codes import ResponseCode

from ...kit import broker_client, long_names, pull_fields, send_fields

PRIORITY = "_SYS_MSG_PRIORITY_"


def properties(**values):
    items = {"UNIQ_KEY": "0123456789ABCDEF", **values}
    return "".join(f"{name}\1{value}\2" for name, value in items.items())


@pytest.mark.parametrize(
    ("priority", "queue_id"),
    [
        ("0", 0), ("2", 2), ("3", 3), ("4", 3), ("2147483647", 3), ("+2", 2), ("02", 2),
        ("-1", 1), ("x", 1), ("", 1), ("2147483648", 1), (" 2", 1), ("1" * 400, 1),
    ],
)  # fmt: skip
def test_a_priority_is_a_queue_and_another_text_is_a_users_property(priority, queue_id):
    raw = properties(**{PRIORITY: priority}).encode()
    assert place_by_priority(raw, 1, 4) == (queue_id, raw)


@pytest.mark.parametrize(
    ("name", "value", "loses"),
    [
        ("DELAY", "3", True),
        ("TIMER_DELIVER_MS", "5", True),
        ("TIMER_DELAY_SEC", "5", True),
        ("TIMER_DELAY_MS", "5", True),
        ("__SHARDINGKEY", "k", True),
        ("TRAN_MSG", "true", True),
        ("TRAN_MSG", "TRUE", True),
        ("TRAN_MSG", "false", False),
        ("KEYS", "k", False),
    ],
)
def test_a_message_of_another_type_loses_its_priority(name, value, loses):
    raw = properties(**{PRIORITY: "2", name: value}).encode()
    queue_id, after = place_by_priority(raw, 1, 4)
    assert queue_id == (1 if loses else 2)
    assert (PRIORITY in properties_from_bytes(after)) is not loses
    assert properties_from_bytes(after)[name] == value


@pytest.mark.parametrize(
    ("message_type", "factor", "percent", "by_priority"),
    [
        ("PRIORITY", None, 99, True),
        ("PRIORITY", "100", 99, True),
        ("PRIORITY", "50", 49, True),
        ("PRIORITY", "50", 50, False),
        ("PRIORITY", "0", 0, False),
        ("PRIORITY", "x", 99, True),
        ("NORMAL", None, 0, False),
        (None, "100", 0, False),
    ],
)
def test_a_pop_goes_by_priority_if_topic_and_group_say_so(
    message_type, factor, percent, by_priority
):
    topic = TopicConfig(
        topic_name="T", attributes={"message.type": message_type} if message_type else {}
    )
    group = SubscriptionGroupConfig(
        group_name="G", attributes={"priority.factor": factor} if factor else {}
    )
    assert pops_by_priority(topic, group, percent) is by_priority


@pytest.mark.parametrize(
    ("first", "is_ascending", "queues"),
    [
        (0, True, [3, 2, 1, 0]),
        (0, False, [0, 1, 2, 3]),
        (5, True, [0, 3, 2, 1]),
        (5, False, [1, 2, 3, 0]),
    ],
)
def test_the_queue_of_the_highest_priority_is_read_first(first, is_ascending, queues):
    assert queues_to_read(4, first, is_ascending=is_ascending) == queues


@pytest.mark.parametrize("native", [extension, None])
@pytest.mark.parametrize("code", [10, 310])
async def test_a_send_with_a_priority_is_stored_in_its_queue_and_says_so(native, code):
    fields = send_fields(i=properties(**{PRIORITY: 3, "TAGS": "A"}))
    if code == 10:
        fields = long_names(fields)
    async with broker_client(native=native) as client:
        for _ in range(3):
            answer = await client.ask(code, fields, b"x")
            assert (answer.code, answer.ext_fields["queueId"]) == (ResponseCode.SUCCESS, "3")
        pull = await client.ask(11, pull_fields("T", 3))
        messages = decode_messages(pull.body)
    assert [message.properties[PRIORITY] for message in messages] == ["3"] * 3
    assert {message.queue_id for message in messages} == {3}


@pytest.mark.slow
async def test_a_delayed_message_stays_in_its_queue_without_a_priority():
    async with broker_client() as client:
        answer = await client.ask(310, send_fields(i=properties(**{PRIORITY: 3, "DELAY": 1})), b"x")
        assert (answer.code, answer.ext_fields["queueId"]) == (ResponseCode.SUCCESS, "0")
        pull = await client.ask(11, pull_fields("T", 0))
        (message,) = decode_messages(pull.body)
    assert PRIORITY not in message.properties
