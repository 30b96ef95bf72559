"""Calls of an administrator that are made at the same time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.client import ConnectError
from trocket.client.admin.asking import BrokerFailure, BrokersError
from trocket.operations.asking import asked_at_once


async def test_calls_wait_together_and_say_what_is_missing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def slow() -> str:
        await trio.sleep(3)
        return "a"

    async def partly() -> str:
        await trio.sleep(3)
        failure = BrokerFailure("broker-b", ConnectError("10.0.0.2:10911", "nothing listens"))
        raise BrokersError("asking", [failure], 2, "b")

    begin_s = trio.current_time()
    (first, none), (second, why) = await asked_at_once(slow, partly)
    assert (first, none, second) == ("a", "", "b")
    assert "broker-b" in why
    assert trio.current_time() - begin_s == pytest.approx(3)


async def test_a_call_without_a_result_is_the_error_of_all(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def fine() -> str:
        return "a"

    async def failing() -> str:
        raise ConnectError("10.0.0.2:10911", "nothing listens")

    with pytest.raises(ConnectError):
        await asked_at_once(fine, failing)
