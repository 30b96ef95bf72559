"""Receives, acknowledgements, invisible times and dead letters."""

from __future__ import annotations

import hashlib
from typing import Any

import grpc
import pytest

from trocket import Message
from trocket.blocking import Producer
from trocket.broker import grpc_clients
from trocket.grpc_server.handle import Handle
from trocket.grpc_server.rules import Rules
from trocket.testing import Broker

from .caller import Caller, receive_fields

BODY = b"a body that zlib makes shorter " * 200


def begun(broker: Broker, caller: Caller, topic: str, **attributes: Any) -> None:
    """Create a topic, and have the group G begin there."""
    broker.create_topic(topic, queues=1, **attributes)
    assert caller.finds_nothing(topic, "G")


def ack(caller: Caller, topic: str, *messages: Any, group: str = "G") -> Any:
    entries = [
        {
            "message_id": each.system_properties.message_id,
            "receipt_handle": each.system_properties.receipt_handle,
        }
        for each in messages
    ]
    return caller.call("AckMessage", topic={"name": topic}, group={"name": group}, entries=entries)


def test_a_received_message_is_complete(broker: Broker, caller: Caller) -> None:
    begun(broker, caller, "Complete")
    caller.send("Complete", b"hello", message_id="01EE", tag="a", keys=["k1", "k2"],
                user_properties={"colour": "red"}, trace_context="t")  # fmt: skip
    (message,) = caller.receive("Complete", "G")
    system = message.system_properties
    assert (message.topic.name, message.body) == ("Complete", b"hello")
    assert dict(message.user_properties) == {"colour": "red", "TRACE_CONTEXT": "t"}
    assert (system.message_id, system.tag, list(system.keys)) == ("01EE", "a", ["k1", "k2"])
    assert system.body_digest.type == 2
    assert system.body_digest.checksum == hashlib.md5(b"hello").hexdigest().upper()
    assert (system.body_encoding, system.message_type, system.delivery_attempt) == (1, 1, 1)
    assert (system.queue_id, system.queue_offset, system.trace_context) == (0, 0, "t")
    assert system.born_host
    assert system.store_host
    assert ack(caller, "Complete", message).status.code == 20000


def test_acknowledged_messages_do_not_come_again_and_others_do() -> None:
    with Broker() as broker, Caller(broker.broker_address) as caller:
        begun(broker, caller, "Acked")
        for number in range(4):
            caller.send("Acked", b"%d" % number)
        messages = caller.receive("Acked", "G")
        assert len(messages) == 4
        answer = ack(caller, "Acked", *[each for each in messages if each.body != b"2"])
        assert answer.status.code == 20000
        assert [each.status.code for each in answer.entries] == [20000] * 3
        broker.advance(seconds=20)
        (again,) = caller.receive("Acked", "G")
        assert (again.body, again.system_properties.delivery_attempt) == (b"2", 2)


def test_a_handle_that_is_over_or_is_none_is_refused_alone() -> None:
    with Broker() as broker, Caller(broker.broker_address) as caller:
        begun(broker, caller, "Over")
        caller.send("Over", b"1")
        (message,) = caller.receive("Over", "G")
        assert Handle.from_text(message.system_properties.receipt_handle).physical_offset >= 0
        broken = type(message)()
        broken.CopyFrom(message)
        broken.system_properties.receipt_handle = "no handle"
        answer = ack(caller, "Over", message, broken)
        assert [each.status.code for each in answer.entries] == [20000, 40013]
        assert answer.status.code == 30000
        broker.advance(seconds=20)
        answer = ack(caller, "Over", message)
        assert (answer.status.code, answer.entries[0].status.message) == (
            40013,
            "receipt handle is expired",
        )
        assert caller.call("AckMessage", topic={"name": "Over"}, group={"name": "G"}).status.code


def test_an_invisible_time_can_be_changed() -> None:
    with Broker() as broker, Caller(broker.broker_address) as caller:
        begun(broker, caller, "Changed")
        caller.send("Changed", b"1")
        (message,) = caller.receive("Changed", "G")
        answer = caller.call(
            "ChangeInvisibleDuration",
            topic={"name": "Changed"},
            group={"name": "G"},
            receipt_handle=message.system_properties.receipt_handle,
            invisible_duration={"seconds": 100},
        )
        assert answer.status.code == 20000
        broker.advance(seconds=50)
        message.system_properties.receipt_handle = answer.receipt_handle
        assert ack(caller, "Changed", message).status.code == 20000
        broker.advance(seconds=100)
        assert caller.finds_nothing("Changed", "G")


def test_a_message_becomes_a_dead_letter(broker: Broker, caller: Caller) -> None:
    begun(broker, caller, "Dead")
    caller.send("Dead", b"letter")
    (message,) = caller.receive("Dead", "G")
    answer = caller.call(
        "ForwardMessageToDeadLetterQueue",
        topic={"name": "Dead"},
        group={"name": "G"},
        receipt_handle=message.system_properties.receipt_handle,
        message_id=message.system_properties.message_id,
        delivery_attempt=1,
        max_delivery_attempts=16,
    )
    assert answer.status.code == 20000
    assert [each.body for each in broker.messages("%DLQ%G")] == [b"letter"]


