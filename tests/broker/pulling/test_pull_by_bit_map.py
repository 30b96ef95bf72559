"""Bit maps in the whole broker: which messages a pull reads, and consumerFilter.json."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from trocket.broker.filters.filter_bit_maps import BORN_MARGIN_MS
from trocket.broker.tables.config_text import CONSUMER_FILTERS
from trocket.common.sql92.expression import Expression
from trocket.disk.json_config import sealed, unsealed
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.codec import RemotingCommand
from trocket.store.queues.consume_queue_ext import ExtendedConsumeQueue

from ...kit import (
    Broker,
    Client,
    bodies_of,
    broker_and_client,
    broker_client,
    embedded_broker,
    pull_fields,
    send_fields,
)
from .test_pull_by_sql import filtered

SEND, PULL, HEART_BEAT, UNREGISTER = 310, 11, 34, 35
ON: dict[str, Any] = {
    "enable_property_filter": True,
    "enable_calc_filter_bit_map": True,
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 4096,
}
FILE = f"/store/config/{CONSUMER_FILTERS}"
MARGIN_S = BORN_MARGIN_MS / 1000 + 0.001


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The properties that were evaluated."""
    seen: list[bytes] = []
    real = Expression.matches

    def matches(self: Expression, properties: bytes) -> bool:
        seen.append(properties)
        return real(self, properties)

    monkeypatch.setattr(Expression, "matches", matches)
    return seen


async def send(client: Client, *prices: object, topic: str = "T", more: str = "") -> None:
    for price in prices:
        properties = f"price\1{price}\2{more}"
        answer = await client.ask(SEND, send_fields(topic, i=properties), str(price).encode())
        assert answer.code == 0


async def subscribe(client: Client, *subscriptions: tuple[str, str, int]) -> None:
    assert (await client.ask(HEART_BEAT, {}, filtered(*subscriptions))).code == 0


async def pull(client: Client, **more: object) -> RemotingCommand:
    return await client.ask(PULL, pull_fields(sysFlag=0, subVersion=0, **more))


def bit_maps(broker: Broker) -> list[bytes | None]:
    """Those of the topic's messages."""
    queue = broker.controller.store.queue_store.queues["T", 0]
    assert isinstance(queue, ExtendedConsumeQueue)
    units = [queue.ext.unit_at(queue.unit_at(n)[2]) for n in range(queue.max_offset)]
    return [unit.bit_map for unit in units if unit is not None]


def saved(disk: MemoryDisk, path: str = FILE) -> dict[str, dict[str, Any]]:
    """What the file holds of topic T, by group."""
    text, is_right = unsealed(bytes(disk.contents[path]))
    assert is_right
    table = json.loads(text)["filterDataByTopic"]
    found: dict[str, dict[str, Any]] = table["T"]["groupFilterData"] if table else {}
    return found


async def test_a_pull_reads_only_messages_that_may_match(
    autojump_clock: trio.testing.MockClock, read: list[bytes]
) -> None:
    async with broker_client(**ON) as client:
        await subscribe(client, ("T", "price > 10", 1))
        await trio.sleep(MARGIN_S)
        await send(client, 5, 11, 7, 12)
        assert len(read) == 4, "each was evaluated when it was stored"
        del read[:]
        answer = await pull(client)
        nothing = await pull(client, queueOffset=2, maxMsgNums=1)
    assert (bodies_of(answer), answer.ext_fields["nextBeginOffset"]) == ([b"11", b"12"], "4")
    assert bodies_of(nothing) == [b"12"]
    assert [bytes(each[:9]) for each in read] == [b"price\x0111\x02"] + [b"price\x0112\x02"] * 2


async def test_what_was_stored_before_the_group_came_is_read(
    autojump_clock: trio.testing.MockClock, read: list[bytes]
) -> None:
    async with broker_and_client(**ON) as (broker, client):
        await send(client, 12, 5)
        assert bit_maps(broker) == [None, None]
        await subscribe(client, ("T", "price > 10", 1))
        await send(client, 13, 6)
        assert bit_maps(broker)[3] == bytes(14)
        del read[:]
        answer = await pull(client)
    assert bodies_of(answer) == [b"12", b"13"]
    assert len(read) == 4


