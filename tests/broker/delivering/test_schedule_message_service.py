"""Delayed messages in a whole broker, in virtual time."""

from __future__ import annotations

import logging
import re

import pytest
import trio
import trio.testing

from trocket.common.topic_names import SCHEDULE_TOPIC
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import FlushDiskType
from trocket.store.status import PutMessageStatus, PutRefusal

from ...kit import (
    START_MS,
    TrioClock,
    broker_and_client,
    broker_client,
    embedded_broker,
    pull_fields,
    send_fields,
    stored,
)

SEND, PULL, DELETE_LOG = 310, 11, 329
LEVELS_S = [1, 5, 10, 30, *(60 * n for n in range(1, 11)), 1200, 1800, 3600, 7200]
OFFSETS = "/store/config/delayOffset.json"


def delay(level: object, key: str = "A") -> str:
    return f"UNIQ_KEY\1{key}\2TAGS\1a\2DELAY\1{level}\2"


@pytest.mark.slow
@pytest.mark.parametrize("level", [*range(1, 19), 25])
async def test_each_level_is_delivered_when_it_is_due_and_not_before(level, autojump_clock):
    due_s = LEVELS_S[min(level, 18) - 1]
    async with broker_and_client() as (broker, client):
        sent_s = trio.current_time()
        answer = await client.ask(SEND, send_fields(queue_id=2, i=delay(level)), b"later")
        assert (answer.code, answer.ext_fields["queueId"]) == (0, "2")
        await trio.sleep(due_s - 0.01)
        client = await broker.connect()  # the other one may have been idle for too long
        assert await stored(client, queue_id=2) == []
        fields = pull_fields("T", 2)
        (message,) = decode_messages((await client.ask(PULL, fields)).body)
        waited_s = trio.current_time() - sent_s
    assert due_s <= waited_s <= due_s + 0.05
    assert (message.body, message.tags, message.unique_key) == (b"later", "a", "A")
    assert message.properties["REAL_TOPIC"] == "T"
    assert message.properties["DELAY"] == str(min(level, 18))
    assert message.born_timestamp_ms == START_MS


@pytest.mark.slow
async def test_messages_of_several_levels_come_in_the_order_of_their_times(autojump_clock):
    async with broker_and_client() as (broker, client):
        for number, level in enumerate([5, 3, 1, 4, 2, 1, 3]):
            fields = send_fields(i=delay(level, f"K{number}"))
            await client.ask(SEND, fields, b"%d" % level)
        await trio.sleep(61)
        messages = await stored(client)
        assert broker.controller.schedule.delivered == 7
    assert [message.body for message in messages] == [b"1", b"1", b"2", b"3", b"3", b"4", b"5"]


async def test_what_waits_waits_on_after_a_restart_and_comes_once(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock) as client:
        await client.ask(SEND, send_fields(i=delay(1)), b"soon")
        await client.ask(SEND, send_fields(i=delay(4)), b"30 s")
        await trio.sleep(2)
    assert re.search(rb'"offsetTable":\{\s*1:1,\s*4:0\s*\}', bytes(disk.contents[OFFSETS]))
    await trio.sleep(40)
    async with broker_client(disk, clock=clock) as client:
        await trio.sleep(0.1)
        messages = await stored(client)
    assert [message.body for message in messages] == [b"soon", b"30 s"]


async def test_a_kill_repeats_at_most_what_came_since_the_last_save(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock) as client:
        await client.ask(SEND, send_fields(i=delay(1)), b"saved")
        await trio.sleep(11)  # a save every 10 s
        await client.ask(SEND, send_fields(i=delay(1)), b"again")
        await trio.sleep(2)
        survivor = disk.copy()
    async with broker_client(survivor, clock=clock) as client:
        await trio.sleep(0.1)
        messages = await stored(client)
    assert [message.body for message in messages] == [b"saved", b"again", b"again"]


async def test_what_the_store_refuses_is_delivered_later(autojump_clock, caplog, monkeypatch):
    async with broker_and_client() as (broker, client):
        await client.ask(SEND, send_fields(i=delay(1)), b"later")
        with monkeypatch.context() as refusing:
            refused = (PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE), -1, -1)
            refusing.setattr(broker.controller.store, "put", lambda *a, **more: refused)
            await trio.sleep(3)
        assert await stored(client) == []
        await trio.sleep(0.2)
        messages = await stored(client)
    assert [message.body for message in messages] == [b"later"]
    logged = [each for each in caplog.records if "delivered later" in each.message]
    assert len(logged) == 1


