"""Fixtures of the gRPC service's tests: a broker of the module's, and a client of each test's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trocket.testing import Broker

from .caller import Caller, brief_polls


@pytest.fixture(scope="module", autouse=True)
def _brief_polls() -> Iterator[None]:
    """A receive that finds nothing takes no 5 s."""
    with brief_polls():
        yield


@pytest.fixture
def caller(broker: Broker) -> Iterator[Caller]:
    """A client."""
    with Caller(broker.broker_address) as caller:
        yield caller
