"""A broker for the client's tests, and both loops that the client runs in."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from trocket.testing import Broker

DEADLINE_S = 30.0

Play = Callable[[Callable[[], Awaitable[Any]]], Any]


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    with Broker(config={"enablePropertyFilter": True}) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """A broker without faults; other tests use it too."""
    yield shared_broker
    shared_broker.faults.clear()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of the test's own, with one queue."""
    name = f"T_{uuid.uuid4().hex}"
    broker.create_topic(name, queues=1)
    return name


@pytest.fixture
def group() -> str:
    """A group of the test's own."""
    return f"G_{uuid.uuid4().hex}"


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def play(request: pytest.FixtureRequest) -> Play:
    """Runs a coroutine function in one of the loops, with a deadline."""
    options = {"use_uvloop": True} if request.param == "uvloop" else {}
    backend = "trio" if request.param == "trio" else "asyncio"

    def run(function: Callable[[], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            with anyio.fail_after(DEADLINE_S):
                return await function()

        return anyio.run(main, backend=backend, backend_options=options)

    return run
