"""Pull consumers that get their queues as members of a group, in all loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest

from trocket import (
    ConfigurationError,
    Message,
    MessageQueue,
    PullConsumer,
    PullConsumerOptions,
    PushConsumer,
    RebalanceListener,
    Sql,
    Tag,
    blocking,
)
from trocket.testing import Broker

from .conftest import Play
from .support import poll, send_numbers

FIRST = PullConsumerOptions(consume_from_where="first")


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await condition():
            return
        await anyio.sleep(0.01)


async def until_queues(consumer: PullConsumer, count: int) -> None:
    async def has_them() -> bool:
        return len(consumer.assignment) == count

    await until(has_them)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("*", "0123456789"),
        ("a || b", "0123456789"),
        ("b", "13579"),
        (Tag("a"), "02468"),
        (Sql("n < 3"), "012"),
    ],
)
def test_a_subscribed_topic_is_received_without_naming_its_queues(
    play: Play, broker: Broker, topic: str, group: str, selector: object, found: str
) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 10)
        async with PullConsumer(broker.url, group=group, **FIRST) as consumer:
            consumer.subscribe({topic: selector})  # type: ignore[dict-item]
            assert await poll(consumer, len(found)) == list(found)

    play(scenario)


@pytest.mark.slow
def test_two_members_share_the_queues_and_nothing_is_received_twice(
    play: Play, broker: Broker, group: str
) -> None:
    topic = f"T4_{group}"

    async def take_all(consumer: PullConsumer, seen: Counter[str]) -> None:
        while seen.total() < 40:
            seen.update(m.text for m in await consumer.poll(timeout_s=0.05))

    async def scenario() -> None:
        async with (
            PullConsumer(broker.url, group=group, **FIRST) as one,
            PullConsumer(broker.url, group=group, **FIRST) as two,
        ):
            one.subscribe(topic)
            await until_queues(one, 4)
            two.subscribe([topic])
            await until_queues(one, 2)
            await until_queues(two, 2)
            assert {*one.assignment, *two.assignment} == set(await one.queues(topic))
            await send_numbers(broker.url, topic, 40)
            seen: Counter[str] = Counter()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take_all, one, seen)
                tasks.start_soon(take_all, two, seen)
            assert seen == Counter(map(str, range(40)))
        assert broker.lag(group, topic) == 0

    broker.create_topic(topic, queues=4)
    play(scenario)


def test_the_queues_of_a_member_that_leaves_go_to_the_others(
    play: Play, broker: Broker, group: str
) -> None:
    topic = f"T2_{group}"

    async def scenario() -> None:
        await send_numbers(broker.url, topic, 10)
        async with PullConsumer(broker.url, group=group, **FIRST) as stays:
            stays.subscribe(topic)
            async with PullConsumer(broker.url, group=group, **FIRST) as leaves:
                leaves.subscribe(topic)
                await until_queues(stays, 1)
                await until_queues(leaves, 1)
                first = await poll(leaves, 5)
            await until_queues(stays, 2)
            rest = await poll(stays, 5)
            assert sorted(first + rest) == [str(n) for n in range(10)]

    broker.create_topic(topic, queues=2)
    play(scenario)


@pytest.mark.slow
def test_messages_of_a_poll_are_committed_when_the_next_one_has_begun(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 6)
        options = PullConsumerOptions(FIRST, auto_commit_s=0.01)
        async with PullConsumer(broker.url, group=group, **options) as consumer:
            consumer.subscribe(topic)
            (queue,) = await one_queue(consumer, topic)
            assert len(await consumer.poll(2)) == 2
            assert not await consumer.committed(queue)
            assert len(await consumer.poll(3)) == 3
            await until(lambda: is_committed(consumer, queue, 2))
            await consumer.commit()
            for _ in range(5):  # the automatic commits that follow leave it
                assert await consumer.committed(queue) == 5
                await anyio.sleep(options["auto_commit_s"])

    play(scenario)


async def is_committed(consumer: PullConsumer, queue: MessageQueue, offset: int) -> bool:
    return await consumer.committed(queue) == offset


async def one_queue(consumer: PullConsumer, topic: str) -> list[MessageQueue]:
    await until_queues(consumer, 1)
    return await consumer.queues(topic)


def test_messages_of_a_poll_that_ends_in_an_exception_come_again(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def fail() -> None:
        async with PullConsumer(broker.url, group=group, **FIRST) as consumer:
            consumer.subscribe(topic)
            assert await poll_exactly(consumer, 2) == ["0", "1"]
            assert await poll_exactly(consumer, 2) == ["2", "3"]
            raise RuntimeError("the program failed")

    async def scenario() -> None:
        await send_numbers(broker.url, topic, 6)
        with pytest.raises(RuntimeError, match="the program failed"):
            await fail()
        async with PullConsumer(broker.url, group=group, **FIRST) as consumer:
            consumer.subscribe(topic)
            assert await poll(consumer, 4) == ["2", "3", "4", "5"]

    play(scenario)


async def poll_exactly(consumer: PullConsumer, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        found += [m.text for m in await consumer.poll(count - len(found))]
    return found


def test_without_auto_commit_only_commit_commits(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 4)
        options = PullConsumerOptions(FIRST, auto_commit=False)
        async with PullConsumer(broker.url, group=group, **options) as consumer:
            consumer.subscribe(topic)
            assert await poll(consumer, 4) == ["0", "1", "2", "3"]
        assert broker.lag(group, topic) == 4
        async with PullConsumer(broker.url, group=group, **options) as consumer:
            consumer.subscribe(topic)
            assert await poll(consumer, 4) == ["0", "1", "2", "3"]
            await consumer.commit()
        assert broker.lag(group, topic) == 0

    play(scenario)


@pytest.mark.slow
def test_a_topic_can_be_added_and_taken_away(play: Play, broker: Broker, group: str) -> None:
    first, second = f"A_{group}", f"B_{group}"

    class Log(RebalanceListener):
        def __init__(self) -> None:
            self.events: list[tuple[str, str]] = []

        def on_assign(self, queues: Sequence[MessageQueue]) -> None:
            self.events += [("assign", queue.topic) for queue in queues]

        def on_revoke(self, queues: Sequence[MessageQueue]) -> None:
            self.events += [("revoke", queue.topic) for queue in queues]

    async def scenario() -> None:
        log = Log()
        await send_numbers(broker.url, first, 2)
        await send_numbers(broker.url, second, 2, start=2)
        async with PullConsumer(broker.url, group=group, listener=log, **FIRST) as consumer:
            consumer.subscribe(first)
            assert await poll(consumer, 2) == ["0", "1"]
            consumer.subscribe(second, "a || b")
            assert await poll(consumer, 2) == ["2", "3"]
            consumer.unsubscribe(first)
            assert {queue.topic for queue in consumer.assignment} == {second}
            await send_numbers(broker.url, first, 1)
            assert await consumer.poll(timeout_s=0.1) == []
            assert log.events == [("assign", first), ("assign", second), ("revoke", first)]
        assert broker.lag(group, first) == 1

    for topic in (first, second):
        broker.create_topic(topic, queues=1)
    play(scenario)


@pytest.mark.slow
def test_a_topic_that_is_created_later_is_received(play: Play, broker: Broker, group: str) -> None:
    topic = f"Later_{group}"

    async def scenario() -> None:
        async with PullConsumer(broker.url, group=group, **FIRST) as consumer:
            consumer.subscribe(topic)
            assert await consumer.poll(timeout_s=0.05) == []
            broker.create_topic(topic, queues=1)
            await send_numbers(broker.url, topic, 1)
            assert await poll(consumer, 1) == ["0"]

    play(scenario)


def test_a_time_to_begin_at(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 2)
        async with PullConsumer(broker.url, group=group, consume_from_where="timestamp") as found:
            found.subscribe(topic)
            assert await poll(found, 2) == ["0", "1"]  # half an hour ago

    play(scenario)


def test_a_push_consumer_of_the_same_group_shares_the_queues(
    play: Play, broker: Broker, group: str
) -> None:
    topic = f"Mixed_{group}"

    async def scenario() -> None:
        async with (
            PullConsumer(broker.url, group=group) as pulls,
            PushConsumer(broker.url, group=group, subscriptions={topic: "*"}) as pushed,
        ):
            pulls.subscribe(topic)
            await until_queues(pulls, 1)
            await until(lambda: has_one(pushed, topic))

    broker.create_topic(topic, queues=2)
    play(scenario)


async def has_one(consumer: PushConsumer, topic: str) -> bool:
    return [queue.topic for queue in consumer.queues].count(topic) == 1


def test_subscribe_and_assign_exclude_one_another(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with PullConsumer(broker.url, group=group) as consumer:
            with pytest.raises(ConfigurationError, match=r"call subscribe\('orders'\)"):
                await consumer.poll(timeout_s=0)
            queues = await consumer.queues(topic)
            consumer.assign(queues)
            with pytest.raises(ConfigurationError, match="either `assign` or `subscribe`"):
                consumer.subscribe(topic)
            consumer.assign([])
            consumer.subscribe(topic)
            with pytest.raises(ConfigurationError, match="either `subscribe` or `assign`"):
                consumer.assign(queues)
            with pytest.raises(ConfigurationError, match="does not subscribe to the topic Other"):
                consumer.unsubscribe("Other")

    play(scenario)


def test_the_blocking_consumer_subscribes_too(broker: Broker, topic: str, group: str) -> None:
    with blocking.Producer(broker.url) as producer:
        producer.send(Message(topic, "x"))
    with blocking.PullConsumer(broker.url, group=group, **FIRST) as consumer:
        consumer.subscribe(topic)
        assert [m.text for m in consumer.poll(1)] == ["x"]
        assert consumer.poll(timeout_s=0) == []
        consumer.unsubscribe(topic)  # what was consumed is committed, at the latest when it closes
    assert broker.lag(group, topic) == 0
