"""Timer messages in a whole broker, in virtual time."""

from __future__ import annotations

import logging
import struct

import pytest
import trio

from trocket.broker.delivering.timer_checkpoint import TimerCheckpoint
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.recall_handle import RecallHandle
from trocket.remoting.response_codes import ResponseCode
from trocket.store.config import FlushDiskType
from trocket.store.format import TIMER_FILE_SIZE
from trocket.store.status import PutMessageStatus, PutRefusal

from ...kit import (
    START_MS,
    TrioClock,
    broker_and_client,
    broker_client,
    embedded_broker,
    pull_fields,
    put_record,
    send_fields,
)

SEND, PULL, RECALL = 310, 11, 370
HOUR_S = 3600
DAY_S = 24 * HOUR_S
CHECKPOINT = "/store/config/timercheck"
WAITING = ("rmq_sys_wheel_timer", 0)


def timer(value: object, name: str = "TIMER_DELAY_MS", key: str = "A", more: str = "") -> str:
    return f"UNIQ_KEY\1{key}\2TAGS\1a\2{name}\1{value}\2{more}"


async def send(client, properties, body=b"later", **more):
    return await client.ask(SEND, send_fields(i=properties, **more), body)


async def stored(broker, topic="T", queue_id=0):
    client = await broker.connect()  # an older connection may have been idle for too long
    answer = await client.ask(PULL, pull_fields(topic, queue_id, sysFlag=4))
    return decode_messages(answer.body) if answer.code == 0 else []


async def bodies(broker):
    return [message.body for message in await stored(broker)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "due_s"),
    [
        ("TIMER_DELAY_SEC", 5, 5),
        ("TIMER_DELAY_MS", 1, 1),
        ("TIMER_DELAY_MS", 1000, 1),
        ("TIMER_DELAY_MS", 1001, 2),
        ("TIMER_DELIVER_MS", START_MS + 90_500, 91),
        ("TIMER_DELAY_SEC", HOUR_S, HOUR_S),
    ],
)
async def test_one_is_delivered_at_the_next_whole_second_and_not_before_its_time(
    name, value, due_s, autojump_clock
):
    async with broker_and_client() as (broker, client):
        answer = await send(client, timer(value, name), queue_id=2)
        assert (answer.code, answer.ext_fields["queueId"]) == (0, "2")
        await trio.sleep(due_s - 0.01)
        assert await stored(broker, queue_id=2) == []
        await trio.sleep(0.02)
        (message,) = await stored(broker, queue_id=2)
    assert (message.body, message.tags, message.unique_key) == (b"later", "a", "A")
    properties = message.properties
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "2")
    assert properties["TIMER_OUT_MS"] == str(START_MS + 1000 * (due_s - 1))
    assert properties["TIMER_ENQUEUE_MS"] == str(START_MS)
    assert abs(int(properties["TIMER_DEQUEUE_MS"]) - START_MS - 1000 * due_s) < 20
    assert message.born_timestamp_ms == START_MS


@pytest.mark.slow
async def test_three_days_are_kept_and_a_clock_that_is_set_on_is_noticed(autojump_clock):
    class SetOn(TrioClock):
        ahead_ms = 0

        def wall_ms(self) -> int:
            return super().wall_ms() + self.ahead_ms

    clock = SetOn()
    async with broker_and_client(clock=clock) as (broker, client):
        assert (await send(client, timer(3 * DAY_S, "TIMER_DELAY_SEC"))).code == 0
        await trio.sleep(60)
        assert await bodies(broker) == []
        clock.ahead_ms = 3 * DAY_S * 1000
        await trio.sleep(3 * DAY_S / 100)
        assert await bodies(broker) == [b"later"]


@pytest.mark.parametrize("value", [0, -5, START_MS, START_MS - 1])
async def test_one_whose_time_has_come_is_stored_at_once(value, autojump_clock):
    name = "TIMER_DELIVER_MS" if value > 0 else "TIMER_DELAY_MS"
    async with broker_and_client() as (broker, client):
        answer = await send(client, timer(value, name))
        assert "recallHandle" not in answer.ext_fields
        assert await bodies(broker) == [b"later"]


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", [" 5", "5 ", "1_0", "-9223372036854775809", "5.0"])
async def test_a_time_that_java_does_not_read_as_a_number_is_refused(name, value, autojump_clock):
    async with broker_client() as client:
        assert (await send(client, timer(value, name))).code == ResponseCode.MESSAGE_ILLEGAL
        assert (await send(client, timer("+1", name))).code == 0


async def test_a_delay_level_counts_more_than_a_time(autojump_clock):
    async with broker_and_client() as (broker, client):
        await send(client, timer(1, "TIMER_DELAY_SEC", more="DELAY\0012\2"))
        await trio.sleep(4.9)
        assert await bodies(broker) == []
        await trio.sleep(0.2)
        (message,) = await stored(broker)
    assert not [name for name in message.properties if name.startswith("TIMER")]


