"""A broker with an `Admin`, for what commands and the console share."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import anyio
import pytest

from trocket.client import Admin, Message, Producer
from trocket.testing import Broker

DEADLINE_S = 60.0
T = TypeVar("T")
Do = Callable[[Callable[[Admin], Awaitable[Any]]], Any]


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """A broker without faults; other tests of the module use it too."""
    yield shared_broker
    shared_broker.faults.clear()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic of the test's own, with four queues."""
    name = f"T_{uuid.uuid4().hex}"
    broker.create_topic(name, queues=4)
    return name


@pytest.fixture(params=["trio", "asyncio"])
def do(broker: Broker, request: pytest.FixtureRequest) -> Do:
    """Runs something with an Admin, in either kind of loop."""
    return lambda verb: run(broker, request.param, verb)


@pytest.fixture
def do_once(broker: Broker) -> Do:
    """The same in one kind, for what has nothing to do with loops."""
    return lambda verb: run(broker, "trio", verb)


def run(broker: Broker, backend: str, verb: Callable[[Admin], Awaitable[T]]) -> T:
    async def main() -> T:
        with anyio.fail_after(DEADLINE_S):
            async with Admin(broker.url) as admin:
                return await verb(admin)

    return anyio.run(main, backend=backend)


async def send_all(admin: Admin, messages: list[Message[bytes]]) -> None:
    """Send messages one after the other, so that they are stored in this order."""
    async with Producer(admin.client) as producer:
        for message in messages:
            await producer.send(message)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once a condition is true; the test's deadline ends the waiting."""
    while True:
        if await condition():
            return
        await anyio.sleep(0.005)
