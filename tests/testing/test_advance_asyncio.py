"""Advancing a broker's time from a program on asyncio, whose clients wait meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from trocket import ConsumeFromWhere, Message, Producer, PushConsumer, PushedMessage
from trocket.testing import Broker

DEADLINE_S = 30.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def make_consumer(broker: Broker, group: str, topic: str) -> PushConsumer:
    return PushConsumer(
        broker.url, group=group, subscriptions={topic: "*"}, consume_from_where=FIRST
    )


@pytest.mark.parametrize("delay", [{"delay_level": 18}, {"delay_s": 7200}])
def test_a_waiting_consumer_gets_what_becomes_due(broker: Broker, delay: dict[str, int]) -> None:
    topic = "Bills_" + next(iter(delay))
    broker.create_topic(topic, queues=1)

    async def main() -> None:
        async with (
            Producer(broker.url) as producer,
            make_consumer(broker, f"g_{topic}", topic) as consumer,
            asyncio.timeout(DEADLINE_S),
        ):
            received = asyncio.create_task(consumer.receive())
            await producer.send(Message(topic, "bill", **delay))
            broker.advance(hours=1.9)
            assert broker.messages(topic) == []
            broker.advance(hours=0.1)
            message = await received
            assert message.text == "bill"
            message.ack()

    asyncio.run(main())


def test_a_handler_that_fails_gets_its_message_again_after_each_advance(broker: Broker) -> None:
    topic, tries = "Work", 4
    broker.create_topic(topic, queues=1)
    delayed_before = len(broker.messages("SCHEDULE_TOPIC_XXXX"))

    async def is_sent_back(times: int) -> None:
        """Wait until the broker has the message back; it has no event."""
        while len(broker.messages("SCHEDULE_TOPIC_XXXX")) < delayed_before + times:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def main() -> None:
        handled: asyncio.Queue[int] = asyncio.Queue()

        async def handle(message: PushedMessage) -> None:
            handled.put_nowait(message.reconsume_times)
            if message.reconsume_times < tries - 1:
                raise ValueError("not yet")

        async with (
            Producer(broker.url) as producer,
            make_consumer(broker, "ladder", topic) as consumer,
            asyncio.timeout(DEADLINE_S),
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(consumer.run(handle))
            await producer.send(Message(topic, "x"))
            for times in range(1, tries):
                assert await handled.get() == times - 1
                await is_sent_back(times)
                broker.advance(hours=2)
            assert await handled.get() == tries - 1
            consumer.stop()
        assert broker.messages("%DLQ%ladder") == []

    asyncio.run(main())


def test_a_client_may_take_the_brokers_time(broker: Broker) -> None:
    topic = "Clock"
    broker.create_topic(topic, queues=1)

    async def main() -> None:
        async with Producer(broker.url, wall_ms=lambda: broker.now_ms) as producer:
            before_ms = broker.now_ms
            broker.advance(hours=24)
            await producer.send(Message(topic, "tomorrow"))
        (message,) = broker.messages(topic)
        assert message.born_timestamp_ms >= before_ms + 24 * 3_600_000

    asyncio.run(main())