@pytest.mark.parametrize(
    ("options", "value", "code", "remark"),
    [
        ({}, 3 * DAY_S + 1, 13, "should not be bigger than the max delay 259200000ms"),
        ({}, "soon", 13, "timer message illegal"),
        ({"timer_max_delay_sec": 10}, 11, 13, "the max delay 10000ms"),
        ({"timer_wheel_enable": False}, 1, 1, "timerWheelEnable is false"),
    ],
)
async def test_what_cannot_be_kept_is_refused_with_apaches_words(
    options, value, code, remark, autojump_clock
):
    async with broker_and_client(**options) as (broker, client):
        answer = await send(client, timer(value, "TIMER_DELAY_SEC"))
        assert answer.code == code
        assert remark in answer.remark
        assert broker.controller.store.max_offset(*WAITING) == 0


async def test_messages_come_in_the_order_of_their_times(autojump_clock):
    async with broker_and_client() as (broker, client):
        for number, delay_s in enumerate([50, 3, 10, 3, 1]):
            await send(client, timer(delay_s, "TIMER_DELAY_SEC", f"K{number}"), b"%d" % number)
        await trio.sleep(60)
        assert await bodies(broker) == [b"4", b"1", b"3", b"2", b"0"]
        assert broker.controller.timers.delivered == 5
        assert len(broker.controller.timers.wheel) == 0


@pytest.mark.slow
async def test_what_waits_waits_on_after_a_restart_and_comes_once(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock) as client:
        for number, delay_s in enumerate([HOUR_S, 1, 5, 20]):
            await send(client, timer(delay_s, "TIMER_DELAY_SEC", f"K{number}"), b"%d" % number)
        await trio.sleep(6)
    assert TimerCheckpoint.from_page(disk.contents[CHECKPOINT]).waiting_offset == 0
    await trio.sleep(40)
    async with embedded_broker(disk, clock=clock) as broker:
        await trio.sleep(0.1)
        assert await bodies(broker) == [b"1", b"2", b"3"]
        await trio.sleep(HOUR_S)
        assert await bodies(broker) == [b"1", b"2", b"3", b"0"]
    async with embedded_broker(disk, clock=clock) as broker:
        await trio.sleep(5)
        assert await bodies(broker) == [b"1", b"2", b"3", b"0"]
        assert len(broker.controller.timers.wheel) == 0


@pytest.mark.slow
async def test_a_kill_repeats_at_most_what_came_since_the_last_save(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock) as client:
        for number, delay_s in enumerate([1, 4, 30, 1]):
            await send(client, timer(delay_s, "TIMER_DELAY_SEC", f"K{number}"), b"%d" % number)
        await trio.sleep(4.005)  # saved every second
        survivor = disk.copy()
    async with embedded_broker(survivor, clock=clock) as broker:
        await trio.sleep(1)
        assert await bodies(broker) == [b"0", b"3", b"1", b"1"]
        await trio.sleep(30)
        assert await bodies(broker) == [b"0", b"3", b"1", b"1", b"2"]


async def test_a_store_of_apaches_is_gone_on_with_where_its_broker_was(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_and_client(disk, clock=clock, timer_flush_interval_ms=10**9) as (
        broker,
        client,
    ):
        for number, delay_s in enumerate([2, 8, 5]):
            await send(client, timer(delay_s, "TIMER_DELAY_SEC", f"K{number}"), b"%d" % number)
        # Written on by Apache's broker, which keeps a message for two days at most.
        rolled = timer(8, "TIMER_DELAY_SEC", "K1", f"TIMER_OUT_MS\1{START_MS + 7000}\2")
        rolled += "TIMER_ROLL_TIMES\0011\2REAL_TOPIC\1T\2REAL_QID\0010\2"
        put_record(broker, "rmq_sys_wheel_timer", rolled, b"1")
    page = bytearray(TIMER_FILE_SIZE)
    # It was three seconds on, and had read three of the four messages.
    struct.pack_into(">qqqq", page, 0, START_MS + 3000, 4242, 3, 3)
    disk.contents[CHECKPOINT] = page
    async with embedded_broker(disk, clock=clock) as broker:
        await trio.sleep(60)
        assert await bodies(broker) == [b"2", b"1"]
        at = broker.controller.store.max_offset(*WAITING)
    known = TimerCheckpoint.from_page(disk.contents[CHECKPOINT])
    assert (known.read_offset, known.waiting_offset) == (at, at)
    # What Apache's broker then reads: time, no position in its log, queue offset twice.
    assert struct.unpack_from(">qqqq", disk.contents[CHECKPOINT])[1:] == (0, at, at)


async def test_a_damaged_checkpoint_loses_nothing(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock) as client:
        for number, delay_s in enumerate([1, 60]):
            await send(client, timer(delay_s, "TIMER_DELAY_SEC", f"K{number}"), b"%d" % number)
        await trio.sleep(3)
    disk.contents[CHECKPOINT][128 + 20] ^= 1
    async with embedded_broker(disk, clock=clock) as broker:
        await trio.sleep(60)
        assert b"1" in await bodies(broker)


async def test_what_the_store_refuses_is_delivered_later(autojump_clock, caplog, monkeypatch):
    async with broker_and_client() as (broker, client):
        await send(client, timer(1))
        with monkeypatch.context() as refusing:
            refused = (PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE), -1, -1)
            refusing.setattr(broker.controller.store, "put", lambda *a, **more: refused)
            await trio.sleep(3)
        assert await bodies(broker) == []
        await trio.sleep(0.2)
        assert await bodies(broker) == [b"later"]
    assert len([each for each in caplog.records if "delivered later" in each.message]) == 1


