"""Scenarios: consumers that pop."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from trocket import RetryLater

from ...wire import Keys, WireClient
from .door import settled
from .later import tries_of
from .push import QUEUE_COUNT, TAGS_WANTED, before_and_after, send_numbers, tagged
from .stage import FIRST, Inbox, Play, Stage

GET_ROUTE = 105
SET_MESSAGE_REQUEST_MODE = 401
INVISIBLE_S = 60.0
SHORT_S = 5.0
CHANGING_S = 10.0
"""For groups whose members change. A pop that waits at the broker when its consumer gives the queue
up may still get messages: they are not consumed, and come again after this time."""
FIRST_DELAY_S = 10.0
SETTLE_S = 50.0


async def set_mode(stage: Stage, mode: str, share: int = 0) -> None:
    """How the consumers of the scenario's group get its messages: "POP" or "PULL"."""
    await anyio.to_thread.run_sync(partial(_set_mode, stage.namesrv, stage.topic, mode, share))


def _set_mode(namesrv: str, topic: str, mode: str, share: int) -> None:
    account = os.environ.get("INTEROP_ACCOUNT", "").split()
    keys = Keys(*account) if account else None
    with WireClient(namesrv, keys=keys) as wire:
        route = json.loads(
            wire.call(GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": True}).checked().body
        )
    members = {"topic": topic, "consumerGroup": topic, "mode": mode, "popShareQueueNum": share}
    for broker in route["brokerDatas"]:
        with WireClient(broker["brokerAddrs"]["0"], keys=keys) as wire:
            wire.call(SET_MESSAGE_REQUEST_MODE, {}, json.dumps(members).encode()).checked()


def popping(stage: Stage, who: str = "only", **options: Any) -> Any:
    """A push consumer that asks the broker for its queues, and pops from them in mode "POP"."""
    options.setdefault("pop_invisible_s", INVISIBLE_S)
    return stage.consumer(mode="pop", instance_name=f"{stage.topic}{who}", **options)


def simple(stage: Stage, **options: Any) -> Any:
    """A simple consumer of the scenario's topic; it begins with the first message."""
    return stage.door.simple_consumer(
        stage.namesrv,
        group=stage.topic,
        subscriptions={stage.topic: "*"},
        consume_from_where=FIRST,
        timeout_s=10.0,
        **options,
    )


def is_popped(message: Any) -> bool:
    return message.receipt is not None


def queue_of(message: Any) -> int | None:
    """The queue of the topic that a message came from; None: it came again, from a retry topic."""
    return None if message.reconsume_times else message.queue_id


async def concurrent(stage: Stage) -> None:
    """Messages from before the start and from after it, from all queues."""
    await set_mode(stage, "POP")
    got = await before_and_after(stage, popping(stage))
    stage.facts["popped"] = all(is_popped(m) for m in got)


async def tags(stage: Stage) -> None:
    """AaAa and BBBB have one hash code, and a consume queue stores only the hash code."""
    await set_mode(stage, "POP")
    got = await tagged(stage, popping(stage, expression=TAGS_WANTED))
    stage.facts["received"] = sorted(m.text for m in got)


async def later(stage: Stage) -> None:
    """A message that is refused once comes again after a time, as what it was."""
    await set_mode(stage, "POP")
    result = await stage.producer.send(stage.message("fails", "Tag", "key"))
    tries = Inbox()

    async def take(message: Any) -> None:
        tries.put((time.monotonic(), message))
        if message.reconsume_times == 0:
            raise RetryLater

    await stage.run(popping(stage), take)
    (first_s, _), (second_s, _), *_ = came = await tries.wait(2)
    stage.facts["tries"] = tries_of(stage, [m for _, m in came], result)
    stage.facts["early"] = second_s - first_s < FIRST_DELAY_S


async def taken_over(stage: Stage) -> None:
    """What a consumer had when it ended without a word goes to another one."""
    await set_mode(stage, "POP")
    await send_numbers(stage, 0, QUEUE_COUNT)
    first: list[Any] = []
    # A push consumer would give its messages back when it is closed.
    async with simple(stage) as lost:
        with anyio.fail_after(SETTLE_S):
            while len(first) < QUEUE_COUNT:
                first += await lost.receive(invisible_s=SHORT_S, wait_s=1.0)
    start_s = time.monotonic()
    again = await (await stage.listen(popping(stage, "second"))).wait(QUEUE_COUNT)
    stage.facts |= {
        "first": sorted(m.text for m in first),
        "second": sorted(m.text for m in again),
        "times": sorted({m.reconsume_times for m in again}),
        "own_topic": all(m.topic == stage.topic for m in again),
        "late": time.monotonic() - start_s > 10 * SHORT_S,
    }


class Group:
    """Consumers of one group, and the messages that were sent to them."""

    def __init__(self, stage: Stage) -> None:
        self.sent: list[str] = []
        self.inbox = Inbox()
        self._stage = stage

    async def start(self, who: str) -> Any:
        async def take(message: Any) -> None:
            self.inbox.put((who, queue_of(message), is_popped(message), message.text))

        return await self._stage.run(self.consumer(who), take)

    def consumer(self, who: str) -> Any:
        return popping(self._stage, who, pop_invisible_s=CHANGING_S)

    async def send_all(self, mark: str) -> list[Any]:
        """Send a message to each queue, and wait until all came; what came since then."""
        before = len(self.inbox.items)
        for queue in range(QUEUE_COUNT):
            body = f"{mark}/{queue}"
            await self._stage.send_to(queue, self._stage.message(body))
            self.sent.append(body)
        wanted = set(self.sent)
        return (await self.inbox.wait(lambda items: wanted <= {i[3] for i in items}))[before:]

    @property
    def again(self) -> int:
        """How many messages came besides the first of each, by the same way."""
        ways = [(text, how) for _, _, how, text in self.inbox.items]
        return len(ways) - len(set(ways))


async def together(stage: Stage) -> None:
    """Two consumers pop from the same queues; each message goes to one of them."""
    await set_mode(stage, "POP")
    group = Group(stage)
    await group.start("a")
    second = group.consumer("b")
    served: set[str] = set()
    async with second, anyio.create_task_group() as tasks:

        async def take(message: Any) -> None:
            group.inbox.put(("b", queue_of(message), True, message.text))

        tasks.start_soon(lambda: second.run(stage.door.handler(take), concurrency=1))
        end_s = anyio.current_time() + SETTLE_S
        turn = 0
        while served != {"a", "b"} and anyio.current_time() < end_s:
            served |= {who for who, *_ in await group.send_all(str(turn))}
            turn += 1
        await settled(second.stop())
    stage.facts |= {
        "two": sorted(served),
        "one": sorted({who for who, *_ in await group.send_all("end")}),
        "again": group.again,
    }


async def shared(stage: Stage) -> None:
    """Three consumers: each pops from its own queues and from those of the next one."""
    await set_mode(stage, "POP", 1)
    wanted = {"a": [0, 1, 2], "b": [2, 3], "c": [0, 1, 3]}
    group = Group(stage)
    for who in wanted:
        await group.start(who)
    end_s = anyio.current_time() + SETTLE_S
    queues: dict[str, set[int]] = {}
    turn = 0
    while anyio.current_time() < end_s and _sorted(queues) != wanted:
        for who, queue, *_ in await group.send_all(str(turn)):
            if queue is None:
                continue
            queues.setdefault(who, set()).add(queue)
            if queue not in wanted[who]:
                queues.clear()
        turn += 1
    stage.facts["queues"] = _sorted(queues)


def _sorted(queues: dict[str, set[int]]) -> dict[str, list[int]]:
    return {who: sorted(queues[who]) for who in sorted(queues)}


async def switched(stage: Stage) -> None:
    """A group that pulls, then pops, then pulls again: neither way gives a message twice.

    At the moment of a change, a message that is not acknowledged yet may come by both ways.
    """
    await set_mode(stage, "PULL")
    group = Group(stage)
    await group.start("only")
    popped = []
    for phase, mode in enumerate(("PULL", "POP", "PULL")):
        await set_mode(stage, mode)
        popped.append(await _until(group, mode == "POP", phase))
    stage.facts |= {"popped": popped, "again": group.again}


async def _until(group: Group, wanted: bool, phase: int) -> bool:
    """Whether the last messages were popped, sent until it is as wanted."""
    end_s = anyio.current_time() + SETTLE_S
    turn = 0
    while True:
        mark = f"{phase}-{turn}"
        came = await group.send_all(mark)
        is_as_wanted = all(how == wanted for _, _, how, text in came if text.startswith(f"{mark}/"))
        if is_as_wanted or anyio.current_time() > end_s:
            return is_as_wanted == wanted
        turn += 1


async def receive(stage: Stage) -> None:
    """Messages are received, acknowledged, and given back."""
    await stage.send(*"012345")
    async with simple(stage) as consumer:
        got = await _received(consumer, 4, max_messages=4)
        rest = await _received(consumer, 2)
        await consumer.ack(got[0])
        await consumer.ack_all(got[1:3])
        await consumer.change_invisible(got[3], 1.0)
        await consumer.ack_all(rest)
        again = await _received(consumer, 1)
        await consumer.ack(again[0])
        stage.facts |= {
            "first": [m.text for m in got],
            "rest": [m.text for m in rest],
            "again": [[m.text, m.reconsume_times] for m in again],
            "nothing": await consumer.receive(wait_s=SHORT_S),
        }


async def in_order(stage: Stage) -> None:
    """A queue gives no message while earlier ones are not acknowledged."""
    await stage.send(*"0123")
    async with simple(stage, is_orderly=True) as consumer:
        first = await _received(consumer, 2, max_messages=2)
        blocked = await consumer.receive(wait_s=1.0)
        await consumer.ack(first[0])
        still_blocked = await consumer.receive(wait_s=1.0)
        await consumer.ack(first[1])
        second = await _received(consumer, 2, invisible_s=2.0)
        again = await _received(consumer, 2)
        await consumer.ack_all(again)
        stage.facts |= {
            "first": [m.text for m in first],
            "blocked": [*blocked, *still_blocked],
            "second": [m.text for m in second],
            "again": [m.text for m in again],
            "nothing": await consumer.receive(wait_s=1.0),
        }


async def _received(consumer: Any, count: int, **options: Any) -> list[Any]:
    """At least this number of messages."""
    got: list[Any] = []
    with anyio.fail_after(SETTLE_S):
        while len(got) < count:
            got += await consumer.receive(wait_s=2.0, **options)
    return got


ALL: dict[str, Play] = {
    "pop_concurrent": concurrent,
    "pop_tags": tags,
    "pop_later": later,
    "pop_taken_over": taken_over,
    "pop_together": together,
    "pop_shared": shared,
    "pop_switched": switched,
    "pop_receive": receive,
    "pop_in_order": in_order,
}
