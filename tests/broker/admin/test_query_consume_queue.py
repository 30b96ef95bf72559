"""The units of a consume queue, as administrators see them."""

from __future__ import annotations

import json

import pytest
import trio

from trocket.broker.filters.filter_bit_maps import BORN_MARGIN_MS
from trocket.common.java_hash import java_hash_code

from ...kit import (
    START_MS,
    broker_and_client,
    broker_client,
    heartbeat,
    send_fields,
    subscribed,
)
from ..pulling.test_pull_by_sql import filtered

SEND, QUERY, HEART_BEAT = 310, 321, 34
MARGIN_S = BORN_MARGIN_MS / 1000 + 0.001
KEY = "UNIQ_KEY\x010123456789ABCDEF\x02TAGS\x01a\x02"


async def test_the_units_of_a_queue(autojump_clock):
    async with broker_client() as client:
        for _ in range(3):
            assert (await client.ask(SEND, send_fields(i=KEY), b"x")).code == 0
        queue = {"topic": "T", "queueId": 0, "index": 1, "count": 100}
        tree = json.loads((await client.ask(QUERY, queue)).body)
        assert (tree["minQueueIndex"], tree["maxQueueIndex"]) == (0, 3)
        second, third = tree["queueData"]
        size = second["physicSize"]
        assert (second["physicOffset"], third["physicOffset"]) == (size, 2 * size)
        assert second["tagsCode"] == java_hash_code("a")
        tree = json.loads((await client.ask(QUERY, queue | {"count": 1})).body)
        assert tree["queueData"] == [second]
        tree = json.loads((await client.ask(QUERY, queue | {"consumerGroup": "CG"})).body)
        assert tree["filterData"] == "CG@T is not online!"


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "U"}, 1, "0@U is not exist!"),
        ({"index": 1}, 0, "Index 1 of 0@T is not exist!"),
        ({"index": -1}, 0, "Index -1 of 0@T is not exist!"),
        ({"count": "many"}, 1, "the custom field <count> is not an integer of 32 bits: 'many'"),
    ],
)
async def test_units_that_are_not_there(autojump_clock, fields, code, remark):
    async with broker_client() as client:
        assert (await client.ask(SEND, send_fields(), b"x")).code == 0
        queue = {"topic": "T", "queueId": 0, "index": 0, "count": 1} | fields
        answer = await client.ask(QUERY, queue)
        assert (answer.code, answer.remark) == (code, remark)
        assert answer.body == b""


EXT = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": 4096}
FILTERS = EXT | {"enable_property_filter": True, "enable_calc_filter_bit_map": True}


async def units_of(client, **fields):
    queue = {"topic": "T", "queueId": 0, "index": 0, "count": 10} | fields
    return json.loads((await client.ask(QUERY, queue)).body)


async def test_the_extensions_of_units_and_what_a_filter_by_tags_lets_through(autojump_clock):
    async with broker_client(**EXT) as client:
        beat = heartbeat("CG", subscribed("T", "a", codeSet=[java_hash_code("a")]))
        assert (await client.ask(HEART_BEAT, {}, beat)).code == 0
        for tag in "ab":
            answer = await client.ask(SEND, send_fields(i=f"TAGS\1{tag}\2"), b"x")
            assert answer.code == 0
        plain = await units_of(client)
        tree = await units_of(client, consumerGroup="CG")
    first, second = tree["queueData"]
    assert tree["filterData"] == "null"
    assert [first["eval"], second["eval"]] == [True, False]
    assert [each["eval"] for each in plain["queueData"]] == [False, False]
    assert first["tagsCode"] < -(2**31)  # the address of the extension
    assert json.loads(first["extendDataJson"]) == {
        "msgStoreTime": START_MS, "size": 20, "tagsCode": java_hash_code("a"),
    }  # fmt: skip
    assert not first.keys() & {"bitMap", "msg"}


async def test_bit_maps_and_what_an_expression_lets_through(autojump_clock):
    async with broker_client(**FILTERS) as client:
        beat = filtered(("T", "price > 10", 1))
        assert (await client.ask(HEART_BEAT, {}, beat)).code == 0
        await trio.sleep(MARGIN_S)
        for price in (5, 11):
            answer = await client.ask(SEND, send_fields(i=f"price\1{price}\2"), b"x")
            assert answer.code == 0
        tree = await units_of(client, consumerGroup="CG")
    low, high = tree["queueData"]
    assert [low["eval"], high["eval"]] == [False, True]
    data = json.loads(tree["filterData"])
    assert (data["expression"], data["consumerGroup"]) == ("price > 10", "CG")
    assert tree["filterData"].startswith('{\n\t"bloomFilterData":{\n\t\t"bitNum":112,')
    # As BitsArray.toString of 5.5.0: the last bit first, a line after the bytes 8 and 0.
    assert low["bitMap"] == "0" * 48 + "\n" + "0" * 64 + "\n"
    ones = high["bitMap"].replace("\n", "")[::-1]
    assert sorted(data["bloomFilterData"]["bitPos"]) == [
        at for at, bit in enumerate(ones) if bit == "1"
    ]
    unit = json.loads(high["extendDataJson"])
    assert list(unit) == ["filterBitMap", "msgStoreTime", "size", "tagsCode"]
    assert (len(unit["filterBitMap"]), unit["size"]) == (14, 34)
    assert all(-128 <= byte <= 127 for byte in unit["filterBitMap"])


async def test_a_unit_whose_extension_is_lost_says_so(autojump_clock):
    async with broker_and_client(**EXT) as (broker, client):
        assert (await client.ask(SEND, send_fields(), b"x")).code == 0
        broker.controller.store.queue_store.queues["T", 0].ext.reset()
        (unit,) = (await units_of(client))["queueData"]
    assert unit["msg"] == f"Cq extend not exist!addr: {unit['tagsCode']}"
    assert "extendDataJson" not in unit
