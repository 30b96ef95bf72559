"""client/core/routes.py against Apache's classes, and against routes that no name server sends."""

from __future__ import annotations

import json

import pytest

from trocket.client.core.routes import (
    NO_BROKER,
    TopicPublishInfo,
    broker_addresses,
    publish_info,
    static_topic_endpoints,
    subscribe_queues,
)
from trocket.remoting.bodies import BrokerData, MessageQueue, QueueData, TopicRouteData
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.route_queues import QUEUES_COUNT_MAX

from .apache_tables import table


def route_of(row) -> TopicRouteData:
    return TopicRouteData.from_body(json.dumps(row["route"]).encode())


@pytest.mark.parametrize("row", table("routes"), ids=str)
def test_a_route_means_what_it_means_to_apache(row):
    info = publish_info("T", route_of(row))
    assert [[q.topic, q.broker_name, q.queue_id] for q in info.queues] == row["publish"]
    assert info.is_ordered is row["ordered"]
    subscribed = subscribe_queues("T", route_of(row))
    assert [[q.topic, q.broker_name, q.queue_id] for q in subscribed] == row["subscribe"]
    endpoints = static_topic_endpoints("T", route_of(row))
    assert {f"{q.broker_name}/{q.queue_id}": name for q, name in endpoints.items()} == (
        row["endpoints"]
    )


def test_the_table_has_all_kinds_of_routes():
    rows = table("routes")
    assert {row["ordered"] for row in rows} == {True, False}
    assert {bool(row["publish"]) for row in rows} == {True, False}
    assert any(NO_BROKER in row["endpoints"].values() for row in rows)


def test_the_route_is_left_as_it_is():
    row = table("routes")[0]
    route = route_of(row)
    publish_info("T", route)
    subscribe_queues("T", route)
    assert route == route_of(row)


def test_a_broker_name_given_twice_counts_as_first_given():
    masterless = BrokerData(broker_name="a", broker_addrs={1: "h:1"})
    whole = BrokerData(broker_name="a", broker_addrs={0: "h:2"})
    queues = [QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)]
    route = TopicRouteData(queue_datas=queues, broker_datas=[whole, masterless])
    assert publish_info("T", route).queues == (MessageQueue("T", "a", 0),)
    route = TopicRouteData(queue_datas=queues, broker_datas=[masterless, whole])
    assert publish_info("T", route) == TopicPublishInfo("T", ())


def test_a_queue_given_twice_is_read_once():
    data = QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=4)
    route = TopicRouteData(queue_datas=[data, data])
    assert subscribe_queues("T", route) == (MessageQueue("T", "a", 0), MessageQueue("T", "a", 1))


def test_addresses_are_copied():
    route = TopicRouteData(broker_datas=[BrokerData(broker_name="a", broker_addrs={0: "h:1"})])
    addresses = broker_addresses(route)
    assert addresses == {"a": {0: "h:1"}}
    addresses["a"][0] = "other"
    assert broker_addresses(route) == {"a": {0: "h:1"}}


@pytest.mark.parametrize(
    "conf", ["a", "a:", ":3", "a:x", "a:-1", "a:1;;b:1", ";", "a:²", "a:" + "9" * 10]
)
def test_a_malformed_ordered_configuration_is_the_peers_fault(conf):
    with pytest.raises(RemoteProtocolError, match="ordered configuration of topic T"):
        publish_info("T", TopicRouteData(order_topic_conf=conf))


@pytest.mark.parametrize(
    "route",
    [
        TopicRouteData(order_topic_conf="a:999999999"),
        TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name="a", read_queue_nums=2**31 - 1, write_queue_nums=2**31 - 1, perm=6
                )
            ],
            broker_datas=[BrokerData(broker_name="a", broker_addrs={0: "h:1"})],
        ),
        TopicRouteData(
            topic_queue_mapping_by_broker={"a": {"totalQueues": 2**31 - 1, "bname": "a"}}
        ),
    ],
    ids=["ordered", "plain", "static"],
)
def test_a_route_cannot_fill_the_memory_with_queues(route):
    with pytest.raises(RemoteProtocolError, match=f"at most {QUEUES_COUNT_MAX} are allowed"):
        publish_info("T", route)


def test_negative_numbers_of_queues_are_none():
    data = QueueData(broker_name="a", read_queue_nums=-1, write_queue_nums=-1, perm=6)
    route = TopicRouteData(
        queue_datas=[data], broker_datas=[BrokerData(broker_name="a", broker_addrs={0: "h:1"})]
    )
    assert publish_info("T", route).queues == ()
    assert subscribe_queues("T", route) == ()


@pytest.mark.parametrize(
    "mapping", [{"a": 3}, {"a": {"currIdMap": {"x": 1}}}, {"a": {"epoch": "x"}}]
)
def test_a_malformed_mapping_is_the_peers_fault(mapping):
    with pytest.raises(RemoteProtocolError, match="topicQueueMappingByBroker"):
        static_topic_endpoints("T", TopicRouteData(topic_queue_mapping_by_broker=mapping))


def test_scopes_have_queues_of_their_own_and_null_none():
    mapping = {
        "a": {"scope": "eu", "totalQueues": 1, "bname": "a", "currIdMap": {"0": 0}},
        "b": {"totalQueues": 1, "bname": "b", "currIdMap": {"0": 0}},
        "c": {"scope": None, "totalQueues": 9, "bname": "c"},
    }
    route = TopicRouteData(topic_queue_mapping_by_broker=mapping)
    assert static_topic_endpoints("T", route) == {
        MessageQueue("T", "__syslo__eu", 0): "a",
        MessageQueue("T", "__syslo__global__", 0): "b",
    }
