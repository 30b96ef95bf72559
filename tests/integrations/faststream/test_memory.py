"""Tests of programs with TestRocketBroker, AsyncAPI, and what importing the adapter changes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from trocket import Sql

faststream = pytest.importorskip("faststream", reason="needs the extra `faststream`")

from faststream.specification import AsyncAPI  # noqa: E402

from trocket.integrations.faststream import RocketBroker, TestRocketBroker  # noqa: E402
from trocket.integrations.faststream.annotations import RocketMessage  # noqa: E402

Made = Callable[..., Any]
NOWHERE = "rocketmq://key:hidden-secret@127.0.0.1:1"


def test_a_program_is_tested_without_a_server() -> None:
    rocket = RocketBroker(NOWHERE)
    got: list[tuple[str, Any, str | None]] = []

    @rocket.subscriber("orders", selector="paid")
    @rocket.publisher("bills")
    async def bill(number: int, message: RocketMessage) -> int:
        got.append(("bill", number, message.tag))
        return number * 2

    @rocket.subscriber("orders", group="other")
    async def other(number: int) -> None:
        got.append(("other", number, None))

    @rocket.subscriber("orders", group="sql", selector=Sql("a = 1"))
    async def sql(number: int) -> None: ...

    @rocket.subscriber("lookups")
    async def look_up(number: int) -> str:
        return f"found {number}"

    async def test() -> None:
        async with TestRocketBroker(rocket) as test_broker:
            await test_broker.publish(1, "orders", tag="paid")
            await test_broker.publish(2, "orders", tag="new")
            bill.mock.assert_called_once_with(1)
            assert sql.mock.call_count == 2
            reply = await test_broker.request(5, "lookups")
            assert await reply.decode() == "found 5"

    asyncio.run(test())
    assert sorted(got, key=str) == [("bill", 1, "paid"), ("other", 1, None), ("other", 2, None)]


def test_a_handlers_error_reaches_the_test() -> None:
    rocket = RocketBroker(NOWHERE)

    @rocket.subscriber("orders")
    async def fail(number: int) -> None:
        raise LookupError("no such order")

    async def test() -> None:
        async with TestRocketBroker(rocket) as test_broker:
            with pytest.raises(LookupError, match="no such order"):
                await test_broker.publish(1, "orders")

    asyncio.run(test())


def test_a_subscriber_that_is_added_later_is_in_memory_too() -> None:
    rocket = RocketBroker(NOWHERE)
    got: list[int] = []

    async def handle(number: int) -> None:
        got.append(number)

    async def test() -> None:
        # FastStream guesses `connect_only` from the text of this block, and fails at this one.
        async with TestRocketBroker(rocket, connect_only=False) as test_broker:
            subscriber = test_broker.subscriber("orders")
            subscriber(handle)
            async with subscriber:
                await test_broker.publish(1, "orders")

    asyncio.run(test())
    assert got == [1]


def test_the_same_test_runs_with_a_real_broker(made: Made, topic: str) -> None:
    rocket = made()

    @rocket.subscriber(topic, wait_s=0.1)
    @rocket.publisher(f"{topic}-out")
    async def handle(number: int) -> int:
        return number + 1

    async def test() -> None:
        async with TestRocketBroker(rocket, with_real=True) as test_broker:
            await test_broker.publish(1, topic)
            await handle.wait_call(60)
            handle.mock.assert_called_once_with(1)

    asyncio.run(test())


def test_asyncapi_has_topics_and_no_secret() -> None:
    rocket = RocketBroker(NOWHERE)

    @rocket.subscriber("orders", title="Orders")
    @rocket.publisher("bills")
    async def bill(number: int) -> str:
        """Bill an order."""
        return ""

    text = AsyncAPI(rocket, schema_version="3.0.0").to_specification().to_json()
    assert "hidden-secret" not in text
    for part in ('"Orders"', '"address":"bills"', '"127.0.0.1:1"', '"rocketmq"', "Bill an order"):
        assert part in text.replace('": ', '":'), part


IMPORT = """
import asyncio, logging, os
before = (list(logging.getLogger().handlers), logging.getLogger().level, dict(os.environ),
          type(asyncio.get_event_loop_policy()))
import trocket
import sys
assert not {"faststream", "pydantic", "fast_depends", "anyio"} & set(sys.modules)
from trocket.integrations.faststream import RocketBroker, TestRocketBroker
broker = RocketBroker("127.0.0.1:1")
async def test():
    async with TestRocketBroker(broker):
        pass
asyncio.run(test())
after = (list(logging.getLogger().handlers), logging.getLogger().level, dict(os.environ),
         type(asyncio.get_event_loop_policy()))
assert before == after, (before, after)
"""


def test_it_changes_nothing_of_the_process() -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
