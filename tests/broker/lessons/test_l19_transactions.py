"""L19: an open transaction is asked about in time, a bounded number of times, and never dropped.

Apache checks by the client's clock, spins where times are equal, tries a failed write again without
a pause, lets one bad message stop the others, drops what has a long immunity, commits twice, and
moves a delayed half message to and fro. Its issues are #9486, #9500, #8311, #615, #544, #10199 and
PR #1626.
"""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_record
from trocket.store.config import FlushDiskType
from trocket.store.status import PutMessageStatus, PutRefusal

from ...kit import START_MS, TrioClock, broker_and_client, embedded_broker
from ..transactions.test_end_transaction import (
    CHECK,
    COMMIT,
    END,
    HALF,
    OP,
    PARKED,
    ROLLBACK,
    asked,
    check_end_fields,
    end_fields,
    prepare,
    producer,
    stored,
)

DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("born_ms", [0, START_MS - DAY_MS, START_MS + DAY_MS])
async def test_the_clients_clock_does_not_say_when_it_is_checked(born_ms, autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        await prepare(client, g=born_ms)
        await trio.sleep(5.99)
        assert await asked(client) == []
        await trio.sleep(0.02)
        assert len(await asked(client)) == 1


async def test_at_the_very_moment_it_is_due_it_is_asked_about_once(autojump_clock):
    async with embedded_broker(transaction_check_interval=1_000) as broker:
        client = await producer(broker)
        await prepare(client)
        for times in range(1, 6):
            await trio.sleep(6 if times == 1 else 1)
            await trio.testing.wait_all_tasks_blocked()
            (check,) = await asked(client)
            assert decode_record(check.body).properties["TRANSACTION_CHECK_TIMES"] == str(times)
            assert broker.controller.store.max_offset(HALF, 0) == times + 1


async def test_a_store_that_refuses_is_asked_with_pauses(autojump_clock, monkeypatch):
    async with embedded_broker() as broker:
        client = await producer(broker)
        await prepare(client)
        tries = 0

        def refuse(*args, **more):
            nonlocal tries
            tries += 1
            return (PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE), -1, -1)

        with monkeypatch.context() as refusing:
            refusing.setattr(broker.controller.store, "put", refuse)
            await trio.sleep(66)
        assert 50 <= tries <= 130  # each second, an op message for nothing included
        await trio.sleep(1.1)
        assert len(await asked(client)) == 1


