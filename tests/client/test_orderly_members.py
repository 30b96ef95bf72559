"""Orderly members join and leave under long handlers, in virtual time: random programs.

TROCKET_ORDERLY_SEED=7 pytest tests/client/test_orderly_members.py plays one program again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest
import trio
import trio.testing

from trocket import ConsumeFromWhere, Message, MessageQueue, Producer, PushConsumer, PushedMessage
from trocket.client.tasks import clock
from trocket.testing import MemoryBroker

TOPIC: Final = "Orders"
QUEUES: Final = 6
CHANGES: Final = 100
"""Joins, and as many leaves."""
MEMBERS_MAX: Final = 5
HANDLER_S: Final = (0.1, 5.0)
STAY_S: Final = (0.2, 20.0)
BETWEEN_S: Final = (0.0, 4.0)
SEND_S: Final = 0.7
LEAVES: Final = ("stop", "cancel", "close")
"""Stop and wait for the handlers; cancel everything; close while handlers run."""
FAILING: Final = 0.1
"""Share of handlers that raise."""

SEED = os.environ.get("TROCKET_ORDERLY_SEED")
SEEDS = (1, 2) if SEED is None else (int(SEED),)


@dataclass
class Log:
    """What the handlers of all members did.

    Attributes:
      running: the members that handle a message of each queue now.
      overlaps: what was handled twice at once.
      done: offsets of each queue whose handlers have returned, in that order.
    """

    running: dict[int, list[str]] = field(default_factory=dict)
    overlaps: list[str] = field(default_factory=list)
    done: dict[int, list[int]] = field(default_factory=dict)

    def begin(self, member: str, message: PushedMessage) -> None:
        running = self.running.setdefault(message.queue_id, [])
        running.append(member)
        if len(running) > 1:
            self.overlaps.append(
                f"{message.text} at {trio.current_time():.2f} s by {' and '.join(running)}"
            )

    def end(self, member: str, message: PushedMessage) -> None:
        self.running[message.queue_id].remove(member)

    def succeed(self, message: PushedMessage) -> None:
        self.done.setdefault(message.queue_id, []).append(message.queue_offset)


class Program:
    """Members of one group that join and leave at random, and a producer."""

    def __init__(self, seed: int, broker: MemoryBroker) -> None:
        self.random = Random(seed)
        self.broker = broker
        self.log = Log()
        self.sent: list[int] = [0] * QUEUES
        self.joined = 0
        self.alive = 0

    def consumer(self, name: str) -> PushConsumer:
        return PushConsumer(
            self.broker.url,
            group="g",
            subscriptions={TOPIC: "*"},
            is_orderly=True,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            instance_name=name,
            dial=self.broker.dial,
        )

    async def play(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.send)
            async with trio.open_nursery() as members:
                while self.joined < CHANGES:
                    if self.alive < MEMBERS_MAX:
                        self.joined += 1
                        self.alive += 1
                        # Names in no order: a new member takes queues of any other.
                        name = f"{self.random.randrange(10_000)}-{self.joined}"
                        members.start_soon(self.live, name, self.random.choice(LEAVES))
                    await trio.sleep(self.random.uniform(*BETWEEN_S))
            nursery.cancel_scope.cancel()
        await self.finish()

    async def send(self) -> None:
        async with Producer(self.broker.url, dial=self.broker.dial) as producer:
            while True:
                queue_id = self.random.randrange(QUEUES)
                queue = MessageQueue(TOPIC, "broker-a", queue_id)
                body = f"{queue_id}-{self.sent[queue_id]}"
                with trio.CancelScope(shield=True):
                    await producer.send(Message(TOPIC, body), queue=queue)
                    self.sent[queue_id] += 1
                await trio.sleep(SEND_S * self.random.random() * 2)

    async def handle(self, name: str, message: PushedMessage) -> None:
        self.log.begin(name, message)
        try:
            await trio.sleep(self.random.uniform(*HANDLER_S))
            if self.random.random() < FAILING:
                raise ValueError("not yet")
            self.log.succeed(message)
        finally:
            self.log.end(name, message)

    async def live(self, name: str, leave: str) -> None:
        """Join, handle messages for a while, and leave."""
        with trio.CancelScope() as scope:
            async with self.consumer(name) as consumer, trio.open_nursery() as nursery:

                async def handle(message: PushedMessage) -> None:
                    await self.handle(name, message)

                nursery.start_soon(consumer.run, handle)
                await trio.sleep(self.random.uniform(*STAY_S))
                if leave == "stop":
                    consumer.stop()
                elif leave == "cancel":
                    scope.cancel()
                else:
                    await consumer.close()
        self.alive -= 1

    async def finish(self) -> None:
        """One member handles what is left."""

        async def handle(message: PushedMessage) -> None:
            self.log.begin("last", message)
            self.log.succeed(message)
            self.log.end("last", message)
            if self.is_all_done():
                consumer.stop()

        consumer = self.consumer("last")
        async with consumer:
            if not self.is_all_done():
                await consumer.run(handle)

    def is_all_done(self) -> bool:
        return all(
            set(range(count)) <= set(self.log.done.get(queue_id, ()))
            for queue_id, count in enumerate(self.sent)
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_no_message_is_handled_by_two_members_at_once(
    autojump_clock: trio.testing.MockClock, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"TROCKET_ORDERLY_SEED={seed}")
    monkeypatch.setattr(clock, "monotonic_ms", lambda: trio.current_time() * 1000)
    async with MemoryBroker(config={"brokerName": "broker-a"}) as broker:
        await broker.create_topic(TOPIC, queues=QUEUES)
        program = Program(seed, broker)
        with trio.fail_after(3600):
            await program.play()
    assert program.joined == CHANGES
    assert program.log.overlaps == []
    assert program.is_all_done()
    for offsets in program.log.done.values():
        firsts = list(dict.fromkeys(offsets))
        assert firsts == sorted(firsts)
