"""Messages sent back by consumers: retries, dead letters, what they remember."""

from __future__ import annotations

import pytest
import trio

from trocket.broker.sending.send_back import RetryDecision, decide_retry
from trocket.remoting.bodies import MessageQueue
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_id import encode_offset_id
from trocket.store.config import FlushDiskType

from ...kit import (
    broker_and_client,
    broker_client,
    long_names,
    send_fields,
    stored,
)

SEND_V1, SEND, SEND_BACK, PULL, GROUP_UPDATE = 10, 310, 36, 11, 200
RETRY_DELAYS_S = [10, 30, *(60 * n for n in range(1, 11)), 1200, 1800, 3600, 7200]
"""Level 3 and those after it."""


@pytest.mark.parametrize(
    ("tries", "level", "tries_max", "verdict"),
    [
        (0, 0, 16, RetryDecision(False, 3)),
        (5, 0, 16, RetryDecision(False, 8)),
        (15, 0, 16, RetryDecision(False, 18)),
        (16, 0, 16, RetryDecision(True, 0)),
        (17, 4, 16, RetryDecision(True, 0)),
        (2, 4, 16, RetryDecision(False, 4)),
        (0, -1, 16, RetryDecision(True, 0)),
        (0, 0, 0, RetryDecision(True, 0)),
        (40, 0, 100, RetryDecision(False, 43)),
    ],
)
def test_a_message_is_tried_again_until_the_tries_are_used_up(tries, level, tries_max, verdict):
    assert decide_retry(tries, level, tries_max) == verdict


def back_fields(message, group="G", **more):
    fields = {
        "offset": message.physical_offset, "group": group, "delayLevel": 0,
        "originMsgId": message.unique_key, "originTopic": message.topic, "unitMode": "false",
        "maxReconsumeTimes": 16,
    }  # fmt: skip
    return {name: value for name, value in (fields | more).items() if value is not None}


async def send(client, **more):
    properties = "UNIQ_KEY\1AB\2TAGS\1a\2KEYS\1k\2mine\1yes\2WAIT\1true\2"
    assert (await client.ask(SEND, send_fields(i=properties, **more), b"body")).code == 0
    return (await stored(client))[0]


@pytest.mark.slow
async def test_it_is_tried_sixteen_times_and_then_given_up(autojump_clock):
    async with broker_and_client() as (broker, client):
        first = message = await send(client, h=77)
        for tries, delay_s in enumerate(RETRY_DELAYS_S):
            answer = await client.ask(SEND_BACK, back_fields(message))
            assert (answer.code, answer.remark) == (0, None)
            await trio.sleep(delay_s - 0.01)
            client = await broker.connect()
            assert await stored(client, "%RETRY%G", offset=tries) == []
            await trio.sleep(0.05)
            (message,) = await stored(client, "%RETRY%G", offset=tries)
            assert message.reconsume_times == tries + 1
        answer = await client.ask(SEND_BACK, back_fields(message))
        assert answer.code == 0
        (dead,) = await stored(client, "%DLQ%G")
        await trio.sleep(7_300)  # longer than the longest delay
        client = await broker.connect()
        assert len(await stored(client, "%RETRY%G")) == 16
        assert await stored(client, "%DLQ%G", offset=1) == []
    assert (dead.body, dead.flag, dead.tags, dead.keys) == (b"body", 77, "a", "k")
    assert dead.born_timestamp_ms == first.born_timestamp_ms
    assert (dead.born_host, dead.reconsume_times) == (first.born_host, 17)
    assert dead.properties == {
        **first.properties,
        "WAIT": "false",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": encode_offset_id(first.store_host, first.physical_offset),
        "DELAY": "0",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
    }


async def test_a_retry_keeps_its_first_topic_and_id(autojump_clock):
    async with broker_client() as client:
        message = await send(client)
        await client.ask(SEND_BACK, back_fields(message, delayLevel=1))
        await trio.sleep(1.1)
        (once,) = await stored(client, "%RETRY%G")
        await client.ask(SEND_BACK, back_fields(once, delayLevel=2))
        await trio.sleep(5.1)
        (twice,) = await stored(client, "%RETRY%G", offset=1)
    for again in (once, twice):
        assert again.properties["RETRY_TOPIC"] == "T"
        assert again.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id
    assert (once.reconsume_times, twice.reconsume_times) == (1, 2)
    assert (once.properties["DELAY"], twice.properties["DELAY"]) == ("1", "2")


async def test_the_group_says_how_often_when_the_consumer_does_not():
    async with broker_client() as client:
        body = b'{"groupName":"G","retryMaxTimes":0,"retryQueueNums":1}'
        assert (await client.ask(GROUP_UPDATE, {}, body)).code == 0
        message = await send(client)
        assert (await client.ask(SEND_BACK, back_fields(message, maxReconsumeTimes=None))).code == 0
        assert len(await stored(client, "%DLQ%G")) == 1


