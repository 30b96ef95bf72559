"""Fixtures of the shop. `rocketmq_broker`, `rocketmq_topic`, `rocketmq_group` are trocket's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from shop.messaging import Sender
from shop.orders import OrderDesk

from trocket.testing import Broker

PATIENCE_S = 30.0
"""Time limit of a send: long, because a busy machine may not run pytest for a second or two."""


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of the tests; "trio" works as well."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_faults_are_left(rocketmq_broker: Broker) -> None:
    rocketmq_broker.faults.clear()


@pytest.fixture
async def sender(rocketmq_broker: Broker) -> AsyncIterator[Sender]:
    """An open sender. Its time limit matters only on a busy machine: most failures show at once."""
    async with Sender(rocketmq_broker.url, timeout_s=PATIENCE_S) as opened:
        yield opened


@pytest.fixture
def desk(sender: Sender, rocketmq_topic: str) -> OrderDesk:
    """Takes orders, and reminders too, on the test's own topic."""
    return OrderDesk(sender, rocketmq_topic, rocketmq_topic)
