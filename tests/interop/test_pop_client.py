"""Our consumers that pop against Apache's brokers: 5.5.0, and 4.9.7, which does not pop.

What is expected below was seen with these.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from trocket.client import (
    ConfigurationError,
    ConsumeFromWhere,
    ExpiredReceiptError,
    Message,
    PoppedMessage,
    Producer,
    RouteNotFoundError,
    SimpleConsumer,
    SimpleConsumerOptions,
    Sql,
    Tag,
)
from trocket.interop.apache import ApacheCluster
from trocket.interop.maven import missing_tool
from trocket.interop.wire import WireClient, wait_for_route

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DEADLINE_S = 90.0
FIRST = SimpleConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
KEYS = {
    "mappedFileSizeCommitLog": 64 << 20,
    "enablePropertyFilter": True,
    "waitTimeMillsInSendQueue": 10_000,
}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ApacheCluster]]:
    """Gives a running cluster of a version, one for all tests."""
    reason = missing_tool()
    if reason is not None:
        pytest.fail(reason)
    made: dict[str, ApacheCluster] = {}

    def running(version: str) -> ApacheCluster:
        if version not in made:
            folder = tmp_path_factory.mktemp(f"apache-{version}")
            made[version] = ApacheCluster(version, folder, broker_keys=KEYS)
            made[version].start()
        return made[version]

    yield running
    for each in made.values():
        each.close()


@pytest.fixture
def cluster(make: Callable[[str], ApacheCluster]) -> ApacheCluster:
    return make("5.5.0")


@pytest.fixture
def group() -> str:
    return f"G_{uuid.uuid4().hex[:8]}"


def url_of(cluster: ApacheCluster) -> str:
    return f"rocketmq://{cluster.namesrv_address}"


def new_topic(cluster: ApacheCluster, queues: int) -> str:
    topic = f"T_{uuid.uuid4().hex[:8]}"
    with WireClient(cluster.broker_address) as wire:
        wire.create_topic(topic, queue_count=queues)
    wait_for_route(cluster.namesrv_address, topic, timeout_s=DEADLINE_S)
    return topic


def play(function: Callable[[], Awaitable[Any]], backend: str = "asyncio") -> Any:
    async def main() -> Any:
        with anyio.fail_after(DEADLINE_S):
            return await function()

    return anyio.run(main, backend=backend)


async def send(url: str, topic: str, *bodies: str, **fields: Any) -> None:
    async with Producer(url) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **fields))


async def receive(consumer: SimpleConsumer, count: int, **options: Any) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < count:
        found += await consumer.receive(32, **options)
    assert len(found) == count
    return found


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_not_acknowledged_comes_again_and_what_is_does_not(
    cluster: ApacheCluster, group: str, backend: str
) -> None:
    topic, url = new_topic(cluster, 4), url_of(cluster)

    async def scenario() -> None:
        await send(url, topic, *map(str, range(40)))
        async with SimpleConsumer(
            url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            found = await receive(consumer, 40, invisible_s=20.0)
            assert {each.text for each in found} == set(map(str, range(40)))
            kept, changed, *rest = found
            assert (kept.delivery_attempt, kept.is_settled) == (1, False)
            await consumer.ack(kept)
            old = changed.receipt
            await consumer.change_invisible(changed, 2.0)
            assert changed.receipt != old
            await consumer.ack_all(rest)
            assert all(each.is_settled for each in rest)
            (again,) = await receive(consumer, 1)
            assert again.text == changed.text
            assert (again.topic, again.delivery_attempt) == (topic, 2)
            assert again.queue.topic == f"%RETRY%{group}_{topic}"
            assert again.first_pop_time_ms < again.invisible_until_ms - 60_000
            await consumer.ack(again)
            assert await consumer.receive(wait_s=1.0) == []

    play(scenario, backend)


def test_several_topics_are_waited_for_together(cluster: ApacheCluster, group: str) -> None:
    topics, url = [new_topic(cluster, 2) for _ in range(3)], url_of(cluster)

    async def scenario() -> None:
        subscriptions = dict.fromkeys(topics, "a")
        async with (
            SimpleConsumer(url, group=group, subscriptions=subscriptions, **FIRST) as consumer,
            anyio.create_task_group() as tasks,
        ):
            for topic in topics:
                tasks.start_soon(lambda t=topic: send(url, t, "other", tags="b"))
                tasks.start_soon(lambda t=topic: send(url, t, "wanted", tags="a"))
                (message,) = await receive(consumer, 1, wait_s=30.0)
                assert (message.topic, message.text) == (topic, "wanted")
                await consumer.ack(message)

    play(scenario)


def test_filters(cluster: ApacheCluster, group: str) -> None:
    topic, url = new_topic(cluster, 2), url_of(cluster)

    async def scenario() -> None:
        for number in range(6):
            fields = {"tags": "abc"[number % 3], "properties": {"n": str(number)}}
            await send(url, topic, str(number), **fields)
        async with SimpleConsumer(
            url, group=group, subscriptions={topic: Tag("a || b")}, **FIRST
        ) as consumer:
            found = await receive(consumer, 4)
            assert sorted(each.text for each in found) == ["0", "1", "3", "4"]
        by_sql = {topic: Sql("n > 3")}
        async with SimpleConsumer(
            url, group=f"{group}_sql", subscriptions=by_sql, **FIRST
        ) as consumer:
            found = await receive(consumer, 2)
            assert sorted(each.text for each in found) == ["4", "5"]
        with pytest.raises(ConfigurationError, match="SQL92"):
            async with SimpleConsumer(
                url, group=f"{group}_bad", subscriptions={topic: Sql("n >")}, **FIRST
            ):
                pass

    play(scenario)


def test_in_order_a_queue_waits_for_its_first_message(cluster: ApacheCluster, group: str) -> None:
    topic, url = new_topic(cluster, 1), url_of(cluster)

    async def scenario() -> None:
        await send(url, topic, *"abcde")
        async with SimpleConsumer(
            url, group=group, subscriptions={topic: "*"}, is_orderly=True, **FIRST
        ) as consumer:
            first = await consumer.receive(3, invisible_s=30.0)
            assert [each.text for each in first] == ["a", "b", "c"]
            assert await consumer.receive(wait_s=1.0) == []
            await consumer.ack_all(first[:2])
            assert await consumer.receive(wait_s=1.0) == []
            await consumer.change_invisible(first[2], 1.0)
            again = await consumer.receive(3, invisible_s=30.0)
            assert [(each.text, each.delivery_attempt) for each in again] == [
                ("c", 2),
                ("d", 1),
                ("e", 1),
            ]
            await consumer.ack_all(again)
            assert await consumer.receive(wait_s=1.0) == []

    play(scenario)


def test_errors_say_what_is_wrong(cluster: ApacheCluster, group: str) -> None:
    topic, url = new_topic(cluster, 1), url_of(cluster)

    async def scenario() -> None:
        await send(url, topic, "a")
        async with SimpleConsumer(
            url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            (message,) = await receive(consumer, 1)
            wrong = message.settled.receipt._replace(offset=77)
            message.on_changed(wrong, message.deadline_s)
            with pytest.raises(ExpiredReceiptError, match=r"NO_MESSAGE \(208\).*offset 77"):
                await consumer.ack(message)
            with pytest.raises(ExpiredReceiptError, match=r"NO_MESSAGE \(208\)"):
                await consumer.change_invisible(message, 1.0)
            consumer.subscribe("Unknown")
            with pytest.raises(RouteNotFoundError, match="Unknown"):
                await consumer.receive()

    play(scenario)


def test_a_namespace(cluster: ApacheCluster, group: str) -> None:
    topic, url = new_topic(cluster, 1), url_of(cluster)
    with WireClient(cluster.broker_address) as wire:
        wire.create_topic(f"shop%{topic}", queue_count=1)
    wait_for_route(cluster.namesrv_address, f"shop%{topic}", timeout_s=DEADLINE_S)

    async def scenario() -> None:
        async with Producer(url, namespace="shop") as producer:
            await producer.send(Message(topic, "a"))
        async with SimpleConsumer(
            url, namespace="shop", group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            (message,) = await receive(consumer, 1, invisible_s=1.0)
            assert message.topic == topic
            (again,) = await receive(consumer, 1)
            assert (again.topic, again.delivery_attempt) == (topic, 2)
            await consumer.ack(again)

    play(scenario)


def test_a_broker_that_does_not_pop_is_named(
    make: Callable[[str], ApacheCluster], group: str
) -> None:
    cluster = make("4.9.7")
    topic, url = new_topic(cluster, 1), url_of(cluster)

    async def scenario() -> None:
        async with SimpleConsumer(
            url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            with pytest.raises(ConfigurationError, match=r"older than RocketMQ 5\.0"):
                await consumer.receive()

    play(scenario)
