"""Delayed messages that were sent while the clock was years ahead, once it is set right."""

from __future__ import annotations

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.native import extension

from ..kit import WrongClock, broker_and_client, broker_client, embedded_broker, send_fields, stored
from .delivering.test_schedule_message_service import SEND, delay
from .transactions.test_end_transaction import asked, prepare, producer

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


async def test_what_was_due_in_ten_years_comes_after_its_delay(autojump_clock):
    clock = WrongClock()
    async with broker_client(clock=clock) as client:
        clock.wrong_ms = 10 * YEAR_MS
        for level in (1, 2):
            await client.ask(SEND, send_fields(i=delay(level)), b"%d" % level)
        await trio.sleep(0.1)
        clock.wrong_ms = 0
        await trio.sleep(0.8)
        assert await stored(client) == []
        await trio.sleep(5.4)  # the new time is seen within a second
        assert {message.body for message in await stored(client)} == {b"1", b"2"}


async def test_what_is_due_in_time_waits_for_its_time(autojump_clock):
    clock = WrongClock()
    async with broker_client(clock=clock) as client:
        await client.ask(SEND, send_fields(i=delay(2)), b"5 s")
        await trio.sleep(4.9)
        assert await stored(client) == []
        await trio.sleep(0.2)
        assert len(await stored(client)) == 1


@pytest.mark.slow
async def test_a_delay_counts_from_now_while_the_store_is_ahead_of_the_clock(autojump_clock):
    """The clock is set back over a restart: the store's newest message is an hour ahead."""
    disk, clock = MemoryDisk(), WrongClock()
    clock.wrong_ms = HOUR_MS
    async with embedded_broker(disk, clock=clock) as broker:
        await (await broker.connect()).ask(SEND, send_fields("Other"), b"x")
    clock.wrong_ms = 0
    async with broker_and_client(disk, clock=clock) as (broker, client):
        now_ms = clock.wall_ms()
        for key, property_text in (
            ("2 h", "DELAY\x0118"),
            ("30 min", f"TIMER_DELIVER_MS\x01{now_ms + HOUR_MS // 2}"),
            ("20 min", "TIMER_DELAY_SEC\x011200"),
            ("10 min", "TIMER_DELAY_MS\x01600000"),
        ):
            fields = send_fields(i=f"UNIQ_KEY\x01{key}\x02{property_text}\x02")
            assert (await client.ask(SEND, fields, key.encode())).code == 0
        begin_s = trio.current_time()
        due_s = {"10 min": 600, "20 min": 1200, "30 min": 1800, "2 h": 7200}
        for count, (key, seconds) in enumerate(due_s.items()):
            await trio.sleep_until(begin_s + seconds - 1)
            client = await broker.connect()
            assert len(await stored(client)) == count, key
            await trio.sleep(2.5)
            assert len(await stored(client)) == count + 1, key


@pytest.mark.parametrize("native", [extension, None], ids=["as built", "pure"])
async def test_a_queue_that_is_built_again_from_the_log_has_the_same_due_times(
    autojump_clock, native
):
    disk, clock = MemoryDisk(), WrongClock()
    async with broker_client(disk, clock=clock, native=native) as client:
        await client.ask(SEND, send_fields("Other"), b"first")
        clock.wrong_ms = -HOUR_MS
        for body in (b"5 s", b"5 s more"):
            await client.ask(SEND, send_fields(i=delay(2)), body)
        await trio.sleep(2)
        survivor = disk.copy()
    async with embedded_broker(survivor, clock=clock, native=native) as broker:
        await trio.sleep(2.9)
        assert await stored(await broker.connect()) == []
        await trio.sleep(0.3)
        bodies = [each.body for each in await stored(await broker.connect())]
        assert bodies == [b"5 s", b"5 s more"]


@pytest.mark.slow
async def test_messages_that_were_sent_before_the_clock_was_set_back_wait_their_delay_at_most_again(
    autojump_clock,
):
    clock = WrongClock()
    clock.wrong_ms = 10 * YEAR_MS
    async with broker_and_client(clock=clock) as (broker, client):
        for number in range(3):
            await client.ask(SEND, send_fields(i=delay(4)), b"before %d" % number)
            await trio.sleep(5)
        clock.wrong_ms = 0
        broker.controller.wall_clock_set()
        await client.ask(SEND, send_fields(i=delay(4)), b"after")
        await trio.sleep(29.9)
        assert await stored(client) == []
        await trio.sleep(0.2)
        bodies = [message.body for message in await stored(client)]
        assert bodies[:1] == [b"before 0"]
        await trio.sleep(10)
        assert len(await stored(client)) == 4


@pytest.mark.parametrize("jump_ms", [-10 * YEAR_MS, -HOUR_MS, -3_000])
async def test_the_checks_of_a_transaction_follow_no_jump_of_the_clock(autojump_clock, jump_ms):
    clock = WrongClock()
    async with embedded_broker(clock=clock) as broker:
        client = await producer(broker)
        await prepare(client, "before")
        clock.wrong_ms = jump_ms
        await prepare(client, "after")
        await trio.sleep(6.2)
        checks = await asked(client)
        assert {check.ext_fields["msgId"] for check in checks} == {"before", "after"}
        await trio.sleep(30)
        assert len(await asked(client)) == 2


@pytest.mark.parametrize("jump_ms", [-10 * YEAR_MS, -HOUR_MS, -3_000])
async def test_a_transaction_from_before_a_restart_is_checked_after_its_wait_at_most_again(
    autojump_clock, jump_ms
):
    disk, clock = MemoryDisk(), WrongClock()
    async with embedded_broker(disk, clock=clock) as broker:
        await prepare(await producer(broker), "before")
    clock.wrong_ms = jump_ms
    async with embedded_broker(disk, clock=clock) as broker:
        client = await producer(broker)
        await trio.sleep(6.2)
        assert [check.ext_fields["msgId"] for check in await asked(client)] == ["before"]


async def test_the_delay_that_metrics_state_is_that_of_the_clock_while_the_store_is_ahead(
    autojump_clock,
):
    clock = WrongClock()
    clock.wrong_ms = HOUR_MS
    async with broker_and_client(clock=clock) as (broker, client):
        await client.ask(SEND, send_fields("Other"), b"x")
        clock.wrong_ms = 0
        await client.ask(SEND, send_fields(i="TIMER_DELAY_SEC\x011200"), b"20 min")
        await trio.sleep(2)
        delays_s = broker.controller.timers.counts.delays_s
        assert delays_s.count == 1
        assert delays_s.total == pytest.approx(1200, abs=3)
