"""What is known of names: asked once, kept, refreshed while it is used, and limited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from trocket.grpc_server.refused import Refused
from trocket.grpc_server.service import Awaited
from trocket.proxy.lookups import (
    ASKED_MAX,
    MISSING_MAX,
    MISSING_S,
    Freshness,
    Lookups,
    Running,
    UnansweredError,
)
from trocket.remoting.turn import Turn


class Source:
    """Answers with the name and the number of the question; "" is none, and None no answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, str | None] = {}
        self.held: trio.Event | None = None

    async def fetch(self, name: str) -> str:
        self.asked.append(name)
        if self.held is not None:
            await self.held.wait()
        answer = self.answers.get(name, f"{name} {len(self.asked)}")
        if answer is None:
            raise UnansweredError("no name server answered")
        return answer


@asynccontextmanager
async def lookups_of(source: Source, *, entries_max: int = 10) -> AsyncIterator[Lookups[str]]:
    async with trio.open_nursery() as nursery:
        running = Running(Turn(), nursery.start_soon)
        yield Lookups("topics", source.fetch, Freshness(20.0, entries_max), running)
        nursery.cancel_scope.cancel()


async def test_a_name_is_asked_for_once_and_all_who_wait_go_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = Source()
    async with lookups_of(source) as lookups:
        done = []
        for number in range(3):
            with pytest.raises(Awaited) as awaited:
                lookups("T")
            awaited.value.when_done(lambda number=number: done.append(number))
        await trio.testing.wait_all_tasks_blocked()
        assert done == [0, 1, 2]
        assert (lookups("T"), source.asked) == ("T 1", ["T"])


async def test_an_old_answer_counts_until_the_new_one_has_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = Source()
    async with lookups_of(source) as lookups:
        assert await lookups.value("T") == "T 1"
        await trio.sleep(21)
        source.answers["T"] = None
        assert lookups("T") == "T 1"
        await trio.sleep(2)
        assert lookups("T") == "T 1"
        await trio.testing.wait_all_tasks_blocked()
        del source.answers["T"]
        await trio.sleep(2)
        assert lookups("T") == "T 1"
        await trio.testing.wait_all_tasks_blocked()
        assert lookups("T") == f"T {len(source.asked)}"
        source.answers["T"] = ""  # it was deleted
        await trio.sleep(21)
        lookups("T")
        await trio.testing.wait_all_tasks_blocked()
        assert lookups("T") == ""


async def test_there_is_none_is_remembered_for_a_moment(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source = Source()
    source.answers |= {"none": "", "silent": None}
    async with lookups_of(source) as lookups:
        for _ in range(3):
            assert await lookups.value("none") == ""
            with pytest.raises(Refused, match="no name server"):
                await lookups.value("silent")
        assert source.asked == ["none", "silent"]
        await trio.sleep(MISSING_S)
        source.answers["none"] = "now"
        assert await lookups.value("none") == "now"


async def test_what_is_kept_and_asked_is_limited(autojump_clock: trio.testing.MockClock) -> None:
    source = Source()
    async with lookups_of(source) as lookups:
        for number in range(30):
            await lookups.value(f"T{number}")
        assert len(lookups) == 10
        for number in range(MISSING_MAX + 10):
            source.answers[f"none{number}"] = ""
            await lookups.value(f"none{number}")
        assert len(lookups) == 10
        source.held = trio.Event()
        for number in range(ASKED_MAX):
            with pytest.raises(Awaited):
                lookups(f"held{number}")
        with pytest.raises(Refused, match="the limit"):
            lookups("one more")
