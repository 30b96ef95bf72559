"""The units of a consume queue, as administrators see them."""

from __future__ import annotations

import json

import pytest

from trocket.common.java_hash import java_hash_code

from ..embedded import embedded_broker, send_fields

SEND, QUERY = 310, 321
KEY = "UNIQ_KEY\x010123456789ABCDEF\x02TAGS\x01a\x02"


async def test_the_units_of_a_queue(autojump_clock):
    async with embedded_broker() as broker:
        client = await broker.connect()
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
    async with embedded_broker() as broker:
        client = await broker.connect()
        assert (await client.ask(SEND, send_fields(), b"x")).code == 0
        queue = {"topic": "T", "queueId": 0, "index": 0, "count": 1} | fields
        answer = await client.ask(QUERY, queue)
        assert (answer.code, answer.remark) == (code, remark)
        assert answer.body == b""
