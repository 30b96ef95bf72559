"""A broker's settings beside RocketMQ's defaults."""

from __future__ import annotations

import pytest

from trocket.blocking import Admin
from trocket.operations.settings import Difference, differences
from trocket.testing import Broker


@pytest.mark.parametrize(
    ("key", "value", "is_same"),
    [
        ("transactionCheckMax", "15", True),
        ("transactionCheckMax", "5", False),
        ("transactionCheckMax", "many", False),
        ("maxErrorRateOfBloomFilter", "20.0", True),
        ("traceTopicEnable", "FALSE", True),
        ("traceTopicEnable", "true", False),
        ("metricsExporterType", "disable", True),
        ("metricsLabel", "", True),
        ("metricsLabel", "null", True),
        ("metricsLabel", "a:b", False),
        ("regionId", "", False),
        ("brokerIP1", "10.0.0.1", True),
        ("namesrvAddr", "10.0.0.1:9876", True),
        ("rocketmqHome", "/opt", True),
    ],
)
def test_a_setting_beside_its_default(key: str, value: str, is_same: bool) -> None:
    assert (differences({key: value}) == []) is is_same


def test_a_key_of_a_later_version_is_shown_as_unknown() -> None:
    assert differences({"b": "1", "a": "2"}) == [
        Difference("a", "2", None, is_known=False),
        Difference("b", "1", None, is_known=False),
    ]


def test_a_broker_differs_by_what_was_set() -> None:
    with Broker() as plain, Admin(plain.url) as admin:
        before = {each.key for each in differences(admin.broker_config("broker-a"))}
    with Broker(config={"transactionCheckMax": 5}) as broker, Admin(broker.url) as admin:
        found = {each.key: each for each in differences(admin.broker_config("broker-a"))}
    assert found.keys() - before == {"transactionCheckMax"}
    assert found["transactionCheckMax"] == Difference("transactionCheckMax", "5", "15")
    assert all(each.is_known for each in found.values())
