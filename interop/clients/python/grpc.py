"""Scenarios of our client by gRPC: those of RocketMQ's gRPC clients, with the same facts."""

from __future__ import annotations

from typing import Any

import anyio

from trocket import RetryLater, Sql, TransactionState

from .door import settled
from .later import now_ms
from .stage import Inbox, Play, Stage

INVISIBLE_S = 30.0
AGAIN_S = 3.0
WAIT_S = 40.0
LAST_WAIT_S = 6.0
CHECKS_S = 20.0


async def simple_consumer(stage: Stage, group: str = "", expression: Any = "*") -> Any:
    return await stage.enter(
        stage.door.simple_consumer(
            stage.namesrv,
            group=group or stage.topic,
            subscriptions={stage.topic: expression},
            timeout_s=10.0,
        )
    )


async def receive(consumer: Any, count: int, wait_s: float = WAIT_S) -> list[Any]:
    """Receive until this number has come, or the time is over."""
    found: list[Any] = []
    end_s = anyio.current_time() + wait_s
    while len(found) < count and (left_s := end_s - anyio.current_time()) > 0:
        found += await consumer.receive(16, invisible_s=INVISIBLE_S, wait_s=min(left_s, 5.0))
    return found


async def rest(consumer: Any) -> list[Any]:
    return await receive(consumer, 1, LAST_WAIT_S)


def pushing(stage: Stage, **options: Any) -> Any:
    return stage.door.push_consumer(
        stage.namesrv,
        group=stage.topic,
        subscriptions={stage.topic: "*"},
        timeout_s=10.0,
        **options,
    )


def tried(message: Any) -> list[Any]:
    return [message.text, message.delivery_attempt]


def seen(message: Any) -> list[Any]:
    keys, properties = sorted(message.keys), dict(message.user_properties)
    return [*tried(message), message.tags, keys, properties]


async def simple(stage: Stage) -> None:
    message = stage.message("one", "a", "k1 k2", properties={"colour": "red"})
    sent = await stage.producer.send(message)
    consumer = await simple_consumer(stage)
    (first,) = await receive(consumer, 1)
    await consumer.change_invisible(first, AGAIN_S)
    (again,) = await receive(consumer, 1)
    await consumer.ack(again)
    stage.facts |= {
        "first": seen(first),
        "again": tried(again),
        "same_id": first.message_id == again.message_id == sent.message_id,
        "after_ack": len(await rest(consumer)),
    }


async def simple_in_pages(stage: Stage) -> None:
    consumer = await simple_consumer(stage)
    for number in range(10, 50):
        await stage.producer.send(stage.message(str(number)))
    received: list[str] = []
    while len(received) < 40:
        page = await receive(consumer, 1)
        await consumer.ack_all(page)
        received += [message.text for message in page]
    another = await simple_consumer(stage, f"{stage.topic}_other")
    stage.facts["received"] = sorted(received)
    stage.facts["another_group"] = len(await receive(another, 40))


async def push(stage: Stage) -> None:
    inbox = await stage.listen(pushing(stage))
    await stage.send(*map(str, range(8)))
    stage.facts["received"] = sorted(map(tried, await inbox.wait(8)))


async def push_retry(stage: Stage) -> None:
    await stage.send("again")
    tries = await failing(stage, 3)
    stage.facts["received"] = (await tries.wait(3))[:]


async def push_dead(stage: Stage) -> None:
    await stage.send("dead")
    tries = await failing(stage, 100)
    stage.facts["received"] = (await tries.wait(2))[:]
    await anyio.sleep(LAST_WAIT_S)
    stage.facts["more"] = len(tries.items) - 2


async def failing(stage: Stage, good_attempt: int) -> Inbox:
    """A consumer that fails until an attempt."""
    tries = Inbox()

    async def handle(message: Any) -> None:
        tries.put(tried(message))
        if message.delivery_attempt < good_attempt:
            raise RetryLater

    await stage.run(pushing(stage), handle)
    return tries