def test_a_receive_that_is_cancelled_takes_no_message(broker: Broker, caller: Caller) -> None:
    begun(broker, caller, "Cancelled")
    waiting = caller.start("ReceiveMessage", 30, **receive_fields("Cancelled", "G"))
    # The connection serves calls in their order.
    assert caller.call("QueryRoute", topic={"name": "Cancelled"}).status.code == 20000
    waiting.cancel()
    with pytest.raises(grpc.RpcError):
        list(waiting)
    caller.send("Cancelled", b"for another")
    assert [each.body for each in caller.receive("Cancelled", "G")] == [b"for another"]


def test_a_receive_waits_for_a_message(broker: Broker, caller: Caller) -> None:
    begun(broker, caller, "Waited")
    waiting = caller.start("ReceiveMessage", 30, **receive_fields("Waited", "G"))
    assert caller.call("QueryRoute", topic={"name": "Waited"}).status.code == 20000
    caller.send("Waited", b"at last")
    status, found, last = waiting
    assert (status.status.code, found.message.body) == (20000, b"at last")
    assert last.HasField("delivery_timestamp")


def test_tags_and_expressions_select(broker: Broker, caller: Caller) -> None:
    begun(broker, caller, "Selected")
    for tag in ("a", "b", "c"):
        caller.send("Selected", tag.encode(), tag=tag, user_properties={"n": tag})
    tags = {"type": 1, "expression": "a || c"}
    found = caller.receive("Selected", "G", filter_expression=tags)
    assert {each.body for each in found} == {b"a", b"c"}


def test_a_body_that_grpc_clients_cannot_read_is_decompressed(
    broker: Broker, caller: Caller
) -> None:
    begun(broker, caller, "Compressed")
    with Producer(broker.url, group="P", compress_over=100) as producer:
        producer.send(Message("Compressed", BODY))
    (message,) = caller.receive("Compressed", "G")
    assert message.body == BODY
    assert message.system_properties.body_encoding == 1


def test_a_damaged_body_does_not_hold_up_the_messages_beside_it(
    broker: Broker, caller: Caller
) -> None:
    begun(broker, caller, "Damaged")
    caller.send("Damaged", b"no gzip", body_encoding=2)
    caller.send("Damaged", b"whole")
    found = {each.body: each.system_properties.body_encoding for each in received(caller)}
    assert found == {b"no gzip": 2, b"whole": 1}


def received(caller: Caller) -> list[Any]:
    return caller.receive("Damaged", "G")


def test_receives_in_order_without_an_attempt_wait_for_one_another(
    broker: Broker, caller: Caller
) -> None:
    broker.create_group("InLine", consume_message_orderly=True)
    broker.create_topic("Ordered", queues=1, message_type="FIFO")
    queue = {"topic": {"name": "Ordered"}, "id": 0}
    assert caller.finds_nothing("Ordered", "InLine", message_queue=queue)
    for body in (b"1", b"2"):
        caller.send("Ordered", body, message_type=2, message_group="g")

    def next_one() -> list[Any]:
        return caller.receive("Ordered", "InLine", message_queue=queue, batch_size=1)

    (first,) = next_one()
    assert caller.finds_nothing("Ordered", "InLine", message_queue=queue, batch_size=1)
    handle = first.system_properties.receipt_handle
    fields = {"group": {"name": "InLine"}, "topic": {"name": "Ordered"}, "receipt_handle": handle}
    assert caller.call("ChangeInvisibleDuration", **fields).status.code == 20000
    (again,) = next_one()
    assert (again.body, again.system_properties.delivery_attempt) == (b"1", 2)


def test_a_client_without_an_id_gets_its_status_alone(broker: Broker) -> None:
    with Caller(broker.broker_address, "") as caller:
        (part,) = caller.call("ReceiveMessage", **receive_fields("T", "G"))
    assert part.status.code == 40017


@pytest.mark.parametrize("perm", [0, 2])
def test_a_topic_that_cannot_be_read_is_refused(broker: Broker, caller: Caller, perm: int) -> None:
    broker.create_topic(f"Read{perm}", perm=perm)
    parts = caller.call("ReceiveMessage", **receive_fields(f"Read{perm}", "G"))
    assert (parts[0].status.code, parts[0].status.message) == (40300, "no readable queue")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"invisible_duration": {"seconds": 9}}, 40011),
        ({"invisible_duration": {"seconds": 12 * 3600 + 1}}, 40011),
        ({"filter_expression": {"type": 1, "expression": " || "}}, 40010),
        ({"filter_expression": {"type": 2, "expression": ""}}, 40010),
        ({"filter_expression": {"type": 2, "expression": "a >"}}, 50001),
        ({"group": {"name": "a b"}}, 40003),
        ({"group": {"name": ""}}, 40003),
        ({"message_queue": {"topic": {"name": "Nowhere"}}}, 40402),
        ({"message_queue": {"topic": {"name": ""}}}, 40002),
    ],
)
def test_refusals(broker: Broker, caller: Caller, changed: dict[str, Any], code: int) -> None:
    broker.create_topic("Refused")
    status, last = caller.call("ReceiveMessage", **receive_fields("Refused", "G") | changed)
    assert_refused(status, last, code)


def test_a_receive_that_cannot_wait_long_enough_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_clients, "Rules", Rules)  # the least time is 5 s
    with Broker() as broker, Caller(broker.broker_address) as caller:
        broker.create_topic("Refused")
        status, last = caller.call("ReceiveMessage", 2, **receive_fields("Refused", "G"))
    assert_refused(status, last, 40000)


def assert_refused(status: Any, last: Any, code: int) -> None:
    assert status.status.code == code
    assert status.status.message
    assert last.HasField("delivery_timestamp")
