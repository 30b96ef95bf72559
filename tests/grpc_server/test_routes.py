"""Routes and assignments, as clients read them."""

from __future__ import annotations

import pytest

from trocket.grpc_protocol.enums import MessageType, Permission
from trocket.testing import Broker

from .caller import Caller, endpoints


def test_a_route_has_the_address_and_port_that_the_client_used(
    broker: Broker, caller: Caller
) -> None:
    broker.create_topic("Routed", queues=2)
    mapped = endpoints("broker.example:18081")
    answer = caller.call("QueryRoute", topic={"name": "Routed"}, endpoints=mapped)
    assert answer.status.code == 20000
    assert [(each.id, each.permission) for each in answer.message_queues] == [(0, 4), (1, 4)]
    for queue in answer.message_queues:
        assert queue.broker.endpoints == mapped
        assert queue.broker.name == "broker-a"
        assert list(queue.accept_message_types) == [MessageType.NORMAL]


def test_a_route_has_the_address_of_the_connection_if_the_client_names_none(
    broker: Broker, caller: Caller
) -> None:
    broker.create_topic("Near", queues=1)
    (queue,) = caller.call("QueryRoute", topic={"name": "Near"}).message_queues
    assert queue.broker.endpoints == endpoints(broker.broker_address)


def test_a_namespace_is_not_part_of_a_name(broker: Broker, caller: Caller) -> None:
    broker.create_topic("Plain", queues=1)
    topic = {"resource_namespace": "space", "name": "Plain"}
    (queue,) = caller.call("QueryRoute", topic=topic).message_queues
    assert queue.topic.resource_namespace == "space"


@pytest.mark.parametrize(
    ("perm", "expected"),
    [(6, Permission.READ_WRITE), (4, Permission.READ), (2, Permission.WRITE), (0, Permission.NONE)],
)
def test_permissions(broker: Broker, caller: Caller, perm: int, expected: Permission) -> None:
    broker.create_topic(f"Perm{perm}", queues=3, perm=perm)
    answer = caller.call("QueryRoute", topic={"name": f"Perm{perm}"})
    assert [each.permission for each in answer.message_queues] == [expected] * 3


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("FIFO", [2]), ("DELAY", [3]), ("TRANSACTION", [4])],
)
def test_types(broker: Broker, caller: Caller, kind: str, expected: list[int]) -> None:
    broker.create_topic(f"Of{kind}", message_type=kind)
    answer = caller.call("QueryRoute", topic={"name": f"Of{kind}"})
    assert {tuple(each.accept_message_types) for each in answer.message_queues} == {tuple(expected)}


@pytest.mark.parametrize(
    ("name", "code"),
    [("Nowhere", 40402), ("", 40002), ("a b", 40002), ("RMQ_SYS_TRANS_HALF_TOPIC", 40002)],
)
@pytest.mark.parametrize("method", ["QueryRoute", "QueryAssignment"])
def test_refusals(caller: Caller, method: str, name: str, code: int) -> None:
    fields = {"group": {"name": "G"}} if method == "QueryAssignment" else {}
    assert caller.call(method, topic={"name": name}, **fields).status.code == code


def test_an_assignment_is_the_broker_and_of_an_ordered_group_each_queue(
    broker: Broker, caller: Caller
) -> None:
    broker.create_topic("Assigned", queues=3)
    broker.create_group("Ordered", consume_message_orderly=True)
    for group, expected in (("Any", [-1]), ("Ordered", [0, 1, 2])):
        answer = caller.call("QueryAssignment", topic={"name": "Assigned"}, group={"name": group})
        assert [each.message_queue.id for each in answer.assignments] == expected
    broker.create_topic("Unreadable", perm=2)
    answer = caller.call("QueryAssignment", topic={"name": "Unreadable"}, group={"name": "Any"})
    assert (answer.status.code, answer.status.message) == (40300, "no readable queue")
