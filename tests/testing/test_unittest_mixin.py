"""The mixin, in unittest's own runner."""

from __future__ import annotations

import unittest
from typing import ClassVar

import pytest

from trocket.testing import EmbeddedBrokerError, RocketMQTestCase

from .blocking_client import Client


def run(case: type[unittest.TestCase]) -> unittest.TestResult:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


def test_tests_of_a_class_share_a_broker_and_have_topics_of_their_own() -> None:
    class Orders(RocketMQTestCase, unittest.TestCase):
        rocketmq_config: ClassVar = {"brokerName": "of-this-class"}
        topics: ClassVar[list[str]] = []

        def test_send(self) -> None:
            topic = self.rocketmq_topic(queues=2)
            self.topics.append(topic)
            with Client(self.rocketmq_broker.broker_address) as client:
                assert client.send(topic, b"1").code == 0
            (message,) = self.rocketmq_broker.messages(topic)
            assert message.body == b"1"

        def test_other(self) -> None:
            self.topics.append(self.rocketmq_topic(message_type="FIFO"))
            assert "test_other" in self.rocketmq_group()

    result = run(Orders)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])
    assert len(set(Orders.topics)) == 2
    with pytest.raises(EmbeddedBrokerError, match="closed"):
        _ = Orders.rocketmq_broker.url


def test_asynchronous_cases() -> None:
    class Case(RocketMQTestCase, unittest.IsolatedAsyncioTestCase):
        async def test_it(self) -> None:
            topic = self.rocketmq_topic()
            assert self.rocketmq_broker.messages(topic) == []

    result = run(Case)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])
