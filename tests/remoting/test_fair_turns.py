"""Addresses take turns."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.remoting.fair_turns import FairTurns, TooManyWaitError


async def take(turns: FairTurns, address: str, done: list[str], hold: trio.Event) -> None:
    try:
        async with turns.turn(address):
            done.append(address)
            await hold.wait()
    except TooManyWaitError:
        done.append(f"{address} dropped")


async def test_an_honest_address_does_not_wait_behind_a_flood() -> None:
    turns, done, hold = FairTurns(1_000), [], trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(take, turns, "stranger", done, hold)
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(take, turns, "honest", done, hold)
        await trio.testing.wait_all_tasks_blocked()
        assert done == ["stranger"]
        hold.set()
    assert "honest" in done[:3]
    assert len(done) == 51
    assert turns.waiting == 0


async def test_the_newest_of_the_longest_line_leaves() -> None:
    turns, done, hold = FairTurns(3), [], trio.Event()
    async with trio.open_nursery() as nursery:
        for address in ("stranger", "stranger", "stranger", "honest", "stranger", "honest"):
            nursery.start_soon(take, turns, address, done, hold)
            await trio.testing.wait_all_tasks_blocked()
        assert done == ["stranger", "stranger dropped", "stranger dropped"]
        hold.set()
    assert sorted(done[3:]) == ["honest", "honest", "stranger"]


@pytest.mark.parametrize("count", [1, 3])
async def test_who_is_cancelled_passes_the_turn_on(count: int) -> None:
    turns, done, hold = FairTurns(10), [], trio.Event()
    async with trio.open_nursery() as outer:
        outer.start_soon(take, turns, "first", done, hold)
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as inner:
            for _ in range(count):
                inner.start_soon(take, turns, "gone", done, hold)
            await trio.testing.wait_all_tasks_blocked()
            hold.set()  # the first passes its turn on in the same round as the others are cancelled
            inner.cancel_scope.cancel()
        async with turns.turn("last"):
            done.append("last")
    assert done[-1] == "last"
    assert turns.waiting == 0
