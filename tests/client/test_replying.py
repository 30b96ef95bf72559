"""Requests and handlers that reply to them, in both loops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from trocket import (
    ConfigurationError,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    PushedMessage,
    ReplyTimeoutError,
    replying,
)
from trocket.testing import Broker

from .conftest import Play

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def double(message: PushedMessage) -> str | None:
    return message.text * 2 if message.text else None


async def double_later(message: PushedMessage) -> str | None:
    await anyio.lowlevel.checkpoint()
    return double(message)


@pytest.mark.parametrize("replier", [double, double_later])
def test_what_a_function_returns_is_the_reply(
    play: Play,
    broker: Broker,
    topic: str,
    group: str,
    replier: Callable[[PushedMessage], str | Awaitable[str | None] | None],
) -> None:
    async def scenario() -> None:
        async with (
            Producer(broker.url) as requester,
            Producer(broker.url) as producer,
            PushConsumer(
                broker.url, group=group, subscriptions={topic: "*"}, consume_from_where=FIRST
            ) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, replying(producer, replier))
            (queue,) = await requester.queues(topic)
            assert (await requester.request(Message(topic, "ab"))).text == "abab"
            assert (await requester.request(Message(topic, "c"), queue=queue)).text == "cc"
            selected = await requester.request(
                Message(topic, "d"), selector=lambda queues, message: queues[0]
            )
            assert selected.text == "dd"
            with pytest.raises(ConfigurationError, match="a queue of"):
                await requester.request(
                    Message(topic, "e"), queue=MessageQueue("other", queue.broker_name, 0)
                )
            consumer.stop()

    play(scenario)


def test_a_reply_has_a_tag_and_properties_of_the_program(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with (
            Producer(broker.url) as producer,
            PushConsumer(
                broker.url, group=group, subscriptions={topic: "*"}, consume_from_where=FIRST
            ) as consumer,
            anyio.create_task_group() as tasks,
        ):

            async def answer(message: PushedMessage) -> None:
                await producer.reply(message, "x", tags="t", properties={"shop": "5"})

            tasks.start_soon(consumer.run, answer)
            await producer.queues(topic)
            reply = await producer.request(Message(topic, "ab"))
            assert (reply.text, reply.tags, reply.user_properties) == ("x", "t", {"shop": "5"})
            consumer.stop()

    play(scenario)


@pytest.mark.slow
def test_none_is_no_reply_and_the_request_is_acknowledged(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with (
            Producer(broker.url) as producer,
            PushConsumer(
                broker.url, group=group, subscriptions={topic: "*"}, consume_from_where=FIRST
            ) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, replying(producer, lambda message: None))
            with pytest.raises(ReplyTimeoutError):
                await producer.request(Message(topic, "ab"), timeout_s=0.5)
            await consumer.commit()
            while broker.lag(group, topic):
                await anyio.lowlevel.checkpoint()
                await consumer.commit()
            consumer.stop()

    play(scenario)