async def test_a_message_that_cannot_be_delivered_does_not_keep_the_others(autojump_clock, caplog):
    caplog.set_level(logging.ERROR)
    async with broker_and_client() as (broker, client):
        store = broker.controller.store
        half = b"DELAY\0011\2REAL_TOPIC\1RMQ_SYS_TRANS_HALF_TOPIC\2REAL_QID\0010\2"
        no_number = b"DELAY\0011\2REAL_TOPIC\1T\2REAL_QID\1x\2"
        store.begin_burst()
        for properties in (b"DELAY\0011\2", no_number, half):
            store.put_message(
                "SCHEDULE_TOPIC_XXXX", 0, b"lost", properties, born_timestamp_ms=1,
                born_host=bytes(8), store_host=bytes(8), tags_code=store.store_time_ms + 1000,
            )  # fmt: skip
        store.commit()
        await client.ask(SEND, send_fields(i=delay(1)), b"fine")
        await trio.sleep(2)
        messages = await stored(client)
    assert [message.body for message in messages] == [b"fine"]
    assert len([each for each in caplog.records if "is skipped" in each.message]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True], ids=["running", "killed afterwards"])
async def test_a_message_whose_log_file_was_deleted_takes_no_later_one_with_it(
    autojump_clock, is_killed
):
    disk, clock = MemoryDisk(), TrioClock()
    options = {"file_reserved_time": 1, "delete_when": "00"}
    async with broker_and_client(disk, clock=clock, **options) as (broker, client):
        await client.ask(SEND, send_fields(i=delay(18)), b"lost")
        for _ in range(3):  # the log goes on in another file
            await client.ask(SEND, send_fields("Other", i="UNIQ_KEY\1B\2"), bytes(100_000))
        await trio.sleep(5400)
        client = await broker.connect()
        await client.ask(DELETE_LOG, {})
        await trio.sleep(60)
        assert broker.controller.store.min_offset(SCHEDULE_TOPIC, 17) == 1
        await trio.sleep(1800)  # it would have been due
        client = await broker.connect()
        await client.ask(SEND, send_fields(i=delay(18)), b"next")
        await trio.sleep(20)  # the offsets are saved
        survivor = disk.copy()
        if not is_killed:
            await trio.sleep(7200)
            assert [each.body for each in await stored(await broker.connect())] == [b"next"]
    if is_killed:
        async with embedded_broker(survivor, clock=clock, **options) as broker:
            await trio.sleep(7200)
            assert [each.body for each in await stored(await broker.connect())] == [b"next"]


async def test_under_sync_flush_it_is_delivered_when_it_is_on_the_device(autojump_clock):
    async with broker_client(flush_disk_type=FlushDiskType.SYNC_FLUSH) as client:
        await client.ask(SEND, send_fields(i=delay(1)), b"later")
        await trio.sleep(1.2)
        messages = await stored(client)
    assert [message.body for message in messages] == [b"later"]


async def test_many_due_at_once_leave_the_broker_answering(autojump_clock):
    async with broker_and_client() as (broker, client):
        for number in range(500):
            fields = {name: str(value) for name, value in send_fields(i=delay(1)).items()}
            await client.send(RemotingCommand(SEND, fields, b"%d" % number))
        await client.ask(SEND, send_fields(), b"now")
        await trio.sleep(3)
        assert broker.controller.store.max_offset("T", 0) == 501


@pytest.mark.slow
async def test_the_next_message_is_delivered_when_the_one_before_was_deleted_while_it_waited(
    autojump_clock,
):
    async with broker_and_client(file_reserved_time=1) as (broker, client):
        assert (await client.ask(SEND, send_fields(i=delay(18, "gone")), b"gone")).code == 0
        for _ in range(8):  # the message's log file is full, and so are others
            fields = send_fields("other")
            assert (await client.ask(SEND, fields, bytes(100_000))).code == 0
        await trio.sleep(3700)
        client = await broker.connect()
        assert (await client.ask(DELETE_LOG, {})).code == 0
        await trio.sleep(3600)  # the deleted message's time has passed
        assert broker.controller.store.min_offset("SCHEDULE_TOPIC_XXXX", 17) == 1
        client = await broker.connect()
        assert (await client.ask(SEND, send_fields(i=delay(18, "kept")), b"kept")).code == 0
        await trio.sleep(7201)
        client = await broker.connect()
        assert [message.body for message in await stored(client)] == [b"kept"]


async def test_a_clean_stop_before_the_first_delivery_is_not_taken_for_a_lost_table(
    autojump_clock, caplog
):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock) as client:
        assert (await client.ask(SEND, send_fields(i=delay(3)), b"later")).code == 0
    caplog.clear()
    async with embedded_broker(disk, clock=clock) as broker:
        assert "delayOffset.json" not in caplog.text
        await trio.sleep(10)
        client = await broker.connect()
        assert [message.body for message in await stored(client)] == [b"later"]
