"""Sends: what is stored, what is answered, what is refused."""

from __future__ import annotations

from typing import Any, Final

import pytest

from trocket import SimpleConsumer
from trocket.common.java_hash import java_hash_code
from trocket.grpc_protocol.enums import MessageType
from trocket.grpc_server.methods.sending import consistent_hash
from trocket.testing import Broker

from .caller import Caller, message


@pytest.fixture(scope="module", autouse=True)
def _topics(broker: Broker) -> None:
    broker.create_topic("T")
    broker.create_topic("Fifo", message_type="FIFO")
    broker.create_topic("Later", message_type="DELAY")
    broker.create_topic("Closed", perm=4)


def test_a_message_is_stored_with_its_properties(broker: Broker, caller: Caller) -> None:
    entry = caller.send(
        "T", b"stored", message_id="01FF", tag="a", keys=["k1", "k2"], trace_context="t",
        user_properties={"colour": "blå"},
    )  # fmt: skip
    assert entry.status.code == 20000
    assert entry.message_id == "01FF"
    (found,) = [each for each in broker.messages("T") if each.body == b"stored"]
    assert (found.tags, found.keys) == ("a", "k1 k2")
    assert found.properties["colour"] == "blå"


def test_several_messages_of_a_request_are_a_batch(broker: Broker, caller: Caller) -> None:
    sent = [message("T", b"batch %d" % number, message_id=f"B{number}") for number in range(5)]
    answer = caller.call("SendMessage", messages=sent)
    assert answer.status.code == 20000
    assert [each.message_id for each in answer.entries] == [f"B{number}" for number in range(5)]
    first = answer.entries[0].offset
    assert [each.offset for each in answer.entries] == list(range(first, first + 5))
    stored = [each.body for each in broker.messages("T") if each.body.startswith(b"batch")]
    assert sorted(stored) == [each.body for each in sent]


def test_the_messages_of_a_group_are_in_one_queue(broker: Broker, caller: Caller) -> None:
    for number in range(4):
        caller.send("Fifo", b"%d" % number, message_group="g", message_type=MessageType.FIFO)
    found = broker.messages("Fifo")
    assert {each.queue_id for each in found} == {consistent_hash(java_hash_code("g"), 8)}
    assert [each.body for each in found] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("key", "count", "expected"),
    [
        (0, 100, 0), (1, 100, 55), (2, 100, 62), (3, 100, 8), (19, 100, 83),
        (10863919174838991, 11, 6), (2016238256797177309, 11, 3), (1673758223894951030, 11, 5),
        (2, 100001, 80343), (2201, 100001, 22152), (2202, 100001, 15018), (-7, 1, 0),
    ],
)  # fmt: skip
def test_the_hash_is_that_of_guava(key: int, count: int, expected: int) -> None:
    """Source: HashingTest of Guava."""
    assert consistent_hash(key, count) == expected


FAR: Final = {"seconds": 4_102_444_800}
"""In the year 2100."""


def test_a_topic_of_several_types_takes_any() -> None:
    with (
        Broker(config={"enableMixedMessageType": True}) as broker,
        Caller(broker.broker_address) as caller,
    ):
        broker.create_topic("Any", message_type="MIXED")
        for system in ({}, {"message_group": "g"}, {"priority": 1}, {"lite_topic": "l"}):
            caller.send("Any", b"x", **system)


def test_a_message_is_born_when_its_client_says(broker: Broker, caller: Caller) -> None:
    broker.create_topic("Born")
    caller.send("Born", b"early", born_timestamp={"seconds": 1_000_000_000})
    caller.send("Born", b"never", born_timestamp={"seconds": -5})
    born = {each.body: each.born_timestamp_ms for each in broker.messages("Born")}
    assert born[b"early"] == 1_000_000_000_000
    assert born[b"never"] > born[b"early"]


