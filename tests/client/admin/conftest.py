"""An `Admin` with a broker of our own, under trio and asyncio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import pytest

from trocket.client import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    RouteNotFoundError,
    SendResult,
    ServerError,
)
from trocket.testing import Broker

DEADLINE_S = 60.0
NO_SAMPLE = "NoSuchElementException"
"""Said by a broker of 4.9 whose statistics have no sample yet, within a second of its start."""
T = TypeVar("T")
Do = Callable[[Callable[[Admin], Awaitable[Any]]], Any]


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    """Of the module's own: its tests list all topics and groups."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """The module's broker; the topics that a test makes are gone after it."""
    yield shared_broker

    async def clean(admin: Admin) -> None:
        for topic in await admin.topics():
            # One of a broker that is gone with its connection is gone by itself.
            with suppress(RouteNotFoundError):
                await admin.delete_topic(topic)
        for group in await admin.groups():
            await admin.delete_group(group, with_topics=True)

    run(shared_broker, "trio", clean)


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


async def until(condition: Callable[[], Awaitable[T]]) -> T:
    """What a condition gives once it is true; the test's deadline ends the waiting."""
    while True:
        found = await condition()
        if found:
            return found
        await anyio.sleep(0.005)


async def runtime_info(admin: Admin, broker: str) -> dict[str, str]:
    """What a broker says of itself, once it can.

    Apache's of 4.9 refuses the question until its statistics have a first sample.
    """

    info: dict[str, str] = {}

    async def is_sampled() -> bool:
        try:
            info.update(await admin.broker_runtime_info(broker))
        except ServerError as error:
            if NO_SAMPLE not in str(error):
                raise
        return bool(info)

    await until(is_sampled)
    return info


async def send(admin: Admin, topic: str, *bodies: str, **options: Any) -> list[SendResult]:
    async with Producer(admin.client) as producer:
        return [await producer.send(Message(topic, body, **options)) for body in bodies]


async def is_there(consumer: PushConsumer) -> bool:
    """Whether the consumer has been given a queue of T."""
    return any(queue.topic == "T" for queue in consumer.queues)
