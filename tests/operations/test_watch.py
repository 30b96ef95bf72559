"""Looks that all who are interested share, in virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from trocket.client import ClientError
from trocket.operations.watch import Taken, Watch


class Looks:
    """Counts looks, each of which takes a second; some fail."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    async def look(self) -> int:
        self.count += 1
        await trio.sleep(1)
        if self.fails:
            raise ClientError("away")
        return self.count


async def test_there_is_one_look_for_all_and_none_without_a_viewer(
    autojump_clock: MockClock,
) -> None:
    looks = Looks()
    watch = Watch(looks.look, interval_s=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(100)
        assert (looks.count, watch.last) == (0, None)
        seen: list[Taken[int]] = []

        async def view() -> None:
            number = 0
            for _ in range(3):
                taken = await watch.next(number)
                number = taken.number
                seen.append(taken)

        async with trio.open_nursery() as viewers:
            for _ in range(10):
                viewers.start_soon(view)
        assert looks.count == 3
        assert sorted(each.value or 0 for each in seen) == [1] * 10 + [2] * 10 + [3] * 10
        assert trio.current_time() == 100 + 3 * 1 + 2 * 5
        await trio.sleep(100)
        assert looks.count == 3
        nursery.cancel_scope.cancel()


async def test_what_is_young_enough_is_given_at_once(autojump_clock: MockClock) -> None:
    looks = Looks()
    watch = Watch(looks.look, interval_s=5, linger_s=12)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        assert await watch.latest(60) == 1
        assert trio.current_time() == 1
        await trio.sleep(30)  # it goes on for a while
        assert looks.count == 3
        assert await watch.latest(60) == 3
        assert trio.current_time() == 31
        await trio.lowlevel.checkpoint()
        assert await watch.latest(0) == 4
        nursery.cancel_scope.cancel()


async def test_an_error_is_seen_by_all_and_may_pass(autojump_clock: MockClock) -> None:
    looks = Looks()
    looks.fails = True
    watch = Watch(looks.look, interval_s=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        for _ in range(2):
            with pytest.raises(ClientError, match="away"):
                await watch.latest(60)
        assert looks.count == 1
        looks.fails = False
        assert (await watch.next(1)).get() == 2
        nursery.cancel_scope.cancel()


async def test_a_viewer_that_leaves_does_not_keep_it_looking(autojump_clock: MockClock) -> None:
    looks = Looks()
    watch = Watch(looks.look, interval_s=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        with trio.move_on_after(0.5):
            await watch.next(0)
        await trio.sleep(100)
        assert looks.count == 1
        nursery.cancel_scope.cancel()


async def test_an_older_value_is_given_while_it_looks_again(autojump_clock: MockClock) -> None:
    looks = Looks()
    watch = Watch(looks.look, interval_s=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        assert await watch.latest(5, stale_s=60) == 1
        await trio.sleep(50)
        begin_s = trio.current_time()
        assert await watch.latest(5, stale_s=60) == 1
        assert trio.current_time() == begin_s
        await trio.sleep(100)
        assert looks.count == 2  # it looked once, and no more
        assert await watch.latest(5, stale_s=60) == 3
        nursery.cancel_scope.cancel()


async def test_an_error_is_not_given_late(autojump_clock: MockClock) -> None:
    looks = Looks()
    looks.fails = True
    watch = Watch(looks.look, interval_s=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        with pytest.raises(ClientError, match="away"):
            await watch.latest(5, stale_s=60)
        looks.fails = False
        await trio.sleep(10)
        assert await watch.latest(5, stale_s=60) == 2
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("changed_s", [0.5, 2.0], ids=["during a look", "after it"])
async def test_what_was_seen_before_a_change_is_not_given(
    autojump_clock: MockClock, changed_s: float
) -> None:
    looks = Looks()
    watch = Watch(looks.look, interval_s=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        watch.want()
        nursery.start_soon(watch.next, 0)
        await trio.sleep(changed_s)
        watch.expire()
        assert await watch.latest(60, stale_s=60) == 2
        assert trio.current_time() <= changed_s + 2  # without the pause between two looks
        assert await watch.latest(60, stale_s=60) == 2
        nursery.cancel_scope.cancel()