@pytest.mark.parametrize(
    ("topic", "changed", "code"),
    [
        ("T", {"body": b""}, 41302),
        ("T", {"body": bytes(4 * 1024 * 1024 + 1)}, 41301),
        ("T", {"message_id": ""}, 40009),
        ("T", {"message_id": " "}, 40009),
        ("T", {"tag": " "}, 40004),
        ("T", {"tag": "a|b"}, 40004),
        ("T", {"tag": "a\x01"}, 40004),
        ("T", {"keys": [" "]}, 40005),
        ("T", {"keys": ["a\x02"]}, 40005),
        ("T", {"user_properties": {"KEYS": "x"}}, 40007),
        ("T", {"user_properties": {"a\x01": "x"}}, 40007),
        ("T", {"user_properties": {"a": "x\x02"}}, 40007),
        ("T", {"user_properties": {f"p{n}": "x" for n in range(129)}}, 43101),
        ("T", {"user_properties": {"p": "x" * 16384}}, 43101),
        ("T", {"tag": "t" * 16385}, 43101),
        ("T", {"keys": ["k" * 10_000, "l" * 10_000]}, 43101),
        ("T", {"lite_topic": "a b"}, 40020),
        ("T", {"lite_topic": "a" * 65}, 40020),
        ("T", {"lite_topic": "a"}, 40014),
        ("T", {"message_group": "g"}, 40014),
        ("T", {"delivery_timestamp": FAR}, 40012),
        ("T", {"message_type": MessageType.TRANSACTION}, 40014),
        ("Fifo", {}, 40014),
        ("Fifo", {"message_group": "g" * 64}, 40006),
        ("Fifo", {"message_group": " "}, 40006),
        ("Later", {"delivery_timestamp": FAR}, 40012),
        ("Nowhere", {}, 40402),
        ("a b", {}, 40002),
        ("Closed", {}, 40300),
    ],
)
def test_refusals(caller: Caller, topic: str, changed: dict[str, Any], code: int) -> None:
    answer = caller.call("SendMessage", messages=[message(topic, **changed)])
    assert answer.status.code == code
    assert answer.status.message
    assert not answer.entries


def test_a_request_is_of_one_topic_and_not_empty(caller: Caller) -> None:
    assert caller.call("SendMessage").status.code == 40016
    answer = caller.call("SendMessage", messages=[message("T"), message("Fifo")])
    assert answer.status.code == 40016


def test_a_delayed_message_has_a_handle_and_comes_later() -> None:
    with Broker() as broker, Caller(broker.broker_address) as caller:
        broker.create_topic("Later", message_type="DELAY")
        due = {"seconds": broker.now_ms // 1000 + 3600}
        entry = caller.send("Later", b"later", delivery_timestamp=due)
        assert entry.recall_handle
        assert not broker.messages("Later")
        broker.advance(seconds=3601)
        assert [each.body for each in broker.messages("Later")] == [b"later"]


async def test_a_consumer_of_remoting_gets_what_grpc_sent(broker: Broker, caller: Caller) -> None:
    broker.create_topic("Both")
    consumer = SimpleConsumer(broker.url, group="remoting", subscriptions={"Both": "*"})
    async with consumer:
        assert await consumer.receive(wait_s=0.1) == []
        caller.send("Both", b"across", tag="a")
        (found,) = await consumer.receive(wait_s=10)
        assert (found.body, found.tags) == (b"across", "a")


@pytest.mark.parametrize("handle", ["", "AAAA", "no base64!", "djEgYQ=="])
def test_what_is_no_recall_handle_is_refused(caller: Caller, handle: str) -> None:
    answer = caller.call("RecallMessage", topic={"name": "Later"}, recall_handle=handle)
    assert (answer.status.code, answer.status.message) == (50001, "recall handle is invalid")


def test_nothing_is_recalled_from_a_topic_that_delays_nothing(
    broker: Broker, caller: Caller
) -> None:
    broker.create_topic("Plain")
    answer = caller.call("RecallMessage", topic={"name": "Plain"}, recall_handle="AAAA")
    assert answer.status.code == 40014
    assert "expected type is NORMAL, but actual type is DELAY" in answer.status.message


def test_a_delayed_message_is_taken_back() -> None:
    with (
        Broker(config={"recallMessageEnable": True}) as broker,
        Caller(broker.broker_address) as caller,
    ):
        broker.create_topic("Later", message_type="DELAY")
        due = {"seconds": broker.now_ms // 1000 + 3600}
        entry = caller.send("Later", b"recalled", message_id="01AC", delivery_timestamp=due)
        topic = {"name": "Later"}
        answer = caller.call("RecallMessage", topic=topic, recall_handle=entry.recall_handle)
        assert (answer.status.code, answer.message_id) == (20000, "01AC")
        broker.advance(seconds=3601)
        assert not broker.messages("Later")
