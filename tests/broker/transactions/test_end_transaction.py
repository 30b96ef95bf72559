"""Transactions in a whole broker, in virtual time: ended, asked about, parked, restarted."""

from __future__ import annotations

import errno

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages, decode_record
from trocket.store.config import FlushDiskType
from trocket.store.store_state import StoreEvent

from ...kit import (
    TrioClock,
    broker_and_client,
    broker_client,
    embedded_broker,
    pull_fields,
    send_fields,
    stored,
)
from ..harness import heartbeat

SEND, PULL, HEART_BEAT, END, CHECK, RESUME = 310, 11, 34, 37, 39, 323
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF, OP, PARKED = (
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
)  # fmt: skip


async def prepare(client, key="K1", body=b"order", **more):
    """Send a half message; what the producer knows of it."""
    properties = f"UNIQ_KEY\1{key}\2TAGS\1a\2PGROUP\1PG\2TRAN_MSG\1true\2" + more.pop("own", "")
    fields = send_fields(i=properties, f=4, **more)
    answer = await client.ask(SEND, fields, body)
    assert answer.code == 0
    return answer.ext_fields


def end_fields(half, kind=COMMIT, **more):
    fields = {
        "producerGroup": "PG", "tranStateTableOffset": half["queueOffset"],
        "commitLogOffset": int(half["msgId"][-16:], 16), "commitOrRollback": kind,
        "msgId": half["transactionId"], "transactionId": half["transactionId"],
        "fromTransactionCheck": "false",
    }  # fmt: skip
    return fields | more


async def asked(client):
    """The checks that came, read by asking for something else."""
    await client.ask(PULL, pull_fields("none", 0, sysFlag=4))
    checks, client.pushed = [each for each in client.pushed if each.code == CHECK], []
    return checks


async def producer(broker):
    client = await broker.connect()
    body = heartbeat("c1", producers=["PG"]).to_body()
    assert (await client.ask(HEART_BEAT, {}, body)).code == 0
    return client


def check_end_fields(check, kind):
    fields = dict(check.ext_fields)
    return {
        "producerGroup": "PG", "tranStateTableOffset": fields["tranStateTableOffset"],
        "commitLogOffset": fields["commitLogOffset"], "commitOrRollback": kind,
        "msgId": fields["msgId"], "fromTransactionCheck": "true",
    }  # fmt: skip


async def test_a_committed_message_is_delivered_and_a_rolled_back_one_is_not():
    async with broker_and_client() as (broker, client):
        first = await prepare(client, "K1", b"one", h=5)
        second = await prepare(client, "K2", b"two")
        assert (first["transactionId"], first["queueId"], first["queueOffset"]) == ("K1", "0", "0")
        assert await stored(client) == []
        (half, _) = await stored(client, HALF)
        assert (await client.ask(END, end_fields(first, COMMIT))).code == 0
        answer = await client.ask(END, end_fields(second, ROLLBACK))
        assert (answer.code, answer.remark) == (0, "not set any response code")  # as Apache's
        (message,) = await stored(client)
        ops = await stored(client, OP)
        assert len(broker.controller.transactions.open) == 0
    assert half.properties["REAL_TOPIC"] == "T"
    assert half.properties["__transactionId__"] == "K1"
    assert half.sys_flag == 0
    assert (message.body, message.flag, message.tags) == (b"one", 5, "a")
    assert (message.sys_flag, message.prepared_transaction_offset) == (8, half.physical_offset)
    assert "REAL_TOPIC" not in message.properties
    assert [(op.body, op.tags) for op in ops] == [(b"0,", "d"), (b"1,", "d")]


async def test_an_end_wakes_who_waits_for_the_message(autojump_clock):
    async with embedded_broker() as broker:
        client, consumer = await broker.connect(), await broker.connect()
        half = await prepare(client)
        opaque = await consumer.send(_pull())
        await trio.sleep(1)
        started_s = trio.current_time()
        await client.ask(END, end_fields(half, COMMIT))
        answer = await consumer.answer(opaque)
        assert trio.current_time() == started_s
    assert decode_messages(answer.body)[0].body == b"order"


def _pull():
    from trocket.remoting.codec import RemotingCommand

    return RemotingCommand(PULL, {name: str(v) for name, v in pull_fields("T").items()})


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
async def test_a_transaction_ends_once(kind):
    async with broker_client() as client:
        half = await prepare(client)
        assert (await client.ask(END, end_fields(half, kind))).code == 0
        again = await client.ask(END, end_fields(half, COMMIT))
        messages = await stored(client)
    assert (again.code, "has ended already" in again.remark) == (1, True)
    assert len(messages) == (kind == COMMIT)


