"""Scenarios: delayed messages, timers, and retries after failures."""

from __future__ import annotations

import time
from typing import Any

from trocket import RetryLater

from .stage import Inbox, Play, Stage

LEVEL_1_MS = 1000
TIMER_STEP_MS = 1000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def retry(stage: Stage) -> None:
    """A message that always fails: two more tries, then the dead letters."""
    result = await stage.producer.send(stage.message("fails", "Tag", "key"))
    tries = Inbox()

    async def fail(message: Any) -> None:
        tries.put(message)
        raise RetryLater(1)

    await stage.run(stage.consumer(max_reconsume_times=2), fail)
    letter = await dead(stage)
    stage.facts["tries"] = tries_of(stage, tries.items, result)
    stage.facts["dead"] = [
        letter.text,
        letter.reconsume_times,
        letter.properties["RETRY_TOPIC"] == stage.topic,
        letter.properties["ORIGIN_MESSAGE_ID"] == result.offset_message_id,
    ]


def tries_of(stage: Stage, came: list[Any], sent: Any) -> list[list[Any]]:
    """How a message came each time: its tries, and whether it is still what was sent."""
    return [
        [
            m.reconsume_times,
            m.topic == stage.topic,
            m.tags,
            " ".join(m.keys),
            m.message_id == sent.message_id,
        ]
        for m in came
    ]


async def orderly(stage: Stage) -> None:
    """An orderly consumer that always refuses one message gets the next when that one is dead."""
    await stage.send("poison", "next")
    came = Inbox()

    async def handle(message: Any) -> None:
        came.put([message.text, message.reconsume_times])
        if message.text == "poison":
            raise RetryLater

    consumer = stage.consumer(is_orderly=True, suspend_queue_s=0.1, max_reconsume_times=1)
    await stage.run(consumer, handle)
    letter = await dead(stage)
    await came.wait(lambda items: bool(items) and items[-1][0] == "next")
    stage.facts["came"] = came.items
    stage.facts["dead"] = [letter.text, letter.reconsume_times]


async def dead(stage: Stage) -> Any:
    undertaker = stage.consumer(f"{stage.topic}_dead", subscriptions={f"%DLQ%{stage.topic}": "*"})
    return (await (await stage.listen(undertaker)).wait(1))[0]


async def level(stage: Stage) -> None:
    result = await stage.producer.send(stage.message("level-1", "Tag", "key", delay_level=1))
    got = (await stage.receive(1))[0]
    stage.facts |= {
        "status": result.status.name,
        "received": [
            got.text,
            got.tags,
            " ".join(got.keys),
            got.topic == stage.topic,
            got.delay_level,
        ],
        "early": now_ms() - got.born_timestamp_ms < LEVEL_1_MS,
    }


async def timer(stage: Stage) -> None:
    """The last sent comes first; none comes more than the timer's step too early."""
    inbox = await stage.inbox()
    now = now_ms()
    due = {"TIMER_DELAY_SEC": now + 7000, "TIMER_DELAY_MS": now + 4500}
    await stage.producer.send(stage.message("TIMER_DELAY_SEC", delay_s=7))
    await stage.producer.send(stage.message("TIMER_DELAY_MS", delay_s=4.5))
    due["TIMER_DELIVER_MS"] = now + 2000
    await stage.producer.send(stage.message("TIMER_DELIVER_MS", deliver_at_ms=now + 2000))
    early = {}
    for count in range(1, 4):
        text = (await inbox.wait(count))[count - 1].text
        early[text] = now_ms() < due[text] - TIMER_STEP_MS
    stage.facts["received"] = [m.text for m in inbox.items]
    stage.facts["early"] = dict(sorted(early.items()))


async def recall(stage: Stage) -> None:
    """A timer message is recalled, the one behind it is delivered."""
    now = now_ms()
    recalled = await stage.producer.send(
        stage.message("TIMER_DELIVER_MS", deliver_at_ms=now + 6000)
    )
    await stage.producer.send(stage.message("TIMER_DELAY_MS", delay_s=8))
    taken_back = await stage.producer.recall(stage.topic, recalled.recall_handle)
    stage.facts["same_id"] = taken_back == recalled.message_id
    stage.facts["received"] = [m.text for m in await stage.receive(1)]


ALL: dict[str, Play] = {
    "later_retry": retry,
    "later_orderly": orderly,
    "later_level": level,
    "later_timer": timer,
    "later_recall": recall,
}
