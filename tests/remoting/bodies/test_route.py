"""Routes and clusters, with bare and with quoted keys."""

from __future__ import annotations

import json

import pytest

from trocket.remoting.bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicRouteData,
)
from trocket.remoting.errors import RemoteProtocolError

BROKER = BrokerData("c", "b", {0: "h:1", 1: "h:2"})
ROUTE = TopicRouteData(queue_datas=[QueueData("b", 4, 4, 6)], broker_datas=[BROKER])


def test_a_route_is_standard_json_unless_asked_otherwise() -> None:
    assert json.loads(ROUTE.to_body()) == {
        "queueDatas": [
            {
                "brokerName": "b",
                "readQueueNums": 4,
                "writeQueueNums": 4,
                "perm": 6,
                "topicSysFlag": 0,
            }
        ],
        "brokerDatas": [
            {
                "cluster": "c",
                "brokerName": "b",
                "brokerAddrs": {"0": "h:1", "1": "h:2"},
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
    }
    assert b'{0:"h:1",1:"h:2"}' in ROUTE.to_body(quote_int_keys=False)


@pytest.mark.parametrize("quote_int_keys", [True, False])
def test_a_route_comes_back_the_same_in_both_forms(quote_int_keys: bool) -> None:
    assert TopicRouteData.from_body(ROUTE.to_body(quote_int_keys=quote_int_keys)) == ROUTE


def test_order_and_zone_are_written_when_there_are_any() -> None:
    route = TopicRouteData(order_topic_conf="b:4", broker_datas=[BrokerData(zone_name="z")])
    assert b'"orderTopicConf":"b:4"' in route.to_body()
    assert b'"zoneName":"z"' in route.to_body()
    assert b"orderTopicConf" not in ROUTE.to_body()
    assert b"zoneName" not in ROUTE.to_body()


def test_a_mapping_nested_too_deep_is_refused() -> None:
    deep = b"[" * 40 + b"]" * 40
    with pytest.raises(RemoteProtocolError, match="nested deeper than 32"):
        TopicRouteData.from_body(b'{"topicQueueMappingByBroker":{"b":' + deep + b"}}")


def test_a_cluster_is_written_with_bare_keys_as_by_rocketmq() -> None:
    info = ClusterInfo({"b": BROKER}, {"c": ["b"]})
    assert b'"brokerAddrs":{0:"h:1",1:"h:2"}' in info.to_body()
    assert b'"clusterAddrTable":{"c":["b"]}' in info.to_body()
    assert ClusterInfo.from_body(info.to_body()) == info


def test_a_group_of_brokers_is_written_with_bare_keys_as_by_rocketmq() -> None:
    body = GetBrokerMemberGroupResponseBody(BrokerMemberGroup("c", "b", {0: "h:1"}))
    assert body.to_body() == (
        b'{"brokerMemberGroup":{"cluster":"c","brokerName":"b","brokerAddrs":{0:"h:1"}}}'
    )
    assert GetBrokerMemberGroupResponseBody().to_body() == b"{}"
