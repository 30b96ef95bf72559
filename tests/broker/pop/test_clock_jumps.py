"""The wall clock is set while messages are invisible: they come back by the clock that was asked.

A message never comes earlier than asked by the clock, and never later than asked plus the jump.
"""

from __future__ import annotations

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk

from ...kit import WrongClock, embedded_broker
from .consumer import Consumer, consumer

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
INVISIBLE_MS = 60_000
LATE_MS = 5_000
"""A revived message is there within two seconds after it is due; the new time is seen within one,
and here a pop looks for it each second."""


async def comes_again(group: Consumer, clock: WrongClock, until_s: float, **more: object) -> int:
    """Pop until a message comes; its time by the broker's clock.

    Each second at the end, before it seldom: a message that came too early is still there then.
    """
    while trio.current_time() < until_s:
        answer = await group.ask_pop(**more)
        if answer.code == 0:
            return clock.wall_ms()
        await trio.sleep(max(1, min(60, until_s - trio.current_time() - 3 * LATE_MS / 1000)))
    pytest.fail("it is invisible for longer than asked plus the jump")


@pytest.mark.slow
@pytest.mark.parametrize("by_ms", [-HOUR_MS, -30_000, -400, 400, 30_000, HOUR_MS, YEAR_MS])
@pytest.mark.parametrize("after_s", [0.0, 1.0, 55.0], ids=["before", "buffered", "stored"])
@pytest.mark.parametrize(
    ("order", "merges"),
    [(False, True), (False, False), (True, True)],
    ids=["", "unmerged", "order"],
)
async def test_a_popped_message_comes_again_by_the_clock_that_jumped(
    by_ms: int, after_s: float, order: bool, merges: bool, autojump_clock
) -> None:
    clock = WrongClock()
    async with embedded_broker(clock=clock, enable_pop_buffer_merge=merges) as broker:
        group = await consumer(broker)
        await group.send(1)
        await trio.sleep(3)
        if after_s == 0:
            clock.wrong_ms += by_ms
        more = {"order": "true" if order else "false", "queueId": 0 if order else -1}
        assert len(await group.pop(**more)) == 1
        began_s, asked_ms = trio.current_time(), clock.wall_ms() + INVISIBLE_MS
        await trio.sleep(after_s)
        if after_s:
            clock.wrong_ms += by_ms
        back_ms = max(0, -by_ms) if after_s else 0
        until_s = began_s + (INVISIBLE_MS + back_ms + LATE_MS) / 1000
        assert await comes_again(group, clock, until_s, **more) >= asked_ms


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS])
@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_changed_invisible_time_ends_by_the_clock_that_jumped(
    by_ms: int, order: str, autojump_clock
) -> None:
    clock = WrongClock()
    async with embedded_broker(clock=clock) as broker:
        group = await consumer(broker)
        await group.send(1)
        (got,) = await group.pop(order=order, queueId=0)
        clock.wrong_ms += by_ms
        changed = await group.change(got, 30_000, order=order)
        if by_ms > 0 and order == "false":
            assert changed.code == 13  # its time is over, so it comes again at once
            assert await comes_again(group, clock, trio.current_time() + LATE_MS / 1000)
            return
        assert changed.code == 0
        began_s, asked_ms = trio.current_time(), clock.wall_ms() + 30_000
        until_s = began_s + (30_000 + LATE_MS) / 1000
        assert await comes_again(group, clock, until_s, order=order) >= asked_ms


@pytest.mark.slow
@pytest.mark.parametrize("by_ms", [-HOUR_MS, -30_000, 30_000, HOUR_MS])
@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_popped_message_comes_again_by_the_clock_that_was_set_over_a_restart(
    by_ms: int, order: str, autojump_clock
) -> None:
    disk, clock = MemoryDisk(), WrongClock()
    async with embedded_broker(disk, clock=clock) as broker:
        group = await consumer(broker)
        await group.send(1)
        assert len(await group.pop(order=order)) == 1
        began_s, asked_ms = trio.current_time(), clock.wall_ms() + INVISIBLE_MS
    clock.wrong_ms += by_ms
    async with embedded_broker(disk, clock=clock) as broker:
        group = await consumer(broker)
        until_s = began_s + (INVISIBLE_MS + max(0, -by_ms) + LATE_MS) / 1000
        assert await comes_again(group, clock, until_s, order=order) >= asked_ms


@pytest.mark.slow
@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_message_popped_while_the_clock_was_ahead_comes_by_the_clock_set_right(
    order: str, autojump_clock
) -> None:
    clock = WrongClock()
    async with embedded_broker(clock=clock) as broker:
        group = await consumer(broker)
        await group.send(2)
        clock.wrong_ms = HOUR_MS
        assert len(await group.pop(order=order, maxMsgNums=1)) == 1
        asked_ms = clock.wall_ms() + INVISIBLE_MS
        await trio.sleep(10)
        clock.wrong_ms = 0
        if order == "false":  # the store's time is ahead, and pops go by the time of day
            (other,) = await group.pop(order=order)
            changed = await group.change(other, 5_000)
            assert changed.code == 0
            again_s = trio.current_time() + 5 + LATE_MS / 1000
            right_ms = clock.wall_ms() + 5_000
            assert right_ms <= await comes_again(group, clock, again_s) < asked_ms
            return
        until_s = trio.current_time() + (HOUR_MS + INVISIBLE_MS + LATE_MS) / 1000
        assert await comes_again(group, clock, until_s, order=order) >= asked_ms
