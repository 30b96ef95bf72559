"""Scenarios: all ways to send; each consumes what it sent."""

from __future__ import annotations

import random
from typing import Any

from trocket import Message, MessageRefusedError, ServerError

from .stage import Play, Stage

LARGER_THAN_ALLOWED = (4 << 20) + 1


def bodies(messages: list[Any]) -> list[str]:
    return sorted(message.text for message in messages)


async def sync(stage: Stage) -> None:
    results = [
        await stage.producer.send(
            stage.message(
                f"body-{n}", f"Tag{n}", f"key-{n} shared", properties={"colour": f"red-{n}"}
            )
        )
        for n in range(3)
    ]
    got = await stage.receive(3)
    stage.facts |= {
        "statuses": [result.status.name for result in results],
        "offsets": [result.queue_offset for result in results],
        "same_ids": [r.message_id for r in results] == [m.message_id for m in got],
        "same_offset_ids": [r.offset_message_id for r in results]
        == [m.offset_message_id for m in got],
        "received": [
            [
                m.text,
                m.tags,
                " ".join(m.keys),
                m.properties["colour"],
                m.queue_offset,
                m.reconsume_times,
            ]
            for m in got
        ],
    }


async def soon(stage: Stage) -> None:
    deliveries = [await stage.producer.send_soon(stage.message(f"body-{n}")) for n in range(10)]
    await stage.producer.drain()
    results = [
        delivery.result() if hasattr(delivery, "result") else await delivery
        for delivery in deliveries
    ]
    stage.facts["statuses"] = sorted({result.status.name for result in results})
    stage.facts["received"] = bodies(await stage.receive(10))


async def oneway(stage: Stage) -> None:
    for n in range(10):
        await stage.producer.send_oneway(stage.message(f"body-{n}"))
    stage.facts["received"] = bodies(await stage.receive(10))


async def batch(stage: Stage) -> None:
    messages = [stage.message(f"body-{n}", f"Tag{n}", f"key-{n}") for n in range(5)]
    result = await stage.producer.send_batch(messages)
    got = await stage.receive(5)
    stage.facts |= {
        "status": result.status.name,
        "offset": result.queue_offset,
        "received": [[m.text, m.tags, " ".join(m.keys), m.queue_offset] for m in got],
        "ids_returned": len(result.message_id.split(",")),
        "ids_stored": len({m.message_id for m in got}),
        "offset_ids_returned": len(result.offset_message_id.split(",")),
    }


async def by_selector(stage: Stage) -> None:
    def choose(queues: Any, message: Message) -> Any:
        return queues[int(message.body.split("/")[0]) % len(queues)]

    for step in range(4):
        for order in range(6):
            await stage.producer.send(stage.message(f"{order}/{step}"), selector=choose)
    got = sorted(await stage.receive(24), key=lambda m: m.queue_offset)
    steps: dict[str, list[str]] = {}
    queues: dict[str, set[int]] = {}
    for message in got:
        order, step = message.text.split("/")
        steps.setdefault(order, []).append(step)
        queues.setdefault(order, set()).add(message.queue_id)
    stage.facts["steps_of_each"] = steps
    stage.facts["queues_of_each"] = [len(ids) for ids in queues.values()]


async def auto_created(stage: Stage) -> None:
    result = await stage.producer.send(stage.message("first"))
    stage.facts |= {
        "status": result.status.name,
        "offset": result.queue_offset,
        "received": bodies(await stage.receive(1)),
        "queues": len(await stage.producer.queues(stage.topic)),
    }


async def too_large(stage: Stage) -> None:
    options = {"retry_times": 0, "compress_over": LARGER_THAN_ALLOWED * 2, "timeout_s": 10.0}
    body = random.Random(1).randbytes(LARGER_THAN_ALLOWED)
    message = Message(stage.topic, body)
    producer = await stage.enter(stage.door.producer(stage.namesrv, group=stage.topic, **options))
    try:
        await producer.send(message)
    except MessageRefusedError:
        # Java's client reports it by the broker's id.
        stage.facts["refused_by_client"] = 13
    patient = await stage.enter(
        stage.door.producer(
            stage.namesrv,
            group=stage.topic,
            message_size_max=LARGER_THAN_ALLOWED * 2,
            **options,
        )
    )
    try:
        await patient.send(message)
    except ServerError as error:
        stage.facts["refused_by_broker"] = int(error.code)
    stage.facts["next"] = (await patient.send(stage.message("next"))).status.name
    stage.facts["received"] = bodies(await stage.receive(1))


async def unicode(stage: Stage) -> None:
    await stage.producer.send(
        stage.message(
            "日本語 ✓ 🙂 \0",
            "Größe",
            "schlüssel ключ",
            properties={"farbe": "grün ✓ 🙂", "цвет": "зелёный"},
        )
    )
    stage.facts["received"] = [
        [m.text, m.tags, " ".join(m.keys), m.properties["farbe"], m.properties["цвет"]]
        for m in await stage.receive(1)
    ]


async def compressed(stage: Stage) -> None:
    body = "\n".join(f"line {number % 10}" for number in range(20_000))
    await stage.producer.send(stage.message(body))
    got = (await stage.receive(1))[0]
    stage.facts |= {
        "same": got.text == body,
        "length": len(got.body),
        "stored_smaller": got.store_size < len(body) / 10,
    }


async def namespace(stage: Stage) -> None:
    producer = await stage.enter(
        stage.door.producer(stage.namesrv, group=stage.topic, namespace="space", timeout_s=10.0)
    )
    result = await producer.send(stage.message("inside", "Tag", "key"))
    got = await (await stage.listen(stage.consumer(namespace="space"))).wait(1)
    stage.facts |= {
        "status": result.status.name,
        "received": bodies(got),
        "topic_without_namespace": got[0].topic == stage.topic,
    }


ALL: dict[str, Play] = {
    "send_sync": sync,
    "send_async": soon,
    "send_oneway": oneway,
    "send_batch": batch,
    "send_by_selector": by_selector,
    "send_auto_created": auto_created,
    "send_too_large": too_large,
    "send_unicode": unicode,
    "send_compressed": compressed,
    "send_namespace": namespace,
}
