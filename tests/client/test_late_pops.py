"""Answers to pops that come late: nothing is lost or delivered twice, in virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket import Message, Producer, SimpleConsumer
from trocket.client.tasks.first_answer import NEXT_SERVER_S
from trocket.remoting.request_codes import RequestCode
from trocket.testing import MemoryBroker

LATE_S = 3 * NEXT_SERVER_S
TOPICS = ("T", "U")


async def stored(broker: MemoryBroker, *topics: str) -> None:
    """A message in each topic, of which each has a queue."""
    for topic in TOPICS:
        await broker.create_topic(topic, queues=1)
    async with Producer(broker.url, dial=broker.dial) as producer:
        for topic in topics:
            await producer.send(Message(topic, f"of {topic}"))


def consumer_of(broker: MemoryBroker) -> SimpleConsumer:
    subscriptions = dict.fromkeys(TOPICS, "*")
    return SimpleConsumer(broker.url, group="g", subscriptions=subscriptions, dial=broker.dial)


@pytest.mark.slow
@pytest.mark.parametrize("is_same_call", [True, False])
async def test_messages_that_come_late_are_received_once(
    autojump_clock: trio.testing.MockClock, is_same_call: bool
) -> None:
    async with MemoryBroker() as broker:
        await stored(broker, "T")
        async with consumer_of(broker) as consumer:
            # The pops of both topics are late; only one of them has a message.
            broker.faults.delay(RequestCode.POP_MESSAGE, LATE_S, times=2)
            began_s = trio.current_time()
            if not is_same_call:
                with trio.move_on_after(2 * NEXT_SERVER_S):
                    await consumer.receive()
            with trio.fail_after(10):
                (message,) = await consumer.receive()
            assert trio.current_time() - began_s <= LATE_S + 2 * NEXT_SERVER_S
            assert (message.text, message.reconsume_times) == ("of T", 0)
            await consumer.ack(message)
            assert await consumer.receive(wait_s=60) == []


async def test_messages_of_another_topic_do_not_wait_for_a_late_pop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with MemoryBroker() as broker:
        await stored(broker, *TOPICS)
        async with consumer_of(broker) as consumer:
            broker.faults.delay(RequestCode.POP_MESSAGE, LATE_S, times=1)
            with trio.fail_after(NEXT_SERVER_S + 0.1):
                (first,) = await consumer.receive()
            with trio.fail_after(LATE_S):
                (second,) = await consumer.receive()
            assert {first.topic, second.topic} == set(TOPICS)


async def test_a_late_message_whose_time_is_over_is_left_to_the_broker(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with MemoryBroker() as broker:
        await stored(broker, "T")
        async with consumer_of(broker) as consumer:
            broker.faults.delay(RequestCode.POP_MESSAGE, LATE_S, times=2)
            # It has been popped when the broker is asked, and is visible again when it comes.
            assert await consumer.receive(invisible_s=1.0, wait_s=0.5) == []
            await trio.sleep(LATE_S + 5)
            with trio.fail_after(60):
                (message,) = await consumer.receive()
            assert message.reconsume_times == 1


async def test_a_late_message_of_a_topic_that_was_left_is_left_to_the_broker(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with MemoryBroker() as broker:
        await stored(broker, "T")
        async with consumer_of(broker) as consumer:
            broker.faults.delay(RequestCode.POP_MESSAGE, LATE_S, times=2)
            with trio.move_on_after(2 * NEXT_SERVER_S):
                await consumer.receive()
            consumer.unsubscribe("T")
            assert await consumer.receive(wait_s=10) == []
