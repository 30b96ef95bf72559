"""Delayed messages that were sent while the clock was years ahead, once it is set right."""

from __future__ import annotations

import trio

from .embedded import TrioClock, embedded_broker, send_fields
from .test_schedule_message_service import SEND, delay, stored

YEAR_MS = 365 * 24 * 3_600_000


class WrongClock(TrioClock):
    """A wall clock that can be wrong."""

    wrong_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wrong_ms


async def test_what_was_due_in_ten_years_comes_now(autojump_clock):
    clock = WrongClock()
    async with embedded_broker(clock=clock) as broker:
        client = await broker.connect()
        clock.wrong_ms = 10 * YEAR_MS
        for level in (1, 2):
            await client.ask(SEND, send_fields(i=delay(level)), b"%d" % level)
        await trio.sleep(0.1)
        clock.wrong_ms = 0
        await trio.sleep(5)
        assert {message.body for message in await stored(client)} == {b"1", b"2"}


async def test_what_is_due_in_time_waits_for_its_time(autojump_clock):
    clock = WrongClock()
    async with embedded_broker(clock=clock) as broker:
        client = await broker.connect()
        await client.ask(SEND, send_fields(i=delay(2)), b"5 s")
        await trio.sleep(4.9)
        assert await stored(client) == []
        await trio.sleep(0.2)
        assert len(await stored(client)) == 1
