"""Requests to servers that were silent wait less, until they answer."""

from __future__ import annotations

import pytest

from tests.operations.peers import Peer, saying, silent
from trocket.client import Client, ConfigurationError, RequestTimeoutError
from trocket.remoting.request_codes import RequestCode

CODE = RequestCode.GET_BROKER_RUNTIME_INFO


async def test_a_server_that_was_silent_is_waited_for_only_a_moment() -> None:
    answers = [silent]
    async with (
        Peer({CODE: lambda request: answers[0](request)}).running() as peer,
        Client(f"rocketmq://{peer.address}", timeout_s=0.4, silent_timeout_s=0.1) as client,
    ):

        async def limit() -> float:
            with pytest.raises(RequestTimeoutError) as caught:
                await client.request(peer.address, CODE)
            return round(caught.value.timeout_s, 1)

        assert [await limit() for _ in range(3)] == [0.4, 0.1, 0.1]
        answers[0] = saying({"table": {}})
        await client.request(peer.address, CODE)
        answers[0] = silent
        assert await limit() == 0.4


async def test_without_the_option_each_request_waits_as_long() -> None:
    async with (
        Peer({CODE: silent}).running() as peer,
        Client(f"rocketmq://{peer.address}", timeout_s=0.1) as client,
    ):
        for _ in range(2):
            with pytest.raises(RequestTimeoutError) as caught:
                await client.request(peer.address, CODE)
            assert round(caught.value.timeout_s, 1) == 0.1


@pytest.mark.parametrize("value", [0, -1, float("inf"), "1"])
def test_the_limit_must_be_a_time(value: float) -> None:
    with pytest.raises(ConfigurationError, match="silent_timeout_s"):
        Client("rocketmq://127.0.0.1:1", silent_timeout_s=value)