REFUSED = [
    pytest.param({"producerGroup": "other"}, "The producer group wrong", id="group"),
    pytest.param({"transactionId": "K9"}, "Find prepared transaction message failed", id="id"),
    pytest.param({"tranStateTableOffset": 9}, "The transaction state table offset wrong", id="of"),
    pytest.param({"commitLogOffset": 3}, "Find prepared transaction message failed", id="no half"),
    pytest.param({"commitLogOffset": -1}, "Find prepared transaction message failed", id="< 0"),
    pytest.param({"commitOrRollback": "x"}, "x", id="no number"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
async def test_a_wrong_end_is_refused_and_the_right_one_works(change, words):
    async with broker_client() as client:
        half = await prepare(client)
        refused = await client.ask(END, end_fields(half, COMMIT) | change)
        assert (refused.code, words in refused.remark) == (1, True)
        assert await stored(client) == []
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        assert len(await stored(client)) == 1


async def test_a_plain_message_cannot_be_ended():
    async with broker_client() as client:
        plain = await client.ask(SEND, send_fields(i="UNIQ_KEY\1A\2PGROUP\1PG\2"), b"x")
        half = dict(plain.ext_fields) | {"transactionId": "A"}
        answer = await client.ask(END, end_fields(half, COMMIT))
        assert (answer.code, len(await stored(client))) == (1, 1)


@pytest.mark.slow
async def test_an_open_transaction_is_asked_about_fifteen_times_and_then_parked(autojump_clock):
    async with embedded_broker(server_channel_max_idle_time_seconds=10_000) as broker:
        client = await producer(broker)
        await prepare(client)
        started_s = trio.current_time()
        await trio.sleep(5.9)
        assert await asked(client) == []
        moments = []
        for times in range(1, 16):
            await trio.sleep(0.2 if times == 1 else 30)
            await client.ask(HEART_BEAT, {}, heartbeat("c1", producers=["PG"]).to_body())
            (check,) = await asked(client)
            moments.append(round(trio.current_time() - started_s))
            message = decode_record(check.body)
            assert message.properties["TRANSACTION_CHECK_TIMES"] == str(times)
            assert (message.topic, message.queue_id, message.body) == ("T", 0, b"order")
            assert check.ext_fields["msgId"] == check.ext_fields["transactionId"] == "K1"
            assert (
                check.ext_fields["tranStateTableOffset"] == str(message.queue_offset) == str(times)
            )
            assert check.is_oneway
        assert moments == [6 + 30 * n for n in range(15)]
        await trio.sleep(300)
        client = await producer(broker)
        await trio.sleep(60)
        assert await asked(client) == []
        assert len(await stored(client, HALF)) == 16
        (parked,) = await stored(client, PARKED)
        assert broker.controller.transactions.parked == 1
        assert await stored(client) == []
        # An administrator resumes it; the producer says commit.
        answer = await client.ask(RESUME, {"topic": PARKED, "msgId": parked.offset_message_id})
        assert (answer.code, answer.remark) == (0, None)
        await trio.sleep(6.1)
        (check,) = await asked(client)
        assert (await client.ask(END, check_end_fields(check, COMMIT))).code == 0
        assert [message.body for message in await stored(client)] == [b"order"]


@pytest.mark.slow
async def test_a_check_that_is_answered_ends_it(autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        await prepare(client, "K1", b"one")
        await prepare(client, "K2", b"two")
        await trio.sleep(6.1)
        one, two = await asked(client)
        assert (await client.ask(END, check_end_fields(one, ROLLBACK))).code == 0
        await trio.sleep(30)
        (again,) = await asked(client)
        assert again.ext_fields["msgId"] == two.ext_fields["msgId"] == "K2"
        assert (await client.ask(END, check_end_fields(again, COMMIT))).code == 0
        await trio.sleep(100)
        client = await producer(broker)
        assert await asked(client) == []
        assert [message.body for message in await stored(client)] == [b"two"]


async def test_an_answer_that_comes_late_still_ends_the_newest_copy(autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        half = await prepare(client)
        await trio.sleep(40)
        first, second = await asked(client)
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        for check in (first, second):
            assert (await client.ask(END, check_end_fields(check, COMMIT))).code == 1
        await trio.sleep(60)
        assert await asked(client) == []
        assert len(await stored(client)) == 1


@pytest.mark.slow
async def test_without_a_producer_no_check_is_counted(autojump_clock):
    async with broker_and_client() as (broker, client):
        await prepare(client)
        await trio.sleep(3_000)
        client = await producer(broker)
        await trio.sleep(31)
        (check,) = await asked(client)
        assert decode_record(check.body).properties["TRANSACTION_CHECK_TIMES"] == "1"


async def test_a_message_may_have_its_own_immunity(autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        half = await prepare(client, own="CHECK_IMMUNITY_TIME_IN_SECONDS\00160\2")
        await trio.sleep(59.9)
        assert await asked(client) == []
        await trio.sleep(0.2)
        (check,) = await asked(client)
        await trio.sleep(1)
        late = await client.ask(END, end_fields(half, COMMIT))
        assert (late.code, "immunity" in late.remark) == (604, True)
        assert (await client.ask(END, check_end_fields(check, COMMIT))).code == 0
        assert len(await stored(client)) == 1


async def test_an_unknown_state_is_not_answered_and_asked_about_again(autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        half = await prepare(client)
        with trio.move_on_after(1):
            await client.ask(END, end_fields(half, UNKNOWN))
            pytest.fail("an answer came")
        await trio.sleep(5.2)
        assert len(await asked(client)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
async def test_what_is_open_is_open_after_a_restart_and_nothing_else(clean, autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        client = await producer(broker)
        halves = [await prepare(client, f"K{number}", b"%d" % number) for number in range(6)]
        await client.ask(END, end_fields(halves[0], COMMIT))
        await client.ask(END, end_fields(halves[1], ROLLBACK))
        await client.ask(END, end_fields(halves[3], COMMIT))
        await trio.sleep(20)  # three are asked about, the progress is noted
        assert len(await asked(client)) == 3
        await client.ask(END, end_fields(halves[5], COMMIT))
        killed = disk.copy()
    if not clean:
        disk = killed
    async with embedded_broker(disk, clock=clock) as broker:
        assert len(broker.controller.transactions.open) == 2
        client = await producer(broker)
        await trio.sleep(40)
        checks = {check.ext_fields["msgId"]: check for check in await asked(client)}
        assert sorted(checks) == ["K2", "K4"]
        await client.ask(END, check_end_fields(checks["K2"], COMMIT))
        await client.ask(END, check_end_fields(checks["K4"], ROLLBACK))
        bodies = sorted(message.body for message in await stored(client))
        assert bodies == [b"0", b"2", b"3", b"5"]
        await trio.sleep(100)
        client = await producer(broker)
        assert await asked(client) == []


async def test_what_the_store_refuses_stays_open(autojump_clock, caplog):
    async with embedded_broker() as broker:
        store = broker.controller.store
        client = await producer(broker)
        half = await prepare(client)
        store.writer.enter(StoreEvent.DISK_FULL)
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 14
        await trio.sleep(9)
        store.writer.enter(StoreEvent.DISK_HAS_ROOM)
        logged = [each for each in caplog.records if "are checked later" in each.message]
        await trio.sleep(2)
        (check,) = await asked(client)
        assert (await client.ask(END, check_end_fields(check, COMMIT))).code == 0
        assert len(await stored(client)) == 1
    assert len(logged) == 1


async def test_what_a_failed_write_took_back_stays_open_and_is_open_after_a_restart(caplog):
    disk = MemoryDisk()
    async with embedded_broker(disk) as broker:
        client = await producer(broker)
        half = await prepare(client)
        disk.fault = lambda call, path: (
            OSError(errno.EIO, "broken") if call == "pwrite" and "commitlog" in path else None
        )
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 14
        assert len(broker.controller.transactions.open) == 1
        disk.fault = None
    async with broker_and_client(disk) as (broker, client):
        assert len(broker.controller.transactions.open) == 1
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        assert len(await stored(client)) == 1


async def test_under_sync_flush_it_works_the_same(autojump_clock):
    async with embedded_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        client = await producer(broker)
        half = await prepare(client)
        await prepare(client, "K2", b"asked")
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        await trio.sleep(6.5)
        (check,) = await asked(client)
        assert (await client.ask(END, check_end_fields(check, COMMIT))).code == 0
        await trio.sleep(0.5)
        assert [message.body for message in await stored(client)] == [b"order", b"asked"]


async def test_a_broker_may_refuse_transactions():
    async with broker_client(reject_transaction_message=True) as client:
        fields = send_fields(i="UNIQ_KEY\1A\2PGROUP\1PG\2TRAN_MSG\1true\2", f=4)
        answer = await client.ask(SEND, fields, b"x")
    assert (answer.code, "sending transaction message is forbidden" in answer.remark) == (16, True)


async def test_there_is_a_bound_on_open_transactions():
    async with embedded_broker() as broker:
        broker.controller.transactions.open._count_max = 1
        client = await broker.connect()
        half = await prepare(client)
        fields = send_fields(i="UNIQ_KEY\1A\2PGROUP\1PG\2TRAN_MSG\1true\2", f=4)
        busy = await client.ask(SEND, fields, b"x")
        assert (busy.code, "1 transactions are open" in busy.remark) == (2, True)
        await client.ask(END, end_fields(half, ROLLBACK))
        assert (await client.ask(SEND, fields, b"x")).code == 0


@pytest.mark.parametrize(
    "msg_id", ["", "zz", "7F00000100002A9F0000000000FFFFFF", "7F00000100002A9F0000000000000000"]
)
async def test_only_a_parked_message_is_resumed(msg_id):
    async with broker_client() as client:
        await prepare(client)
        answer = await client.ask(RESUME, {"topic": PARKED, "msgId": msg_id})
        assert answer.code == 1
        assert len(await stored(client, HALF)) == 1
