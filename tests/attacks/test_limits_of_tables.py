"""One client cannot fill the broker's tables of topics, groups and clients in no time."""

from __future__ import annotations

import json

import pytest
import trio.testing

from trocket.broker.settings.creation_rate import ADDRESSES_MAX, CreationRate, Rates
from trocket.remoting.response_codes import ResponseCode

from ..kit import broker_and_client, embedded_broker, pull_fields, send_fields

SEND, PULL, HEART_BEAT, UPDATE = 310, 11, 34, 25
STRANGER, HONEST = "198.51.100.7:1", "192.0.2.2:1"


def heartbeat(client_id: str, *groups: str) -> bytes:
    consumers = [
        {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
        }
        for group in groups
    ]  # fmt: skip
    body = {"clientID": client_id, "consumerDataSet": consumers, "producerDataSet": []}
    return json.dumps(body).encode()


async def test_first_sends_create_topics_at_a_rate(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_broker(auto_create_topics_per_minute_and_address=10) as broker:
        stranger = await broker.connect(address=STRANGER)
        honest = await broker.connect(address=HONEST)
        codes = [(await stranger.ask(SEND, send_fields(f"S{n}"), b"x")).code for n in range(12)]
        assert codes == [0] * 10 + [ResponseCode.SYSTEM_BUSY] * 2
        refused = await stranger.ask(SEND, send_fields("S10"), b"x")
        assert refused.remark == (
            "topic[S10] is not created now, because too many were lately, which is the limit "
            "autoCreateTopicsPerMinuteAndAddress"
        )
        assert (await stranger.ask(SEND, send_fields("S0"), b"x")).code == 0  # as before
        assert (await honest.ask(SEND, send_fields("H"), b"x")).code == 0
        await trio.sleep(6)  # a tenth of a minute: one more
        codes = [(await stranger.ask(SEND, send_fields(f"S{n}"), b"x")).code for n in (10, 11)]
        assert codes == [0, ResponseCode.SYSTEM_BUSY]
    assert "which is the limit autoCreateTopicsPerMinuteAndAddress" in caplog.text


async def test_all_clients_together_have_a_rate_that_may_change(autojump_clock) -> None:
    async with embedded_broker(auto_create_topics_per_minute=3) as broker:
        clients = [await broker.connect(address=f"192.0.2.{n}:1") for n in range(5)]
        codes = [
            (await client.ask(SEND, send_fields(f"S{n}"), b"x")).code
            for n, client in enumerate(clients)
        ]
        assert codes == [0] * 3 + [ResponseCode.SYSTEM_BUSY] * 2
        admin = await broker.connect()
        assert (await admin.ask(UPDATE, {}, b"autoCreateTopicsPerMinute=6000")).code == 0
        await trio.sleep(1)
        assert (await clients[3].ask(SEND, send_fields("S3"), b"x")).code == 0


async def test_heartbeats_and_pulls_create_groups_at_a_rate_and_keep_known_ones(
    autojump_clock,
) -> None:
    async with embedded_broker(auto_create_groups_per_minute_and_address=3) as broker:
        stranger = await broker.connect(address=STRANGER)
        await stranger.ask(SEND, send_fields("T"), b"x")
        known = await broker.connect(address=HONEST)
        assert (await known.ask(HEART_BEAT, {}, heartbeat("h", "known"))).code == 0
        refused = await stranger.ask(
            HEART_BEAT, {}, heartbeat("s", "g0", "g1", "g2", "g3", "known")
        )
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "group[g3]" in (refused.remark or "")
        assert "autoCreateGroupsPerMinuteAndAddress" in (refused.remark or "")
        consumers = broker.controller.consumers.consumer_table
        assert {"g0", "g1", "g2", "known"} == set(consumers)
        assert len(consumers["known"].channel_info_table) == 2  # after the refused one
        pulled = await stranger.ask(PULL, pull_fields("T", consumerGroup="g4"))
        assert pulled.code == ResponseCode.SYSTEM_BUSY
        assert (await known.ask(PULL, pull_fields("T", consumerGroup="g4"))).code == 0


@pytest.mark.slow
async def test_at_the_limit_of_groups_the_answer_says_so(autojump_clock) -> None:
    async with broker_and_client() as (broker, client):
        count = len(broker.controller.groups.subscription_group_table)
        await client.ask(UPDATE, {}, f"groupsMax={count}".encode())
        refused = await client.ask(HEART_BEAT, {}, heartbeat("c", "more"))
        assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert refused.remark == (
            f"group[more] is not created: there are {count} groups, which is the limit groupsMax"
        )


async def test_a_group_has_a_limited_number_of_clients(autojump_clock) -> None:
    async with embedded_broker(clients_per_group_max=2) as broker:
        first, second, third = [await broker.connect() for _ in range(3)]
        for client in (first, second):
            assert (await client.ask(HEART_BEAT, {}, heartbeat("c", "g"))).code == 0
        refused = await third.ask(HEART_BEAT, {}, heartbeat("c3", "g", "other"))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark == "group[g] has 2 clients, which is the limit clientsPerGroupMax"
        assert "other" in broker.controller.consumers.consumer_table
        assert (await first.ask(HEART_BEAT, {}, heartbeat("c", "g"))).code == 0
        await second.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert (await third.ask(HEART_BEAT, {}, heartbeat("c3", "g"))).code == 0


async def test_the_metrics_count_refusals_by_limit(autojump_clock) -> None:
    async with embedded_broker(
        auto_create_topics_per_minute=1, connections_per_address_max=1
    ) as broker:
        client = await broker.connect(address=STRANGER)
        await broker.connect(address=STRANGER)
        for n in range(3):
            await client.ask(SEND, send_fields(f"T{n}"), b"x")
        assert broker.controller.parts.foundation.refusals.counts == {
            "autoCreateTopicsPerMinute": 2,
            "connectionsPerAddressMax": 1,
        }


def test_the_table_of_addresses_is_bounded() -> None:
    now_s = 0.0
    rate = CreationRate(lambda: Rates(1, "a", 10**9, "b"), "", lambda: now_s)
    addresses = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:1" for n in range(ADDRESSES_MAX + 1)]
    assert [rate.take(address) for address in addresses] == [None] * len(addresses)
    assert rate.take(addresses[-1]) == "a"
    now_s = 60.0
    assert rate.take(addresses[-1]) is None
    assert rate.take("") is None
