"""Sending, polling and waiting in the tests of clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from trocket.client import Message, Producer, PullConsumer


async def send(url: str, topic: str, *bodies: str, **fields: Any) -> None:
    """Send messages one after the other."""
    async with Producer(url) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **fields))


async def send_numbers(url: str, topic: str, count: int, start: int = 0) -> None:
    """Send messages whose body and property `n` are a number, with the tags a and b in turn."""
    async with Producer(url) as producer:
        for n in range(start, start + count):
            message = Message(topic, f"{n}", tags="ab"[n % 2], properties={"n": str(n)})
            await producer.send(message)


async def poll(consumer: PullConsumer, count: int) -> list[str]:
    """So many messages, or some more that came with the last of them."""
    found: list[str] = []
    while len(found) < count:
        found += [m.text for m in await consumer.poll(timeout_s=5.0)]
    return found


async def until(condition: Callable[[], object]) -> None:
    """Wait for what no event tells, such as a log line; the test's deadline ends the waiting."""
    while not condition():  # noqa: ASYNC110
        await anyio.sleep(0.005)