async def test_a_message_without_a_producer_to_ask_stops_no_other(autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        store = broker.controller.store
        store.begin_burst()
        for properties in (b"", b"PGROUP\1PG\2REAL_QID\1x\2", b"PGROUP\1nobody\2"):
            _, _, queue_offset = store.put_message(
                HALF, 0, b"odd", properties, born_timestamp_ms=1, born_host=bytes(8),
                store_host=bytes(8), tags_code=0,
            )  # fmt: skip
            broker.controller.transactions.put_half(queue_offset, properties)
        store.commit()
        broker.controller.transactions.after_commit(True)
        half = await prepare(client)
        await trio.sleep(6.1)
        checks = await asked(client)
        assert [decode_record(check.body).body for check in checks] == [b"odd", b"order"]
        assert (await client.ask(END, check_end_fields(checks[1], COMMIT))).code == 0
        assert [message.body for message in await stored(client)] == [b"order"]
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 1


async def test_the_progress_goes_on_behind_what_cannot_be_read(autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        await prepare(client, "K1")
        half = await prepare(client, "K2")
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        controller = broker.controller
        read = controller.transactions._read

        def unreadable(topic, queue_offset, skip=()):
            return iter(()) if queue_offset == 0 else read(topic, queue_offset, skip)

        controller.transactions._read = unreadable
        await trio.sleep(21)
        noted = controller.offsets.query_offset("CID_RMQ_SYS_TRANS", HALF, 0)
    assert noted == 2


@pytest.mark.slow
async def test_a_long_immunity_does_not_outlast_the_file(autojump_clock):
    async with embedded_broker(
        file_reserved_time=1, server_channel_max_idle_time_seconds=10_000,
        channel_expired_timeout=10_000_000,
    ) as broker:  # fmt: skip
        client = await producer(broker)
        await prepare(client, own="CHECK_IMMUNITY_TIME_IN_SECONDS\00136000\2")
        await trio.sleep(1799)
        assert await asked(client) == []
        await trio.sleep(2)
        assert len(await asked(client)) == 1


@pytest.mark.slow
async def test_a_message_without_a_producer_is_parked_before_its_file_is_deleted(autojump_clock):
    async with broker_and_client(file_reserved_time=1) as (broker, client):
        await prepare(client)
        await trio.sleep(1840)
        client = await broker.connect()
        (parked,) = await stored(client, PARKED)
        assert broker.controller.transactions.parked == 1
    assert parked.body == b"order"
    assert "TRANSACTION_CHECK_TIMES" not in parked.properties


@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
async def test_ends_that_come_together_end_it_once(second, autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        half = await prepare(client)
        await trio.sleep(6.1)
        (check,) = await asked(client)
        codes = []
        async with trio.open_nursery() as nursery:

            async def end(fields):
                other = await broker.connect()
                codes.append((await other.ask(END, fields)).code)

            nursery.start_soon(end, end_fields(half, COMMIT))
            nursery.start_soon(end, check_end_fields(check, second))
        assert sorted(codes) == [0, 1]
        assert len(await stored(client, OP)) == 2  # of the check, and of the end
        assert len(await stored(client)) <= 1
        await trio.sleep(60)
        assert await asked(client) == []


async def test_a_commit_that_comes_again_after_a_kill_is_refused(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        client = await producer(broker)
        half = await prepare(client)
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        survivor = disk.copy()
    async with embedded_broker(survivor, clock=clock) as broker:
        client = await producer(broker)
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 1
        await trio.sleep(60)
        assert await asked(client) == []
        assert len(await stored(client)) == 1


async def test_a_delayed_transaction_waits_for_its_end_and_then_for_its_time(autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        half = await prepare(client, own="DELAY\0012\2")
        await trio.sleep(5.5)
        assert len(await stored(client, "SCHEDULE_TOPIC_XXXX", 1)) == 0
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        await trio.sleep(4.99)
        assert await stored(client) == []
        await trio.sleep(0.02)
        assert [message.body for message in await stored(client)] == [b"order"]
        await trio.sleep(100)
        client = await producer(broker)
        assert await asked(client) == []
        assert len(await stored(client)) == 1
        assert len(await stored(client, HALF)) == 1


def powerless(disk):
    """What a power cut now leaves of a journalled disk."""
    survivor = disk.copy()
    survivor.power_loss()
    return survivor


def fail_when_cut(disk, cuts):
    """Keep what each fsync of the log would find after a power cut just before it."""

    def before(operation, path):
        if operation == "sync" and "commitlog" in path:
            cuts.append(powerless(disk))

    disk.fault = before


async def test_a_check_under_sync_flush_is_one_that_a_power_cut_does_not_take_back(autojump_clock):
    disk, clock, cuts = MemoryDisk(journalled=True), TrioClock(), []
    async with embedded_broker(
        disk, clock=clock, flush_disk_type=FlushDiskType.SYNC_FLUSH
    ) as broker:
        client = await producer(broker)
        await prepare(client)
        heard = []
        fail_when_cut(disk, cuts)
        write = broker.controller.transactions._ask
        broker.controller.transactions._ask = lambda check: (heard.append(len(cuts)), write(check))
        await trio.sleep(6.1)
        disk.fault = None
        assert heard == [1]  # behind the fsync
        assert [check.code for check in await asked(client)] == [CHECK]


async def never(*, threaded):
    """An fsync that takes its time."""
    await trio.sleep_forever()


async def test_a_rollback_under_sync_flush_is_answered_behind_the_fsync(
    autojump_clock, monkeypatch
):
    async with embedded_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        client = await producer(broker)
        half = await prepare(client)
        fields = {name: str(value) for name, value in end_fields(half, ROLLBACK).items()}
        with monkeypatch.context() as slow:
            slow.setattr(broker.controller.store.flusher, "flush_in_thread", never)
            opaque = await client.send(RemotingCommand(END, fields))
            with trio.move_on_after(2):
                await client.answer(opaque)
                pytest.fail("it is answered, and a power cut would take it back")
        broker.controller.store.flusher.flush()
        assert (await client.answer(opaque)).code == 0


async def test_an_end_names_its_transaction_and_ends_no_other_in_its_place():
    async with embedded_broker() as broker:
        client = await producer(broker)
        half = await prepare(client, "K1")
        other = end_fields(half, COMMIT, transactionId="K0", msgId="K0")
        assert (await client.ask(END, other)).code == 1
        assert await stored(client) == []
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0


async def test_the_task_that_checks_sleeps_while_nothing_is_due_earlier(
    autojump_clock, monkeypatch
):
    async with broker_and_client() as (broker, client):
        await prepare(client, "K0")
        await trio.testing.wait_all_tasks_blocked()
        table = broker.controller.transactions.open
        next_due_ms, asked_for = table.next_due_ms, []

        def counted():
            asked_for.append(next_due_ms())
            return asked_for[-1]

        monkeypatch.setattr(table, "next_due_ms", counted)
        for number in range(1, 50):
            half = await prepare(client, f"K{number}")
            assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        await trio.testing.wait_all_tasks_blocked()
        assert len(asked_for) <= 1


async def test_a_transaction_that_is_due_earlier_is_checked_in_time(autojump_clock):
    async with embedded_broker() as broker:
        client = await producer(broker)
        await prepare(client, "late", own="CHECK_IMMUNITY_TIME_IN_SECONDS\x011000\2")
        await trio.sleep(1)
        await prepare(client, "early")
        await trio.sleep(6.1)
        assert [check.ext_fields["msgId"] for check in await asked(client)] == ["early"]
