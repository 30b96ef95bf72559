"""Our consumers that pop with Apache's brokers, 5.5.0 and 4.9.7, which does not pop, and with ours.

What is expected below was seen with Apache's.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from tests.client.support import send
from trocket.client import (
    Admin,
    ConfigurationError,
    ConsumeFromWhere,
    ExpiredReceiptError,
    Message,
    MessageQueue,
    NotFoundError,
    PoppedMessage,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    PushedMessage,
    ReceivedMessage,
    RetryLater,
    RouteNotFoundError,
    SimpleConsumer,
    SimpleConsumerOptions,
    Sql,
    Tag,
)
from trocket.interop.maven import missing_tool
from trocket.interop.peer import Cluster
from trocket.interop.peers import open_cluster
from trocket.interop.wire import WireClient, wait_for_route
from trocket.remoting.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from trocket.remoting.request_codes import RequestCode

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DEADLINE_S = 90.0
FIRST = SimpleConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
FIRST_PUSH = PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
KEYS = {
    "mappedFileSizeCommitLog": 64 << 20,
    "enablePropertyFilter": True,
    "waitTimeMillsInSendQueue": 10_000,
}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    """Gives a running cluster of a kind, one for all tests."""
    reason = missing_tool()
    if reason is not None:
        pytest.fail(reason)
    made: dict[str, Cluster] = {}

    def running(peer: str) -> Cluster:
        if peer not in made:
            made[peer] = open_cluster(peer, tmp_path_factory.mktemp(peer) / "cluster", KEYS)
            made[peer].start()
        return made[peer]

    yield running
    for each in made.values():
        each.close()


@pytest.fixture(params=[pytest.param("apache-5.5.0", marks=pytest.mark.matrix), "trocket"])
def cluster(request: pytest.FixtureRequest, make: Callable[[str], Cluster]) -> Cluster:
    return make(request.param)


@pytest.fixture
def group() -> str:
    return f"G_{uuid.uuid4().hex[:8]}"


def url_of(cluster: Cluster) -> str:
    return f"rocketmq://{cluster.namesrv_address}"


def new_topic(cluster: Cluster, queues: int) -> str:
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


async def receive(consumer: SimpleConsumer, count: int, **options: Any) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < count:
        found += await consumer.receive(32, **options)
    assert len(found) == count
    return found


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_not_acknowledged_comes_again_and_what_is_does_not(
    cluster: Cluster, group: str, backend: str
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


def test_several_topics_are_waited_for_together(cluster: Cluster, group: str) -> None:
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


def test_filters(cluster: Cluster, group: str) -> None:
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


def test_in_order_a_queue_waits_for_its_first_message(cluster: Cluster, group: str) -> None:
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


def test_errors_say_what_is_wrong(cluster: Cluster, group: str) -> None:
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
                await consumer.receive(wait_s=1.0)

    play(scenario)


def test_a_namespace(cluster: Cluster, group: str) -> None:
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


def test_a_broker_that_does_not_pop_is_named(make: Callable[[str], Cluster], group: str) -> None:
    cluster = make("apache-4.9.7")
    topic, url = new_topic(cluster, 1), url_of(cluster)

    async def scenario() -> None:
        async with SimpleConsumer(
            url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            with pytest.raises(ConfigurationError, match=r"older than RocketMQ 5\.0"):
                await consumer.receive()

    play(scenario)


# Push consumers


def set_mode(cluster: Cluster, topic: str, group: str, mode: MessageRequestMode) -> None:
    """Set how the group's consumers get the topic's messages; the group becomes known first."""
    body = SetMessageRequestModeRequestBody(topic=topic, consumer_group=group, mode=mode).to_body()
    with WireClient(cluster.broker_address) as wire:
        wire.create_group(group)
        wire.call(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body).checked()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_push_consumer_in_pop_mode(cluster: Cluster, group: str, backend: str) -> None:
    topic, url = new_topic(cluster, 4), url_of(cluster)
    set_mode(cluster, topic, group, MessageRequestMode.POP)

    async def scenario() -> None:
        await send(url, topic, *map(str, range(50)))
        tries: dict[str, list[int]] = {}
        broker_names: set[str] = set()

        async def handle(message: PushedMessage) -> None:
            tries.setdefault(message.text, []).append(message.reconsume_times)
            assert message.topic == topic
            assert message.receipt is not None
            broker_names.add(message.queue.broker_name)
            if message.text == "poison":
                raise RetryLater(1)
            if message.text == "7" and message.reconsume_times == 0:
                raise RetryLater(1)

        async with (
            PushConsumer(
                url,
                group=group,
                subscriptions={topic: "*"},
                mode="pop",
                max_reconsume_times=1,
                **FIRST_PUSH,
            ) as consumer,
            Admin(consumer.client) as admin,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, handle)
            await send(url, topic, "poison")
            letters: list[ReceivedMessage] = []
            while not letters or len(tries.get("7", [])) < 2 or len(tries) < 51:
                await anyio.sleep(0.2)
                with contextlib.suppress(RouteNotFoundError, NotFoundError):
                    letters = await admin.dead_letters(group)
            (name,) = broker_names
            assert MessageQueue(topic, name, -1) in consumer.queues
            consumer.stop()
        assert tries.pop("poison") == tries.pop("7") == [0, 1]
        assert all(each == [0] for each in tries.values())
        assert [each.text for each in letters] == ["poison"]
        # All are acknowledged: nothing is left for another consumer.
        async with SimpleConsumer(
            url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            assert await consumer.receive(wait_s=1.0) == []

    play(scenario, backend)


def test_what_a_closed_consumer_did_not_handle_comes_soon(cluster: Cluster, group: str) -> None:
    topic, url = new_topic(cluster, 1), url_of(cluster)
    set_mode(cluster, topic, group, MessageRequestMode.POP)

    async def scenario() -> None:
        await send(url, topic, *"abc")
        options = {"mode": "pop", **FIRST_PUSH}
        async with PushConsumer(
            url, group=group, subscriptions={topic: "*"}, **options
        ) as consumer:
            async for message in consumer:
                assert message.text == "a"
                break
        async with SimpleConsumer(
            url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            found = await receive(consumer, 3)
            assert {each.text: each.delivery_attempt for each in found} == dict.fromkeys("abc", 1)
            await consumer.ack_all(found)

    play(scenario)


def test_where_the_broker_says_pull_the_messages_are_pulled(
    cluster: Cluster, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the default; what was popped before comes from the retry topic of pops."""
    topic, url = new_topic(cluster, 2), url_of(cluster)

    async def scenario() -> None:
        await send(url, topic, "a")
        async with SimpleConsumer(url, group=group, subscriptions={topic: "*"}, **FIRST) as before:
            await receive(before, 1, invisible_s=1.0)
        await send(url, topic, "b")
        options = {"mode": "pop", "rebalance_s": 1.0, **FIRST_PUSH}
        async with PushConsumer(
            url, group=group, subscriptions={topic: "*"}, **options
        ) as consumer:
            # It may come from the topic, too: the group's offset is committed after the pop.
            expected = {("a", f"%RETRY%{group}_{topic}"), ("b", topic)}
            while expected:
                message = await consumer.receive()
                expected.discard((message.text, message.queue.topic))
                assert (message.topic, message.receipt) == (topic, None)
                message.ack()
            assert "set the mode" in caplog.text
            # An administrator changes the mode.
            set_mode(cluster, topic, group, MessageRequestMode.POP)
            while MessageQueue(topic, message.queue.broker_name, -1) not in consumer.queues:
                await consumer.rebalance()
            await send(url, topic, "c")
            message = await consumer.receive()
            if message.text == "a":  # from the topic, see above
                message.ack()
                message = await consumer.receive()
            assert (message.text, message.topic) == ("c", topic)
            assert message.receipt is not None
            message.ack()

    play(scenario)


def test_a_broker_that_does_not_assign_queues_is_named(
    make: Callable[[str], Cluster], group: str
) -> None:
    cluster = make("apache-4.9.7")
    topic, url = new_topic(cluster, 1), url_of(cluster)

    async def scenario() -> None:
        with pytest.raises(ConfigurationError, match=r"older than RocketMQ 5\.0.*mode=.pull."):
            async with PushConsumer(url, group=group, subscriptions={topic: "*"}, mode="pop"):
                pass

    play(scenario)