async def fifo(stage: Stage) -> None:
    for number in range(6):
        await stage.producer.send(stage.message(str(number), sharding_key="one group"))
    inbox = await stage.listen(pushing(stage))
    stage.facts["received"] = [tried(message) for message in await inbox.wait(6)]


async def forward(stage: Stage) -> None:
    sent = stage.message("one", "a", "k", properties={"colour": "red"})
    await stage.producer.send(sent)
    consumer = await simple_consumer(stage)
    (first,) = await receive(consumer, 1)
    await stage.producer.send(first.copy_to(f"{stage.topic}_next"))
    await consumer.ack(first)
    await settled(consumer.subscribe(f"{stage.topic}_next"))
    (second,) = await receive(consumer, 1)
    await consumer.ack(second)
    stage.facts["received"] = [seen(first), seen(second)]
    stage.facts["after_ack"] = len(await rest(consumer))


async def delay(stage: Stage) -> None:
    due_ms = now_ms() + 4_000
    await stage.producer.send(stage.message("late", deliver_at_ms=due_ms))
    found = await receive(await simple_consumer(stage), 1)
    stage.facts["received"] = [message.text for message in found]
    stage.facts["early"] = now_ms() < due_ms - 1_000
    due = [message.properties["TIMER_DELIVER_MS"] for message in found]
    stage.facts["timestamp"] = due == [str(due_ms)]


async def recall(stage: Stage) -> None:
    due_ms = now_ms() + 12_000
    recalled = await stage.producer.send(stage.message("recalled", deliver_at_ms=due_ms))
    await stage.producer.send(stage.message("kept", deliver_at_ms=due_ms))
    taken_back = await stage.producer.recall(stage.topic, recalled.recall_handle)
    consumer = await simple_consumer(stage)
    found = await receive(consumer, 1)
    found += await rest(consumer)
    stage.facts["same_id"] = taken_back == recalled.message_id
    stage.facts["received"] = [message.text for message in found]


async def transaction(stage: Stage) -> None:
    checked: set[str] = set()

    def check(message: Any) -> TransactionState:
        checked.add(message.text)
        is_good = message.text == "asked"
        return TransactionState.COMMIT if is_good else TransactionState.ROLLBACK

    states = {"committed": TransactionState.COMMIT, "rolled back": TransactionState.ROLLBACK}
    producer = await stage.enter(
        stage.door.transaction_producer(
            stage.namesrv, group=stage.topic, check=check, timeout_s=10.0
        )
    )
    for body in ("committed", "rolled back", "asked", "asked in vain"):
        state = states.get(body, TransactionState.UNKNOWN)
        await producer.send_in_transaction(stage.message(body), lambda _, state=state: state)
    consumer = await simple_consumer(stage)
    found = await receive(consumer, 2)
    for message in found:
        await consumer.ack(message)
    end_s = anyio.current_time() + CHECKS_S
    while len(checked) < 2 and anyio.current_time() < end_s:
        found += await rest(consumer)
    stage.facts["received"] = sorted(message.text for message in found)
    stage.facts["checked"] = sorted(checked)


async def filters(stage: Stage) -> None:
    for tag in ("a", "b", "c"):
        await stage.producer.send(stage.message(tag, tag, properties={"size": tag}))
    by_tag = await simple_consumer(stage, f"{stage.topic}_tag", "a || c")
    by_sql = await simple_consumer(stage, f"{stage.topic}_sql", Sql("size = 'b'"))
    stage.facts["by_tag"] = sorted(message.text for message in await receive(by_tag, 2))
    stage.facts["by_sql"] = sorted(message.text for message in await receive(by_sql, 1))


ALL: dict[str, Play] = {
    "grpc_simple": simple,
    "grpc_simple_in_pages": simple_in_pages,
    "grpc_push": push,
    "grpc_push_retry": push_retry,
    "grpc_push_dead": push_dead,
    "grpc_fifo": fifo,
    "grpc_forward": forward,
    "grpc_delay": delay,
    "grpc_recall": recall,
    "grpc_transaction": transaction,
    "grpc_filters": filters,
}
