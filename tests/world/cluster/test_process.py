"""Internals of trio that the simulation uses: one order for one seed, and processes that stop."""

from __future__ import annotations

import sys
import threading

import pytest
import trio

from .process import RUNNING, Process, run


def order(seed: str) -> list[int]:
    found: list[int] = []

    async def main() -> None:
        async def step(number: int) -> None:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
                found.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(step, number)

    run(main, seed)
    return found


def test_the_order_of_tasks_depends_on_the_seed_alone():
    assert order("1") == order("1")
    assert len({tuple(order(str(seed))) for seed in range(5)}) == 5


def test_another_thread_that_runs_trio_does_not_change_the_order():
    """Brokers of other tests do: each draw of theirs moved the simulation's own."""
    ready, enough = threading.Event(), threading.Event()

    async def spin() -> None:
        while not enough.is_set():
            ready.set()
            await trio.lowlevel.checkpoint()

    async def busy() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(spin)

    alone = [order(str(seed)) for seed in range(20)]
    thread = threading.Thread(target=trio.run, args=(busy,))
    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        assert ready.wait(10)
        assert [order(str(seed)) for seed in range(20)] == alone
    finally:
        enough.set()
        thread.join()
        sys.setswitchinterval(switch_s)


def test_a_stopped_process_does_nothing_until_it_goes_on():
    ticks: list[float] = []
    timed_out: list[bool] = []
    since: list[float] = []

    async def tick() -> None:
        while True:
            await trio.sleep(1)
            ticks.append(trio.current_time())

    async def main() -> None:
        process = Process("b0", "10.0.1.0")
        others: list[float] = []

        async def other() -> None:
            while True:
                await trio.sleep(1)
                others.append(trio.current_time())

        async with trio.open_nursery() as process.nursery:
            process.start_soon(tick)
            process.nursery.start_soon(other)
            await trio.sleep(2.5)
            process.stop()
            await trio.sleep(5)
            timed_out.append(len(ticks) == 2 and len(others) == 7)
            process.go_on()
            await trio.sleep(0.9)
            since.extend((process.began_s(0.5), process.began_s(2)))
            process.nursery.cancel_scope.cancel()

    run(main, "1")
    assert timed_out == [True]
    assert since == pytest.approx([7.9, 1.4])
    assert ticks == [1.0, 2.0, 7.5]


def test_tasks_belong_to_the_process_that_started_them():
    seen: list[str] = []

    async def child() -> None:
        process = RUNNING.get()
        assert process is not None
        seen.append(process.machine)

    async def main() -> None:
        process = Process("b0", "10.0.1.0")
        async with trio.open_nursery() as process.nursery:
            process.start_soon(child)
        assert RUNNING.get() is None

    run(main, "1")
    assert seen == ["b0"]


def test_what_is_raised_comes_without_groups():
    async def main() -> None:
        async with trio.open_nursery():
            raise ValueError("it")

    with pytest.raises(ValueError, match="it"):
        run(main, "1")
