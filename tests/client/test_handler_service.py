"""`run` with a handler for each topic, and with batches, in both loops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from trocket import (
    ConsumeFromWhere,
    Interceptor,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
    RetryLater,
)
from trocket.client import PushedMessage
from trocket.testing import Broker

from .conftest import Play

FIRST = PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
LONG_S = 30.0
"""Longer than a test: what ends before did not wait for it."""


async def send(broker: Broker, topic: str, bodies: Sequence[object], **options: Any) -> None:
    async with Producer(broker.url) as producer:
        for body in bodies:
            await producer.send(Message(topic, str(body), **options))


def opened(broker: Broker, topic: str, group: str, **options: Any) -> PushConsumer[bytes]:
    return PushConsumer(broker.url, group=group, subscriptions={topic: "*"}, **FIRST, **options)


def texts(batch: Sequence[PushedMessage]) -> list[str]:
    return [message.text for message in batch]


# Topics


def test_each_topic_has_its_handler_and_redeliveries_go_to_it(
    play: Play, broker: Broker, group: str
) -> None:
    async def scenario() -> None:
        seen: list[tuple[str, str, int]] = []
        names = [f"{group}_A", f"{group}_B"]
        for name in names:
            broker.create_topic(name, queues=1)
            await send(broker, name, [name[-1].lower()])

        def take(who: str, message: PushedMessage) -> None:
            seen.append((who, message.text, message.reconsume_times))

        async def handle_a(message: PushedMessage) -> None:
            take("A", message)
            if message.reconsume_times == 0:
                raise RetryLater(1)

        def handle_b(message: PushedMessage) -> None:
            take("B", message)

        async with (
            PushConsumer(
                broker.url, group=group, subscriptions=dict.fromkeys(names, "*"), **FIRST
            ) as consumer,
            anyio.create_task_group() as tasks,
        ):
            handlers = {names[0]: handle_a, names[1]: handle_b}
            tasks.start_soon(consumer.run, handlers)
            while len(seen) < 3:
                await anyio.to_thread.run_sync(lambda: broker.advance(seconds=2))
                await anyio.sleep(0.01)
            assert consumer.handler is handlers
            consumer.stop()
        assert sorted(seen) == [("A", "a", 0), ("A", "a", 1), ("B", "b", 0)]

    play(scenario)


# Batches


@pytest.mark.slow
@pytest.mark.parametrize("in_thread", [False, True])
def test_a_batch_is_acknowledged_as_a_whole(
    play: Play, broker: Broker, topic: str, group: str, in_thread: bool
) -> None:
    async def scenario() -> None:
        batches: list[list[str]] = []
        await send(broker, topic, range(10))

        def take(batch: list[PushedMessage]) -> None:
            assert type(batch) is list
            batches.append(texts(batch))
            if sum(map(len, batches)) == 10:
                consumer.stop()

        async def take_async(batch: list[PushedMessage]) -> None:
            take(batch)

        async with opened(broker, topic, group) as consumer:
            await consumer.run(
                take if in_thread else take_async, concurrency=1, batch=4, linger_s=0.2
            )
        assert [each for batch in batches for each in batch] == [str(n) for n in range(10)]
        assert max(map(len, batches)) == 4
        assert broker.lag(group, topic) == 0

    play(scenario)


def test_a_batch_fills_up_while_it_lingers_and_a_full_one_goes_at_once(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        batches: list[list[str]] = []

        async def take(batch: list[PushedMessage]) -> None:
            batches.append(texts(batch))
            consumer.stop()

        async with (
            opened(broker, topic, group) as consumer,
            anyio.create_task_group() as tasks,
        ):
            # 20 handlers wait, and do not share what arrives slowly.
            tasks.start_soon(lambda: consumer.run(take, batch=3, linger_s=LONG_S))
            for body in "abc":
                await send(broker, topic, [body])
        assert batches == [["a", "b", "c"]]

    play(scenario)


@pytest.mark.slow
def test_a_batch_that_does_not_fill_goes_when_its_time_is_over(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        batches: list[list[str]] = []

        async def take(batch: list[PushedMessage]) -> None:
            batches.append(texts(batch))
            consumer.stop()

        await send(broker, topic, "ab")
        async with opened(broker, topic, group) as consumer:
            await consumer.run(take, batch=100, linger_s=0.5)
        assert batches == [["a", "b"]]

    play(scenario)


@pytest.mark.slow
def test_a_batch_fails_as_a_whole_but_for_what_is_settled(
    play: Play, broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        seen: list[tuple[str, int]] = []

        async def take(batch: list[PushedMessage]) -> None:
            seen.extend((message.text, message.reconsume_times) for message in batch)
            if batch[0].reconsume_times == 0:
                batch[0].ack()
                raise ValueError("the rest comes again")

        await send(broker, topic, "abc")
        async with (
            opened(broker, topic, group) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: consumer.run(take, batch=3, linger_s=0.5))
            while len(seen) < 5:
                await anyio.to_thread.run_sync(lambda: broker.advance(minutes=1))
                await anyio.sleep(0.01)
            consumer.stop()
        assert seen[:3] == [("a", 0), ("b", 0), ("c", 0)]
        assert sorted(seen[3:]) == [("b", 1), ("c", 1)]
        assert "2 of them will be redelivered" in caplog.text
        assert broker.lag(group, topic) == 0

    play(scenario)


@pytest.mark.slow
def test_the_handler_settles_messages_of_a_batch_one_by_one(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    seen: list[tuple[str, int]] = []

    def take(batch: list[PushedMessage]) -> None:
        for message in batch:
            seen.append((message.text, message.reconsume_times))
            if message.text == "b" and not message.reconsume_times:
                message.retry(1)  # type: ignore[unused-coroutine] # it has begun
            elif message.text == "a":
                message.ack()

    async def scenario() -> None:
        seen.clear()
        await send(broker, topic, "abc")
        async with (
            opened(broker, topic, group) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: consumer.run(take, batch=3, linger_s=0.5))
            while len(seen) < 4:
                await anyio.to_thread.run_sync(lambda: broker.advance(seconds=2))
                await anyio.sleep(0.01)
            consumer.stop()
        assert seen == [("a", 0), ("b", 0), ("c", 0), ("b", 1)]
        assert broker.lag(group, topic) == 0

    play(scenario)


@pytest.mark.slow
def test_batches_of_topics_do_not_mix(play: Play, broker: Broker, group: str) -> None:
    async def scenario() -> None:
        batches: list[tuple[str, list[str]]] = []
        names = [f"{group}_A", f"{group}_B"]
        for name in names:
            broker.create_topic(name, queues=1)
            await send(broker, name, [f"{name[-1]}{n}" for n in range(4)])

        def taker(who: str) -> Callable[[list[PushedMessage]], None]:
            def take(batch: list[PushedMessage]) -> None:
                batches.append((who, texts(batch)))
                if sum(len(each) for _, each in batches) == 8:
                    consumer.stop()

            return take

        async with PushConsumer(
            broker.url, group=group, subscriptions=dict.fromkeys(names, "*"), **FIRST
        ) as consumer:
            handlers = {names[0]: taker("A"), names[1]: taker("B")}
            await consumer.run(handlers, concurrency=1, batch=3, linger_s=0.3)
        for who in "AB":
            of_one = [each for name, batch in batches if name == who for each in batch]
            assert of_one == [f"{who}{n}" for n in range(4)]

    play(scenario)


# Batches in order


@pytest.mark.slow
def test_an_orderly_batch_is_of_one_queue_and_in_order(
    play: Play, broker: Broker, group: str
) -> None:
    async def scenario() -> None:
        topic = f"{group}_T"
        broker.create_topic(topic, queues=3)
        for number in range(30):
            await send(broker, topic, [f"{number % 3}/{number:02}"], sharding_key="abc"[number % 3])
        busy: set[int] = set()
        seen: list[str] = []
        sizes: set[int] = set()

        async def take(batch: list[PushedMessage]) -> None:
            (queue,) = {message.queue_id for message in batch}
            assert queue not in busy
            busy.add(queue)
            await anyio.lowlevel.checkpoint()
            seen.extend(texts(batch))
            sizes.add(len(batch))
            busy.remove(queue)
            if len(seen) == 30:
                consumer.stop()

        async with opened(broker, topic, group, is_orderly=True) as consumer:
            await consumer.run(take, batch=4, linger_s=0.2)
        for key in "012":
            mine = [each for each in seen if each.startswith(key)]
            assert mine == sorted(mine)
        assert len(seen) == 30
        assert max(sizes) == 4
        assert broker.lag(group, topic) == 0

    play(scenario)


def test_an_orderly_batch_waits_for_more_of_its_queue(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        batches: list[list[str]] = []

        async def take(batch: list[PushedMessage]) -> None:
            batches.append(texts(batch))
            consumer.stop()

        async with (
            opened(broker, topic, group, is_orderly=True) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: consumer.run(take, batch=3, linger_s=LONG_S))
            for body in "abc":
                await send(broker, topic, [body])
        assert batches == [["a", "b", "c"]]
        assert broker.lag(group, topic) == 0

    play(scenario)


@pytest.mark.slow
def test_behind_a_message_that_comes_again_an_orderly_batch_comes_again(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        batches: list[list[tuple[str, int]]] = []

        async def take(batch: list[PushedMessage]) -> None:
            batches.append([(message.text, message.reconsume_times) for message in batch])
            for message in batch:
                if message.text == "b" and message.reconsume_times < 2:
                    await message.retry()
            if batch[-1].text == "d" and batch[0].reconsume_times == 2:
                consumer.stop()

        await send(broker, topic, "abcd")
        async with opened(broker, topic, group, is_orderly=True, suspend_queue_s=0.01) as consumer:
            await consumer.run(take, batch=4, linger_s=0.3)
        assert batches == [
            [("a", 0), ("b", 0), ("c", 0), ("d", 0)],
            [("b", 1), ("c", 0), ("d", 0)],
            [("b", 2), ("c", 0), ("d", 0)],
        ]
        assert broker.lag(group, topic) == 0

    play(scenario)


@pytest.mark.slow
def test_an_orderly_batch_that_fails_comes_again_in_order(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        batches: list[list[str]] = []

        async def take(batch: list[PushedMessage]) -> None:
            batches.append(texts(batch))
            if len(batches) == 1:
                batch[0].ack()
                raise ValueError("all but the first come again")
            consumer.stop()

        await send(broker, topic, "abc")
        async with opened(broker, topic, group, is_orderly=True, suspend_queue_s=0.01) as consumer:
            await consumer.run(take, batch=3, linger_s=0.3)
        assert batches == [["a", "b", "c"], ["b", "c"]]
        assert broker.lag(group, topic) == 0

    play(scenario)


@pytest.mark.slow
def test_batches_keep_to_the_rate_and_interceptors_see_each_message(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    class Sees(Interceptor):
        def __init__(self) -> None:
            self.seen: list[tuple[str, str]] = []

        def before_consume(self, message: ReceivedMessage) -> None:
            self.seen.append(("before", message.text))

        def after_consume(self, message: ReceivedMessage, error: Exception | None) -> None:
            self.seen.append(("after", message.text))

    async def scenario() -> None:
        for is_orderly in (False, True):
            sees = Sees()
            count = 0
            name = f"{group}_{is_orderly}"

            async def take(batch: list[PushedMessage]) -> None:
                nonlocal count
                count += len(batch)
                if count >= 4:
                    consumer.stop()

            await send(broker, topic, "ab")
            async with opened(
                broker, topic, name, is_orderly=is_orderly, interceptors=[sees], rate_limit=20.0
            ) as consumer:
                start_s = anyio.current_time()
                with anyio.move_on_after(1.0 if not is_orderly else 2.0):
                    await consumer.run(take, batch=8, linger_s=0.1)
                assert anyio.current_time() - start_s > 0.04
            before = [text for what, text in sees.seen if what == "before"]
            after = [text for what, text in sees.seen if what == "after"]
            assert before == after
            assert before[:2] == ["a", "b"]

    play(scenario)


@pytest.mark.slow
def test_a_batch_in_a_thread_that_takes_too_long_comes_again(
    play: Play, broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    batches: list[list[str]] = []

    def take(batch: list[PushedMessage]) -> None:
        batches.append(texts(batch))
        if len(batches) == 1:
            release.wait(LONG_S)
        else:
            consumer.stop()

    async def scenario() -> None:
        nonlocal consumer
        batches.clear()
        release.clear()
        await send(broker, topic, "ab")
        async with opened(
            broker, topic, group, is_orderly=True, suspend_queue_s=0.01, consume_timeout_s=0.1
        ) as consumer:
            await consumer.run(take, concurrency=2, batch=2, linger_s=0.3)
            release.set()
        assert batches == [["a", "b"], ["a", "b"]]
        assert broker.lag(group, topic) == 0

    consumer: PushConsumer
    play(scenario)
    assert "did not return in 0.1 s" in caplog.text
