"""Broker objects of FastStream over a broker in this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from trocket.testing import Broker

_numbers = itertools.count()


@pytest.fixture
def topic(broker: Broker) -> str:
    """Of no other test; there before a subscriber would wait for it."""
    name = f"faststream-{next(_numbers)}"
    broker.create_topic(name)
    return name


@pytest.fixture
def made(broker: Broker) -> Callable[..., Any]:
    """Makes broker objects, which log nothing."""
    pytest.importorskip("faststream", reason="needs the extra `faststream`")
    from trocket.integrations.faststream import RocketBroker

    def make(url: str = broker.url, **options: Any) -> Any:
        return RocketBroker(url, logger=None, **options)

    return make
