"""A first send that asked for no queue was acknowledged, and no consumer could read it.

The topic had 0 queues, so its name was spoilt for all producers, and a restart kept it.
"""

from __future__ import annotations

import json

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from ..kit import (
    TrioClock,
    broker_and_client,
    broker_client,
    embedded_broker,
    pull_fields,
    send_fields,
    topic_fields,
)

SEND, SEND_BATCH, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, 11
PREPARED, ROLLBACK = 4, 12


@pytest.mark.parametrize("queue_id", [-1, 0])
@pytest.mark.parametrize("asked", [0, -1, -(2**31)])
async def test_a_first_send_that_asks_for_no_queue_creates_a_topic_with_one(
    autojump_clock, caplog, asked, queue_id
):
    async with broker_and_client() as (broker, client):
        answer = await client.ask(SEND, send_fields(queue_id=queue_id, d=asked), b"x")
        assert answer.code == 0
        topic = broker.controller.topics.select("T")
        assert (topic.read_queue_nums, topic.write_queue_nums) == (1, 1)
        assert f"asks for {asked} queues" in caplog.text
        # A topic that is there is not asked for queues.
        for fields in (send_fields(queue_id=-1), send_fields(queue_id=-1, d=asked)):
            answer = await client.ask(SEND, fields, b"y")
            assert answer.code == 0
            queue_id = int(answer.ext_fields["queueId"])
            pulled = await client.ask(PULL, pull_fields(queue_id=queue_id, sysFlag=4))
            assert b"y" in [message.body for message in decode_messages(pulled.body)]


def table_of(disk: MemoryDisk) -> str:
    (path,) = [path for path in disk.contents if path.endswith("config/topics.json")]
    return path


@pytest.mark.parametrize("counts", [(0, 0), (-1, -1), (0, 4)])
async def test_a_topic_without_queues_of_an_old_table_is_mended_at_the_start(
    autojump_clock, caplog, counts
):
    """What such a send left behind: the message lies in queue 0, which gets a reader."""
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock) as client:
        assert (await client.ask(SEND, send_fields(d=1), b"old")).code == 0
    path = table_of(disk)
    table = json.loads(bytes(disk.contents[path]))
    read, write = counts
    table["topicConfigTable"]["T"] |= {"readQueueNums": read, "writeQueueNums": write}
    for each in (path, f"{path}.bak"):
        if each in disk.contents:
            disk.contents[each] = bytearray(json.dumps(table).encode())
    async with embedded_broker(disk, clock=clock) as broker:
        assert [each for each in caplog.records if "had no read queues" in each.message]
        client = await broker.connect()
        assert (await client.ask(SEND, send_fields(queue_id=-1), b"new")).code == 0
        bodies = []
        for queue_id in range(broker.controller.topics.select("T").read_queue_nums):
            pulled = await client.ask(PULL, pull_fields(queue_id=queue_id, sysFlag=4))
            bodies += [message.body for message in decode_messages(pulled.body)]
        assert sorted(bodies) == [b"new", b"old"]


async def test_a_topic_whose_writing_queues_were_taken_away_refuses_a_send_to_any_queue(
    autojump_clock,
):
    async with broker_and_client() as (broker, client):
        fields = topic_fields("T", 2, writeQueueNums=0)
        assert (await client.ask(17, fields)).code == 0
        answer = await client.ask(SEND, send_fields(queue_id=-1), b"x")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "writeQueueNums 0" in answer.remark
        assert (await client.ask(17, fields | {"readQueueNums": 0})).code == 0
        assert broker.controller.topics.select("T").read_queue_nums == 1


@pytest.mark.parametrize("code", [SEND, SEND_BATCH])
@pytest.mark.parametrize("sys_flag", [PREPARED, ROLLBACK, PREPARED | 1])
async def test_a_send_whose_sys_flag_would_hide_it_from_consumers_is_refused(
    autojump_clock, code, sys_flag
):
    async with broker_and_client() as (broker, client):
        answer = await client.ask(code, send_fields(f=sys_flag), b"x")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "hides the message" in answer.remark
        assert broker.controller.store.max_offset("T", 0) == 0
