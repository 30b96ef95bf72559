"""A broker with some messages, and a console of it: the module's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trocket.blocking import Producer
from trocket.client import Message
from trocket.testing import Broker

from .running import Browser, logged_in, running_console


@pytest.fixture(scope="module")
def stocked(broker: Broker) -> Broker:
    broker.create_topic("orders", queues=4)
    broker.create_group("billing")
    with Producer(broker.url, group="shop") as producer:
        for number in range(40):
            producer.send(
                Message("orders", b'{"id": %d}' % number, tags="refund", keys=str(number))
            )
    return broker


@pytest.fixture(scope="module")
def browser(stocked: Broker) -> Iterator[Browser]:
    with running_console(stocked.url) as (console, browser):
        yield logged_in(console, browser)
