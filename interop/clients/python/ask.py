"""Scenarios: lookups of messages, and requests with and without a reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio

from trocket import NotFoundError, ReplyTimeoutError

from .stage import Play, Stage

REQUEST_TIMEOUT_S = 30.0


async def query(stage: Stage) -> None:
    results = [
        await stage.producer.send(stage.message(keys, "Tag", keys))
        for keys in ("one", "one two", "two")
    ]
    admin = await stage.enter(stage.door.admin(stage.namesrv))
    for key in ("one", "two"):
        stage.facts[f"by_key_{key}"] = await found(partial(by_key, admin, stage, key), 2)
    stage.facts["by_unique_id"] = await found(lambda: by_id(admin, stage, results[2].message_id), 1)
    stage.facts["by_offset_id"] = await found(
        lambda: by_id(admin, stage, results[2].offset_message_id), 1
    )
    if await by_key(admin, stage, "three") == []:
        # Java's client says so with an exception of this number.
        stage.facts["unknown_key"] = 208


async def by_key(admin: Any, stage: Stage, key: str) -> list[str]:
    return sorted(m.text for m in await admin.messages_by_key(stage.topic, key))


async def by_id(admin: Any, stage: Stage, message_id: str) -> list[str]:
    message = await admin.message(message_id, topic=stage.topic)
    return [] if message is None else [message.text]


async def found(question: Callable[[], Awaitable[list[str]]], count: int) -> list[str]:
    """Asks until `count` are found: the index is filled after the send."""
    with anyio.move_on_after(REQUEST_TIMEOUT_S):
        while len(answer := await question()) < count:  # noqa: ASYNC110 - only the broker knows
            await anyio.sleep(0.1)
    return answer


async def request_reply(stage: Stage) -> None:
    replier = await stage.enter(stage.door.producer(stage.namesrv, group=f"{stage.topic}_replier"))

    async def answer(message: Any) -> None:
        await replier.reply(message, f"echo {message.text}")

    await stage.run(stage.consumer(), answer)
    asker = await stage.enter(stage.door.producer(stage.namesrv, group=stage.topic))

    async def ask(body: str) -> None:
        message = stage.message(body, "Tag", "key")
        stage.facts[body] = (await asker.request(message, timeout_s=REQUEST_TIMEOUT_S)).text

    await ask("sync")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "async")


async def request_unanswered(stage: Stage) -> None:
    asker = await stage.enter(stage.door.producer(stage.namesrv, group=stage.topic))
    try:
        await asker.request(stage.message("no reply", "Tag", "key"), timeout_s=3.0)
    except ReplyTimeoutError:
        stage.facts["timed_out"] = True


async def trace(stage: Stage) -> None:
    """The kinds of the trace records of one message, and its timeline."""
    traced = await stage.listen(stage.consumer(trace=True))
    producer = await stage.enter(stage.door.producer(stage.namesrv, group=stage.topic, trace=True))
    records = await stage.listen(
        stage.consumer(f"{stage.topic}_reader", subscriptions={"RMQ_SYS_TRACE_TOPIC": "*"})
    )
    sent = (await producer.send(stage.message("traced", "Tag", "key"))).message_id
    await traced.wait(1)
    all_ = await records.wait(lambda items: len(kinds(items, sent)) >= 3)
    stage.facts["kinds"] = kinds(all_, sent)
    admin = await stage.enter(stage.door.admin(stage.namesrv))

    async def ends() -> list[str]:
        try:
            timeline = await admin.message_trace(sent)
        except NotFoundError:
            return []  # not indexed yet
        consumed = [each.group for each in timeline.consumptions if each.is_success]
        return [timeline.sends[0].topic, *consumed] if timeline.sends else []

    stage.facts["found_by_id"] = await found(ends, 2) == [stage.topic] * 2


def kinds(messages: list[Any], message_id: str) -> list[str]:
    """A record begins with its kind; fields end with \\1, records with \\2."""
    lines = [line for message in messages for line in message.text.split("\x02")]
    return sorted({line.partition("\x01")[0] for line in lines if message_id in line})


ALL: dict[str, Play] = {
    "query": query,
    "request_reply": request_reply,
    "request_unanswered": request_unanswered,
    "trace": trace,
}
