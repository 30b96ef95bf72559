"""A broker, and connections of kombu to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trocket.testing import Broker

_numbers = itertools.count()


@pytest.fixture(scope="package")
def shared_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Broker:
    return shared_broker


@pytest.fixture
def name() -> str:
    """Of a queue or an exchange that no other test has."""
    return f"q{next(_numbers)}"


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[..., Any]]:
    """Makes connections, each with its own clients."""
    kombu = pytest.importorskip("kombu", reason="needs the extra `kombu`")
    from trocket.integrations.kombu import register

    register()
    made: list[Any] = []

    def make(url: str = broker.url, **options: Any) -> Any:
        options.setdefault("wait_time_seconds", 0.2)
        made.append(kombu.Connection(url, transport_options=options))
        return made[-1]

    yield make
    for each in made:
        each.release()
