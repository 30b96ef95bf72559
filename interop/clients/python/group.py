"""Scenarios: where a group begins and resumes, and how it shares queues."""

from __future__ import annotations

from typing import Any

import anyio

from trocket import ConsumeFromWhere

from .door import settled
from .push import QUEUE_COUNT
from .stage import Inbox, Play, Stage

SETTLE_S = 50
IN_2099_MS = 4_070_908_800_000


def begin(where: ConsumeFromWhere) -> Play:
    async def play(stage: Stage) -> None:
        await stage.send("before-0", "before-1", "before-2")
        consumer = stage.consumer(consume_from_where=where, consume_timestamp_ms=IN_2099_MS)
        inbox = await stage.listen(consumer)
        await stage.send("after-0", "after-1")
        stage.facts["received"] = [m.text for m in await inbox.wait(5)]

    return play


async def goes_on(stage: Stage) -> None:
    """A new consumer of a group resumes behind what an ended one consumed."""
    await stage.send(*"01234")
    async with stage.consumer() as first:
        got = []
        for _ in range(5):
            message = await first.receive()
            got.append(message.text)
            await settled(message.ack())
        stage.facts["first"] = got
    await stage.send(*"567")
    stage.facts["second"] = [m.text for m in await stage.receive(3)]


async def rebalance(stage: Stage) -> None:
    """A queue belongs to one consumer; a new one gets a share, which returns when it leaves."""
    inbox = Inbox()

    async def start(who: str) -> Any:
        async def take(message: Any) -> None:
            inbox.put((who, message.text))

        return await stage.run(stage.consumer(), take)

    await start("a")
    stage.facts["alone"] = await shares(stage, inbox, {"a": 4})
    async with stage.consumer() as second, anyio.create_task_group() as tasks:

        async def take(message: Any) -> None:
            inbox.put(("b", message.text))

        tasks.start_soon(lambda: second.run(stage.door.handler(take), concurrency=1))
        stage.facts["two"] = await shares(stage, inbox, {"a": 2, "b": 2})
        await settled(second.stop())
    stage.facts["alone_again"] = await shares(stage, inbox, {"a": 4})


async def shares(stage: Stage, inbox: Inbox, wanted: dict[str, int]) -> dict[str, int]:
    """The queue count of each consumer, found by a message to each queue, until it is as wanted."""
    end_s = anyio.current_time() + SETTLE_S
    turn = 0
    while True:
        mark = f"{wanted}/{turn}/"
        for queue in range(QUEUE_COUNT):
            await stage.send_to(queue, stage.message(f"{mark}{queue}"))

        def marked(items: list[Any], mark: str = mark) -> set[tuple[str, str]]:
            return {item for item in items if item[1].startswith(mark)}

        await inbox.wait(lambda items: len({text for _, text in marked(items)}) == QUEUE_COUNT)
        queues: dict[str, int] = {}
        for who, _ in sorted(marked(inbox.items)):
            queues[who] = queues.get(who, 0) + 1
        if queues == wanted or anyio.current_time() > end_s:
            return queues
        turn += 1
        await anyio.sleep(0.1)


ALL: dict[str, Play] = {
    "group_from_first": begin(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
    "group_from_last": begin(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
    "group_from_time": begin(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
    "group_goes_on": goes_on,
    "group_rebalance": rebalance,
}