async def test_a_group_without_retry_queues_wants_nothing_tried_again():
    async with broker_and_client() as (broker, client):
        body = b'{"groupName":"G","retryMaxTimes":16,"retryQueueNums":0}'
        assert (await client.ask(GROUP_UPDATE, {}, body)).code == 0
        message = await send(client)
        assert (await client.ask(SEND_BACK, back_fields(message))).code == 0
        assert "%RETRY%G" not in broker.controller.topics.topic_config_table


REFUSED = [
    pytest.param({"group": "../x"}, {}, 26, "subscription group not exist, ../x", id="group"),
    pytest.param({"offset": 7}, {}, 1, "look message by offset failed, 7", id="no message there"),
    pytest.param({"offset": -1}, {}, 1, "look message by offset failed, -1", id="negative"),
    pytest.param({"offset": 1 << 62}, {}, 1, "look message by offset failed", id="beyond"),
    pytest.param({"delayLevel": "soon"}, {}, 1, "soon", id="level"),
    pytest.param({}, {"broker_permission": 4}, 16, "sending message is forbidden", id="read-only"),
]


@pytest.mark.parametrize(("change", "options", "code", "words"), REFUSED)
async def test_what_cannot_be_taken_back_is_refused_in_words(change, options, code, words):
    async with broker_client(**options) as client:
        message = await send(client)
        answer = await client.ask(SEND_BACK, back_fields(message, **change))
        assert (await stored(client, "%RETRY%G")) == []
    assert answer.code == code
    assert words in answer.remark


async def test_sends_and_send_backs_of_one_turn_are_answered_each(autojump_clock):
    async with broker_and_client(flush_disk_type=FlushDiskType.SYNC_FLUSH) as (broker, client):
        message = await send(client)
        answers = []
        async with trio.open_nursery() as nursery:

            async def ask(code, fields, body=b""):
                other = await broker.connect()
                answers.append((await other.ask(code, fields, body)).code)

            for _ in range(4):
                nursery.start_soon(ask, SEND_BACK, back_fields(message))
                nursery.start_soon(ask, SEND, send_fields(), b"x")
        await trio.sleep(10.5)
        client = await broker.connect()
        assert len(await stored(client, "%RETRY%G")) == 4
        assert len(await stored(client)) == 5
    assert answers == [0] * 8


@pytest.mark.parametrize("code", [SEND_V1, SEND])
async def test_a_consumer_may_send_to_its_retry_topic_itself(code, autojump_clock):
    async with broker_client() as client:

        async def retry(tries, level="3"):
            fields = send_fields("%RETRY%G", i=f"UNIQ_KEY\1A\2DELAY\1{level}\2", j=tries, l=2)
            if code == SEND_V1:
                fields = long_names(fields)
            return (await client.ask(code, fields, b"again")).code

        assert [await retry(1), await retry(2), await retry(3)] == [0, 0, 0]
        (dead,) = await stored(client, "%DLQ%G")
        await trio.sleep(10.5)
        assert len(await stored(client, "%RETRY%G")) == 2
    assert dead.properties["DELAY"] == "-1"
    assert "REAL_TOPIC" not in dead.properties


async def test_what_an_ordered_consumer_gives_up_is_dead_at_once():
    async with broker_and_client() as (broker, client):
        queues = [MessageQueue(topic="T", broker_name="b", queue_id=0)]
        broker.controller.locks.try_lock_batch("G", queues, "c1", now_s=trio.current_time())
        fields = send_fields("%RETRY%G", i="UNIQ_KEY\1A\2DELAY\0013\2", j=1, l=16)
        assert (await client.ask(SEND, fields, b"poison")).code == 0
        (dead,) = await stored(client, "%DLQ%G")
    assert dead.body == b"poison"


async def never(*, threaded):
    """An fsync that takes its time."""
    await trio.sleep_forever()


async def test_under_sync_flush_it_is_answered_behind_the_fsync(autojump_clock, monkeypatch):
    async with broker_and_client(flush_disk_type=FlushDiskType.SYNC_FLUSH) as (broker, client):
        message = await send(client)
        fields = {name: str(value) for name, value in back_fields(message).items()}
        with monkeypatch.context() as slow:
            slow.setattr(broker.controller.store.flusher, "flush_in_thread", never)
            opaque = await client.send(RemotingCommand(SEND_BACK, fields))
            with trio.move_on_after(2):
                await client.answer(opaque)
                pytest.fail("it is answered, and a power cut would take it")
        broker.controller.store.flusher.flush()
        assert (await client.answer(opaque)).code == 0
