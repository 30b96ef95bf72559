"""Fixtures of the proxy's tests: a broker of the module's, and a client of each test's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trocket.testing import Broker

from ..grpc_server import test_clients, test_receiving, test_sending
from ..grpc_server.caller import Caller, brief_polls
from .proxied import ProxiedBroker


@pytest.fixture(autouse=True)
def _behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the cases of the broker's own service run through a proxy."""
    for module in (test_clients, test_receiving, test_sending):
        monkeypatch.setattr(module, "Broker", ProxiedBroker)


@pytest.fixture(scope="module", autouse=True)
def _brief_polls() -> Iterator[None]:
    """A receive that finds nothing takes no 5 s."""
    with brief_polls():
        yield


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker behind a proxy."""
    with ProxiedBroker() as broker:
        yield broker


@pytest.fixture
def caller(broker: Broker) -> Iterator[Caller]:
    """A client of the proxy."""
    with Caller(broker.broker_address) as caller:
        yield caller
