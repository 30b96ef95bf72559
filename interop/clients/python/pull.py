"""Scenarios: pull consumers."""

from __future__ import annotations

import time
from typing import Any

import anyio

from trocket import PullStatus

from .door import settled
from .stage import FIRST, Play, Stage

COUNT = 10
STATUSES = {
    PullStatus.FOUND: "FOUND",
    PullStatus.NO_NEW_MESSAGE: "NO_NEW_MSG",
    PullStatus.NO_MATCHED_MESSAGE: "NO_MATCHED_MSG",
    PullStatus.OFFSET_ILLEGAL: "OFFSET_ILLEGAL",
}
FAR_MS = 2**63 - 1


async def with_numbers(stage: Stage) -> tuple[Any, Any]:
    """A pull consumer, and the queue with its messages all to be seen."""
    await stage.send(*map(str, range(COUNT)))
    consumer = await stage.enter(
        stage.door.pull_consumer(
            stage.namesrv,
            group=stage.topic,
            auto_commit=False,
            consume_from_where=FIRST,
            timeout_s=10.0,
        )
    )
    (queue,) = await consumer.queues(stage.topic)
    with anyio.fail_after(30):
        while await consumer.end_offset(queue) < COUNT:  # noqa: ASYNC110 - only the broker knows
            await anyio.sleep(0.05)
    return consumer, queue


async def poll(consumer: Any, count: int) -> list[Any]:
    got: list[Any] = []
    with anyio.move_on_after(50):
        while len(got) < count:
            got += await consumer.poll(timeout_s=1.0)
    return got


async def queue(stage: Stage) -> None:
    """One queue, pulled by offset, and the offset that is kept for the group."""
    consumer, queue = await with_numbers(stage)
    pulled = []
    for offset, count in ((0, 4), (4, 32), (COUNT, 32), (COUNT + 5, 32)):
        result = await consumer.pull(queue, offset, count=count)
        pulled.append(
            [
                STATUSES[result.status],
                result.next_offset,
                result.min_offset,
                result.max_offset,
                [m.text for m in result.messages],
            ]
        )
    stage.facts["pulled"] = pulled
    stage.facts["ends"] = [
        await consumer.begin_offset(queue),
        await consumer.end_offset(queue),
        await consumer.offset_at(queue, 0),
        await consumer.offset_at(queue, FAR_MS),
    ]
    await consumer.commit({queue: 7})
    stage.facts["kept"] = await consumer.committed(queue)


async def subscribed(stage: Stage) -> None:
    """A consumer that commits, and one of its group that continues there."""
    first, queue = await with_numbers(stage)
    await settled(first.assign([queue]))
    stage.facts["first"] = [m.text for m in await poll(first, COUNT)]
    await first.commit()
    await settled(first.assign([]))
    await stage.send("more")
    second = await stage.enter(
        stage.door.pull_consumer(
            stage.namesrv, group=stage.topic, auto_commit=False, timeout_s=10.0
        )
    )
    await settled(second.assign([queue]))
    stage.facts["second"] = [m.text for m in await poll(second, 1)]


async def assigned(stage: Stage) -> None:
    """A consumer that takes one queue by itself, goes back in it and commits."""
    consumer, queue = await with_numbers(stage)
    await settled(consumer.assign([queue]))
    await consumer.seek_to_begin(queue)
    stage.facts["all"] = [m.text for m in await poll(consumer, COUNT)]
    await settled(consumer.seek(queue, 6))
    stage.facts["again"] = [m.text for m in await poll(consumer, 4)]
    await consumer.commit()
    stage.facts["committed"] = await consumer.committed(queue)
    in_a_minute_ms = int(time.time() * 1000) + 60_000
    stage.facts["by_time"] = [
        await consumer.offset_at(queue, 0),
        await consumer.offset_at(queue, in_a_minute_ms),
    ]


ALL: dict[str, Play] = {
    "pull_queue": queue,
    "pull_subscribed": subscribed,
    "pull_assigned": assigned,
}
