"""A clean stop while a message is popped."""

from __future__ import annotations

import logging

import pytest

from trocket.blocking import Producer, SimpleConsumer
from trocket.client import Message
from trocket.testing import Broker


def test_the_start_after_a_clean_stop_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with Broker() as broker:
        with (
            Producer(broker.url) as producer,
            SimpleConsumer(broker.url, group="g", subscriptions={"P": "*"}) as consumer,
        ):
            producer.send(Message("P", "x"))
            assert len(consumer.receive(wait_s=10)) == 1
        with caplog.at_level(logging.WARNING):
            broker.restart()
        assert [line.getMessage() for line in caplog.records] == []
