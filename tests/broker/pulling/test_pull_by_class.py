"""Subscriptions of class filters: the broker lets every message pass."""

from __future__ import annotations

import json

import pytest

from trocket.remoting.codec import RemotingCommand
from trocket.remoting.response_codes import ResponseCode

from ...kit import (
    Client,
    bodies_of,
    broker_and_client,
    broker_client,
    heartbeat,
    pull_fields,
    send_fields,
    subscribed,
)

SEND, PULL, HEART_BEAT, CHECK, CONNECTIONS = 310, 11, 34, 46, 203
CLASS_FILTER = 2 | 8
"""sysFlag of the pulls that Apache's client sends to a filter server: suspend, class filter."""
CLASS = "trocket.check.KeepFifth"


def subscription(text: str = CLASS, kind: str = "TAG", *, by_class: bool = True) -> dict:
    return subscribed("T", text, expressionType=kind, classFilterMode=by_class)


async def consumer(client: Client, *subscriptions: dict) -> None:
    answer = await client.ask(HEART_BEAT, {}, heartbeat("CG", *subscriptions, client_id="c1"))
    assert answer.code == ResponseCode.SUCCESS


async def pull(client: Client, **more: object) -> RemotingCommand:
    """As a consumer pulls whose subscription the broker knows from its heartbeat."""
    fields = pull_fields(sysFlag=CLASS_FILTER, subVersion=1, **more)
    del fields["subscription"]
    return await client.ask(PULL, fields)


async def send(client: Client) -> None:
    for tag in ("TAGS\1A\2", "TAGS\1trocket.check.KeepFifth\2", ""):
        await client.ask(SEND, send_fields(i=f"UNIQ_KEY\1AB\2{tag}"), tag.encode())


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("kind", ["TAG", "SQL92", None])
async def test_every_message_passes_whatever_else_the_subscription_says(
    autojump_clock, on: bool, kind: str | None
):
    bit_maps = {"enable_calc_filter_bit_map": on, "enable_consume_queue_ext": on}
    async with broker_and_client(enable_property_filter=on, **bit_maps) as (broker, client):
        await consumer(client, subscription(kind=kind))
        await send(client)
        answer = await pull(client)
        assert answer.code == ResponseCode.SUCCESS
        assert len(bodies_of(answer)) == 3
        assert broker.controller.filters.characters == 0


async def test_a_class_is_not_taken_for_an_expression_though_it_could_be_one(autojump_clock):
    async with broker_and_client(enable_property_filter=True) as (broker, client):
        await consumer(client, subscription("a = 1", "SQL92"))
        await send(client)
        assert len(bodies_of(await pull(client))) == 3
        assert broker.controller.filters.topics == {}


async def test_without_the_mode_the_same_subscription_is_one_by_tags(autojump_clock):
    async with broker_client() as client:
        await consumer(client, subscription("A", by_class=False) | {"codeSet": [65]})
        await send(client)
        assert bodies_of(await pull(client)) == [b"TAGS\1A\2"]


async def test_an_administrator_sees_the_class_and_no_tags(autojump_clock):
    async with broker_client() as client:
        await consumer(client, subscription())
        answer = await client.ask(CONNECTIONS, {"consumerGroup": "CG"})
        (seen,) = json.loads(answer.body)["subscriptionTable"].values()
        assert (seen["subString"], seen["classFilterMode"]) == (CLASS, True)
        assert (seen["tagsSet"], seen["codeSet"]) == ([], [])


@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
async def test_a_class_needs_no_check_by_the_broker(autojump_clock, kind: str):
    async with broker_client() as client:
        body = {"clientId": "c1", "group": "CG", "subscriptionData": subscription(kind=kind)}
        answer = await client.ask(CHECK, {}, json.dumps(body).encode())
        assert answer.code == ResponseCode.SUCCESS


async def test_what_a_filter_server_asks_for_is_every_message(autojump_clock):
    """Its pull as recorded: group FILTERSRV_CONSUMER, which needs no heartbeat."""
    async with broker_client(auto_create_subscription_group=False) as client:
        await send(client)
        fields = pull_fields(
            consumerGroup="FILTERSRV_CONSUMER", sysFlag=6, suspendTimeoutMillis=19_000
        )
        assert len(bodies_of(await client.ask(PULL, fields))) == 3