async def test_one_that_cannot_be_delivered_does_not_keep_the_others(autojump_clock, caplog):
    caplog.set_level(logging.ERROR)
    places = [
        "",
        "TIMER_OUT_MS\1x\2",
        f"TIMER_OUT_MS\1{START_MS}\2REAL_TOPIC\1T\2REAL_QID\1x\2",
        f"TIMER_OUT_MS\1{START_MS}\2REAL_TOPIC\1rmq_sys_wheel_timer\2REAL_QID\0010\2",
    ]
    async with broker_and_client() as (broker, client):
        for number, properties in enumerate(places):
            own = f"UNIQ_KEY\1{number}\2{properties}"
            put_record(broker, "rmq_sys_wheel_timer", own, b"lost")
        await send(client, timer(1), b"fine")
        await trio.sleep(3)
        assert await bodies(broker) == [b"fine"]
    assert len([each for each in caplog.records if "is skipped" in each.message]) == 4


async def test_under_sync_flush_nothing_comes_before_it_is_on_the_device(autojump_clock):
    options = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
    async with broker_and_client(**options) as (broker, client):
        assert (await send(client, timer(1))).code == 0
        await trio.sleep(2)
        assert await bodies(broker) == [b"later"]


async def test_a_transactions_message_waits_from_its_commit_on(autojump_clock):
    async with broker_and_client() as (broker, client):
        more = "TRAN_MSG\1true\2PGROUP\1PG\2"
        half = await send(client, timer(5, "TIMER_DELAY_SEC", more=more), f=4)
        await trio.sleep(3)
        end = {
            "producerGroup": "PG", "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": int(half.ext_fields["msgId"][-16:], 16), "commitOrRollback": 8,
            "fromTransactionCheck": "false", "msgId": "A", "transactionId": "A",
        }  # fmt: skip
        assert (await client.ask(37, end)).code == 0
        await trio.sleep(4.9)
        assert await bodies(broker) == []
        await trio.sleep(0.2)
        assert await bodies(broker) == [b"later"]


# ---- taking back -----------------------------------------------------------------------------


async def test_one_that_is_taken_back_does_not_come(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    options = {"recall_message_enable": True}
    async with broker_client(disk, clock=clock, **options) as client:
        handles = []
        for number in range(3):
            answer = await send(client, timer(10_500, key=f"K{number}"), b"%d" % number)
            handles.append(answer.ext_fields["recallHandle"])
        fields = {"producerGroup": "PG", "topic": "T", "recallHandle": handles[1]}
        handle = RecallHandle.from_text(handles[1])
        grouped = handle._replace(deliver_ms=f"{int(handle.deliver_ms):_}").to_text()
        answer = await client.ask(RECALL, fields | {"recallHandle": grouped})
        assert (answer.code, answer.remark) == (604, "recall failed, timestamp invalid")
        answer = await client.ask(RECALL, fields)
        assert (answer.code, answer.ext_fields["msgId"]) == (0, "K1")
        assert answer.remark == "not set any response code"  # as Apache's
        assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
    async with embedded_broker(disk, clock=clock, **options) as broker:
        await trio.sleep(12)
        assert await bodies(broker) == [b"0", b"2"]
        client = await broker.connect()
        answer = await client.ask(RECALL, fields)
        assert (answer.code, answer.remark) == (604, "recall failed, timestamp invalid")


@pytest.mark.parametrize(
    ("changed", "options", "code", "remark"),
    [
        ({}, {"recall_message_enable": False}, 16, "recall failed, operation is forbidden"),
        ({"topic": "U"}, {}, 17, "recall failed, the topic[U] not exist"),
        ({"topic": "TBW102"}, {}, 604, "recall failed, topic not match"),
        ({}, {"broker_name": "other"}, 604, "recall failed, broker service not available"),
        ({"recallHandle": "djEgVA=="}, {}, 604, "recall handle is invalid"),
        ({"recallHandle": "ü"}, {}, 604, "recall handle is invalid"),
        ({"recallHandle": "////"}, {}, 604, "recall handle is invalid"),
    ],
)
async def test_a_recall_that_fits_nothing_is_refused(
    changed, options, code, remark, autojump_clock
):
    disk, clock = MemoryDisk(), TrioClock()
    async with broker_client(disk, clock=clock, recall_message_enable=True) as client:
        answer = await send(client, timer(60, "TIMER_DELAY_SEC"))
    fields = {"topic": "T", "recallHandle": answer.ext_fields["recallHandle"]} | changed
    async with broker_client(
        disk, clock=clock, **{"recall_message_enable": True} | options
    ) as client:
        answer = await client.ask(RECALL, fields)
        assert (answer.code, answer.remark) == (code, remark)
