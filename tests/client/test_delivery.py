"""Pauses, seeks and the rate limit of push consumers, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from trocket import (
    ClosedError,
    ConfigurationError,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    PushedMessage,
)
from trocket.remoting.request_codes import RequestCode
from trocket.testing import MemoryBroker

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
DEADLINE_S = 120.0


class World:
    """A broker with the topics A and B, a producer, and a push consumer."""

    def __init__(self, broker: MemoryBroker, producer: Producer, consumer: PushConsumer) -> None:
        self.broker = broker
        self.producer = producer
        self.consumer = consumer

    async def send(self, topic: str, *bodies: str) -> None:
        for body in bodies:
            await self.producer.send(Message(topic, body))

    async def texts(self, count: int) -> list[str]:
        """The next messages, each acknowledged."""
        found = []
        with trio.fail_after(DEADLINE_S):
            for _ in range(count):
                message = await self.consumer.receive()
                found.append(message.text)
                message.ack()
        return found

    async def check_that_nothing_comes(self) -> None:
        with trio.move_on_after(60) as scope:
            message = await self.consumer.receive()
            pytest.fail(f"received {message.text}")
        assert scope.cancelled_caught


@asynccontextmanager
async def opened(is_shared: bool = False, **options: Any) -> AsyncIterator[World]:
    """A world; the producer and the consumer share a client if it `is_shared`."""
    async with MemoryBroker() as broker:
        for topic in ("A", "B"):
            await broker.create_topic(topic, queues=1)
        async with (
            Producer(broker.url, dial=broker.dial) as producer,
            PushConsumer(
                producer.client if is_shared else broker.url,
                group="g",
                subscriptions={"A": "*", "B": "*"},
                consume_from_where=FIRST,
                **options,
                **({} if is_shared else {"dial": broker.dial}),
            ) as consumer,
        ):
            yield World(broker, producer, consumer)


@pytest.mark.slow
@pytest.mark.parametrize("is_orderly", [False, True])
async def test_a_paused_topic_waits_and_the_others_do_not(
    autojump_clock: trio.testing.MockClock, is_orderly: bool
) -> None:
    async with opened(is_orderly=is_orderly) as world:
        consumer = world.consumer
        await world.send("A", "a0")
        assert await world.texts(1) == ["a0"]
        consumer.pause(["A"])
        assert consumer.paused == {"A"}
        await world.send("A", "a1", "a2")
        await world.send("B", "b1")
        assert await world.texts(1) == ["b1"]
        await world.check_that_nothing_comes()
        await consumer.rebalance()
        consumer.resume(["A"])
        assert await world.texts(2) == ["a1", "a2"]
        assert consumer.paused == set()


@pytest.mark.slow
async def test_messages_that_were_pulled_before_the_pause_wait_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as world:
        await world.send("A", "a1", "a2", "a3")
        assert await world.texts(1) == ["a1"]
        (queue,) = [each for each in world.consumer.queues if each.topic == "A"]
        world.consumer.pause([queue])
        await world.check_that_nothing_comes()
        # It has no messages in memory, and pulls none while it is paused.
        await world.consumer.seek(queue, 1)
        await world.check_that_nothing_comes()
        world.consumer.resume([queue])
        assert await world.texts(2) == ["a2", "a3"]


@pytest.mark.slow
async def test_redeliveries_of_a_paused_topic_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as world:
        await world.send("A", "a1")
        message = await world.consumer.receive()
        world.consumer.pause(["A"])
        await message.retry(1)
        await world.check_that_nothing_comes()
        world.consumer.resume(["A"])
        again = await world.consumer.receive()
        assert (again.text, again.reconsume_times) == ("a1", 1)
        again.ack()


async def test_a_seek_goes_back_and_forth(autojump_clock: trio.testing.MockClock) -> None:
    async with opened() as world:
        await world.send("A", "a0", "a1", "a2")
        assert await world.texts(3) == ["a0", "a1", "a2"]
        (queue,) = [each for each in world.consumer.queues if each.topic == "A"]
        await world.consumer.seek(queue, 1)
        assert await world.texts(2) == ["a1", "a2"]
        await world.send("A", "a3", "a4")
        await world.consumer.seek(queue, 4)
        assert await world.texts(1) == ["a4"]


async def test_mistakes_are_named(autojump_clock: trio.testing.MockClock) -> None:
    async with opened() as world:
        with pytest.raises(ConfigurationError, match="does not subscribe to the topic C"):
            world.consumer.pause(["C"])
        with pytest.raises(ConfigurationError, match="give a list"):
            world.consumer.resume("A")
        with pytest.raises(ConfigurationError, match="assigned queue"):
            await world.consumer.seek(MessageQueue("A", "elsewhere", 0), 0)
        with pytest.raises(ConfigurationError, match="messages per second"):
            PushConsumer("127.0.0.1:1", group="g", subscriptions={"A": "*"}, rate_limit=0)


async def test_the_rate_limit_spreads_messages_over_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(rate_limit=2.0) as world:
        await world.send("A", *[str(index) for index in range(21)])
        await world.texts(1)
        begun_s = trio.current_time()
        await world.texts(20)
        assert trio.current_time() - begun_s == pytest.approx(10, abs=0.2)


@pytest.mark.slow
async def test_the_rate_limit_is_kept_after_a_slow_handler(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(rate_limit=10.0) as world:
        await world.send("A", *[str(index) for index in range(21)])
        await world.texts(1)
        await trio.sleep(60)
        begun_s = trio.current_time()
        await world.texts(20)
        # At most a tenth of a second of messages may be made up for.
        assert trio.current_time() - begun_s == pytest.approx(1.9, abs=0.15)


async def test_stop_ends_a_wait_for_the_rate_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(rate_limit=0.01) as world:
        await world.send("A", "0", "1")
        await world.texts(1)

        async def receive() -> None:
            with pytest.raises(ClosedError):
                await world.consumer.receive()

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                await trio.testing.wait_all_tasks_blocked()
                world.consumer.stop()


@pytest.mark.parametrize("is_orderly", [False, True])
async def test_a_batch_that_is_filling_is_delivered_again_when_run_is_cancelled(
    autojump_clock: trio.testing.MockClock, is_orderly: bool
) -> None:
    async def handle(batch: list[PushedMessage]) -> None:
        pytest.fail("the batch was not due")

    async with opened(is_orderly=is_orderly) as world:
        await world.send("A", "0", "1", "2")
        with trio.move_on_after(5.0):
            await world.consumer.run(handle, batch=10, linger_s=60.0)
        assert await world.texts(3) == ["0", "1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("is_orderly", [False, True])
async def test_a_topic_that_is_paused_while_its_batch_fills_waits(
    autojump_clock: trio.testing.MockClock, is_orderly: bool
) -> None:
    handled: list[tuple[str, int]] = []

    async def handle(batch: list[PushedMessage]) -> None:
        handled.extend((message.text, message.reconsume_times) for message in batch)

    async with opened(is_orderly=is_orderly) as world, trio.open_nursery() as nursery:
        nursery.start_soon(partial(world.consumer.run, handle, batch=10, linger_s=10.0))
        await world.send("A", "a0", "a1")
        await world.send("B", "b0")
        await trio.sleep(5.0)
        world.consumer.pause(["A"])
        await trio.sleep(60.0)
        assert handled == [("b0", 0)]
        world.consumer.resume(["A"])
        await trio.sleep(60.0)
        assert handled == [("b0", 0), ("a0", 0), ("a1", 0)]
        world.consumer.stop()


@pytest.mark.parametrize("is_shared", [False, True])
async def test_an_orderly_message_is_dead_after_its_last_try_and_the_next_one_comes(
    autojump_clock: trio.testing.MockClock, is_shared: bool
) -> None:
    async with opened(is_shared, is_orderly=True, max_reconsume_times=1) as world:
        await world.send("A", "poison", "next")
        for tries in (0, 1):
            message = await world.consumer.receive()
            assert (message.text, message.reconsume_times) == ("poison", tries)
            await message.retry()
        assert await world.texts(1) == ["next"]
        (dead,) = await world.broker.messages("%DLQ%g")
        assert (dead.body, dead.reconsume_times) == (b"poison", 2)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_message_that_the_broker_does_not_take_back_comes_again_by_the_retry_topic(
    autojump_clock: trio.testing.MockClock, is_shared: bool
) -> None:
    async with opened(is_shared) as world:
        await world.send("A", "a")
        world.broker.faults.refuse(RequestCode.CONSUMER_SEND_MSG_BACK)
        await (await world.consumer.receive()).retry()
        with trio.fail_after(DEADLINE_S):
            again = await world.consumer.receive()
        assert (again.text, again.reconsume_times, again.topic) == ("a", 1, "A")
        assert len(await world.broker.messages("%RETRY%g")) == 1
        again.ack()


async def test_an_orderly_batch_that_is_filling_comes_again_one_message_at_a_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    handled: list[str] = []
    done = trio.Event()

    async def collect(batch: list[PushedMessage]) -> None:
        pytest.fail("the batch was not due")

    async def handle(message: PushedMessage) -> None:
        handled.append(f"{message.text} begins")
        await trio.sleep(1.0)
        handled.append(f"{message.text} ends")
        if len(handled) == 6:
            done.set()

    async with opened(is_orderly=True) as world:
        await world.send("A", "0", "1", "2")
        with trio.move_on_after(5.0):
            await world.consumer.run(collect, batch=10, linger_s=60.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(world.consumer.run, handle, concurrency=3))
            with trio.fail_after(DEADLINE_S):
                await done.wait()
            world.consumer.stop()
    assert handled == [f"{text} {what}" for text in "012" for what in ("begins", "ends")]


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("options", [{}, {"is_orderly": True}, {"mode": "pop"}], ids=str)
async def test_messages_of_handlers_come_again_when_run_is_cancelled(
    autojump_clock: trio.testing.MockClock, options: dict[str, Any], batch: int | None
) -> None:
    begun: list[object] = []

    async def handle(given: object) -> None:
        begun.append(given)
        await trio.sleep_forever()

    async with opened(**options) as world:
        await world.send("A", "0", "1", "2")
        with trio.move_on_after(5.0):
            await world.consumer.run(handle, concurrency=1, batch=batch)  # type: ignore[call-overload]
        assert len(begun) == 1
        assert sorted(await world.texts(3)) == ["0", "1", "2"]
