"""Scenarios: push consumers."""

from __future__ import annotations

from typing import Any

from trocket import Message, MessageModel, RetryLater, Sql

from .stage import Inbox, Play, Stage

QUEUE_COUNT = 4
TAGS_WANTED = "A || B || AaAa"


async def send_numbers(stage: Stage, first: int, end: int) -> None:
    for number in range(first, end):
        await stage.send_to(number % QUEUE_COUNT, stage.message(str(number)))


async def concurrent(stage: Stage) -> None:
    """Messages from before the start and from after it, from all queues."""
    await before_and_after(stage, stage.consumer())


async def before_and_after(stage: Stage, consumer: Any) -> list[Any]:
    """Send before a consumer's start and after it, and note what it got; return that."""
    await send_numbers(stage, 0, 20)
    inbox = await stage.listen(consumer)
    await inbox.wait(20)
    await send_numbers(stage, 20, 40)
    got = await inbox.wait(40)
    stage.facts |= {
        "count": len(got),
        "received": sorted(int(m.text) for m in got),
        "queues": len({m.queue_id for m in got}),
        "times": sorted({m.reconsume_times for m in got}),
    }
    return got


async def orderly(stage: Stage) -> None:
    """The second message of each queue is refused twice: its queue waits, in its order."""
    for number in range(4):
        for queue in range(2):
            await stage.send_to(queue, stage.message(f"{queue}/{number}"))
    inbox = Inbox()

    async def handle(message: Any) -> None:
        inbox.put(message.text)
        if message.text.endswith("/1") and message.reconsume_times < 2:
            raise RetryLater

    await stage.run(stage.consumer(is_orderly=True, suspend_queue_s=0.1), handle, concurrency=2)
    by_queue: dict[str, list[str]] = {}
    for text in await inbox.wait(12):
        queue, number = text.split("/")
        by_queue.setdefault(queue, []).append(number)
    stage.facts["by_queue"] = dict(sorted(by_queue.items()))


async def broadcasting(stage: Stage) -> None:
    """Each of two consumers gets everything."""
    inboxes = [
        await stage.listen(stage.consumer(message_model=MessageModel.BROADCASTING))
        for _ in range(2)
    ]
    await send_numbers(stage, 0, 8)
    stage.facts["received"] = [
        sorted(int(m.text) for m in await inbox.wait(8)) for inbox in inboxes
    ]


async def tags(stage: Stage) -> None:
    """AaAa and BBBB have one hash code, and a consume queue stores only the hash code."""
    got = await tagged(stage, stage.consumer(expression=TAGS_WANTED))
    stage.facts["received"] = [m.text for m in got]


async def tagged(stage: Stage, consumer: Any) -> list[Any]:
    """Send messages with tags, and return those that a consumer of TAGS_WANTED got."""
    for number, tag in enumerate(["A", "B", "C", None, "AaAa", "BBBB", "B"]):
        await stage.producer.send(stage.message(str(number), tag))
    return await (await stage.listen(consumer)).wait(4)


async def two_topics(stage: Stage) -> None:
    """One consumer of two topics, each by other tags."""
    more = f"{stage.topic}_more"
    consumer = stage.consumer(subscriptions={stage.topic: "A", more: "B"})
    inbox = await stage.listen(consumer)
    for topic in (stage.topic, more):
        for tag in "ABAB":
            await stage.producer.send(Message(topic, tag, tags=tag))
    got = await inbox.wait(4)
    stage.facts["first"] = [m.text for m in got if m.topic == stage.topic]
    stage.facts["second"] = [m.text for m in got if m.topic == more]


async def sql(stage: Stage) -> None:
    """The last message matches: when it is received, all before it have been filtered."""
    for number in range(21):
        properties = {"price": str(number), "region": "us" if number % 2 else "eu"}
        await stage.producer.send(stage.message(str(number), properties=properties))
    expression = Sql("price > 10 AND region = 'eu' OR price BETWEEN 3 AND 4")
    got = await (await stage.inbox(expression)).wait(7)
    stage.facts["received"] = [m.text for m in got]


ALL: dict[str, Play] = {
    "push_concurrent": concurrent,
    "push_orderly": orderly,
    "push_broadcasting": broadcasting,
    "push_tags": tags,
    "push_two_topics": two_topics,
    "push_sql": sql,
}