async def test_a_held_pull_is_woken_only_by_what_matches(
    autojump_clock: trio.testing.MockClock, read: list[bytes]
) -> None:
    async with embedded_broker(**ON) as broker:
        client, sender = await broker.connect(), await broker.connect()
        await subscribe(client, ("T", "price > 10", 1))
        await send(sender, 1)
        await trio.sleep(MARGIN_S)
        fields = pull_fields(sysFlag=2, subVersion=0, queueOffset=1)
        opaque = await client.send(
            RemotingCommand(PULL, {name: str(value) for name, value in fields.items()})
        )
        await send(sender, 2, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert broker.controller.pulls.hold_service.count == 1
        await send(sender, 11)
        answer = await client.answer(opaque)
    assert bodies_of(answer) == [b"11"]


@pytest.mark.parametrize("off", ["enable_property_filter", "enable_calc_filter_bit_map"])
async def test_without_the_keys_messages_have_no_bit_map(off: str) -> None:
    async with embedded_broker(**ON | {off: False}) as broker:
        assert broker.controller.store.queue_store.bitmap_of is None
        client = await broker.connect()
        await subscribe(client, ("T", "price > 10", 1))
        await send(client, 5, 11)
        assert bit_maps(broker) == [None, None]


async def test_bit_maps_have_the_size_that_the_keys_say() -> None:
    keys = {"expect_consumer_num_use_filter": 128, "max_error_rate_of_bloom_filter": 10}
    async with broker_and_client(**ON, **keys) as (broker, client):
        await subscribe(client, ("T", "price > 10", 1))
        await send(client, 5)
        assert bit_maps(broker) == [bytes(616 // 8)]


@pytest.mark.parametrize("verifies", [True, False])
async def test_messages_of_before_the_start_are_verified_or_may_be_hidden(
    autojump_clock: trio.testing.MockClock, read: list[bytes], verifies: bool
) -> None:
    disk = MemoryDisk()
    keys = ON | {"verify_old_records": verifies}
    async with broker_client(disk, **keys) as client:
        await subscribe(client, ("T", "price > 10", 1))
        await trio.sleep(MARGIN_S)
        await send(client, 5, 11)
    async with broker_client(disk, **keys) as client:
        await subscribe(client, ("T", "price > 10", 2))
        del read[:]
        answer = await pull(client)
    assert bodies_of(answer) == [b"11"]
    assert len(read) == 2 if verifies else 1


async def test_lost_units_are_made_again_with_their_bit_maps(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    async with broker_and_client(disk, **ON) as (broker, client):
        await subscribe(client, ("T", "price > 10", 1))
        await send(client, 5, 11, 12)
        before = bit_maps(broker)
    assert len(set(before)) == 2
    disk.remove_folder("/store/consumequeue")
    disk.remove_folder("/store/consumequeue_ext")
    async with embedded_broker(disk, **ON) as broker:
        assert bit_maps(broker) == before


# consumerFilter.json


async def test_filters_are_saved_every_ten_seconds_and_at_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    async with broker_client(disk, **ON) as client:
        await trio.sleep(30.5)
        assert not disk.exists(FILE)
        await subscribe(client, ("T", "price > 10", 1))
        await trio.sleep(9)
        assert not disk.exists(FILE)
        await trio.sleep(1)
        assert saved(disk)["CG"]["deadTime"] == 0
        await client.ask(UNREGISTER, {"clientID": "c1", "consumerGroup": "CG"})
    assert saved(disk)["CG"]["dead"]
    assert not saved(disk, f"{FILE}.bak")["CG"]["dead"]


async def test_a_group_that_comes_back_after_a_stop_is_as_old_as_it_was(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    async with embedded_broker(disk, **ON) as broker:
        await subscribe(await broker.connect(), ("T", "price > 10", 1), ("U", "price > 1", 1))
        born_ms = broker.controller.filters.topics["T"]["CG"].born_ms
        await trio.sleep(60)
    async with embedded_broker(disk, **ON) as broker:
        await subscribe(await broker.connect(), ("T", "price > 10", 2), ("U", "price > 2", 2))
        topics = broker.controller.filters.topics
        assert topics["T"]["CG"].born_ms == born_ms
        assert topics["U"]["CG"].born_ms == born_ms + 60_000


async def test_after_a_kill_all_are_as_young_as_the_newest_message(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    async with embedded_broker(disk, **ON) as broker:
        await subscribe(await broker.connect(), ("T", "price > 10", 1))
        born_ms = broker.controller.filters.topics["T"]["CG"].born_ms
        await trio.sleep(60)
    disk.contents["/store/abort"] = bytearray(b"1")
    async with embedded_broker(disk, **ON) as broker:
        assert broker.controller.filters.topics["T"]["CG"].born_ms == born_ms + 60_000


async def test_a_group_is_forgotten_after_filter_data_clean_time_span(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    async with broker_and_client(disk, **ON, filter_data_clean_time_span=60_000) as (
        broker,
        client,
    ):
        await subscribe(client, ("T", "price > 10", 1))
        await client.ask(UNREGISTER, {"clientID": "c1", "consumerGroup": "CG"})
        await trio.sleep(59)
        assert "CG" in saved(disk)
        await trio.sleep(11)
        assert saved(disk) == {}
        await send(client, 11)
        assert bit_maps(broker) == [None]


async def test_a_file_that_cannot_be_read_does_not_keep_the_broker_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    disk.make_folder("/store/config")
    disk.open(FILE, create=True).pwrite(b"[]", 0)
    async with embedded_broker(disk, **ON) as broker:
        await subscribe(await broker.connect(), ("T", "price > 10", 1))
    assert "consumers register their expressions again" in caplog.text
    assert "CG" in saved(disk)


async def test_without_the_property_filter_the_file_is_left_alone() -> None:
    disk = MemoryDisk()
    text = sealed(b'{"filterDataByTopic":{}}')
    disk.make_folder("/store/config")
    disk.open(FILE, create=True).pwrite(text, 0)
    async with embedded_broker(disk, **ON | {"enable_property_filter": False}) as broker:
        await subscribe(await broker.connect(), ("T", "price > 10", 1))
    assert disk.contents[FILE] == text
    assert not disk.exists(f"{FILE}.bak")


async def test_a_save_that_fails_is_tried_again(
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    async with embedded_broker(disk, **ON) as broker:
        disk.fault = lambda name, path: OSError(28, "") if CONSUMER_FILTERS in path else None
        await subscribe(await broker.connect(), ("T", "price > 10", 1))
        await trio.sleep(10.5)
        assert "the consumer filters could not be saved" in caplog.text
        assert "No space left" in caplog.text
        disk.fault = lambda name, path: None
        await trio.sleep(10)
        assert "CG" in saved(disk)


# filterSupportRetry


@pytest.mark.parametrize(("supports", "bodies"), [(False, [b"1"]), (True, [b"11", b"3"])])
async def test_on_a_retry_topic_each_message_is_filtered_as_its_first_topic_was(
    autojump_clock: trio.testing.MockClock, supports: bool, bodies: list[bytes]
) -> None:
    async with broker_client(**ON, filter_support_retry=supports) as client:
        retry = "%RETRY%CG"
        await subscribe(client, ("T", "price > 10", 1), (retry, "price = 1", 1))
        await trio.sleep(MARGIN_S)
        await send(client, 1, 11, topic=retry, more="RETRY_TOPIC\1T\2")
        await send(client, 3, topic=retry, more="RETRY_TOPIC\1Other\2")
        answer = await pull(client, topic=retry)
    assert bodies_of(answer) == bodies


async def test_a_message_of_a_retry_topic_that_names_no_other_is_wanted() -> None:
    async with broker_client(**ON, filter_support_retry=True) as client:
        await subscribe(client, ("%RETRY%CG", "price = 1", 1))
        await send(client, 2, topic="%RETRY%CG")
        answer = await pull(client, topic="%RETRY%CG")
    assert bodies_of(answer) == [b"2"]
