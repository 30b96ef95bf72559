"""Producers and consumers by gRPC with a real broker, in all loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import trocket.blocking
from trocket import (
    Client,
    ConfigurationError,
    ExpiredReceiptError,
    Message,
    MessageRefusedError,
    Producer,
    PushConsumer,
    RetryLater,
    RouteNotFoundError,
    ServerError,
    SimpleConsumer,
    Sql,
    TransactionProducer,
    TransactionState,
)
from trocket.testing import Broker

from ..conftest import Play


@pytest.fixture
def url(broker: Broker) -> str:
    return f"rocketmq+grpc://{broker.broker_address}"


@pytest.fixture
def new_topic(broker: Broker, topic: str) -> Callable[[str], str]:
    """Makes topics of a type, each with one queue."""

    def make(message_type: str) -> str:
        name = f"{topic}_{message_type}"
        broker.create_topic(name, queues=1, message_type=message_type)
        return name

    return make


def parts(message: Any) -> tuple[Any, ...]:
    """What a program sees of a message."""
    return (
        message.text, message.tags, message.keys, message.user_properties, message.topic,
        message.message_id, message.delivery_attempt, message.queue_id,
    )  # fmt: skip


def test_a_message_is_received_as_it_was_sent(play: Play, url: str, topic: str, group: str):
    async def main() -> None:
        async with (
            Producer(url) as producer,
            SimpleConsumer(url, group=group, subscriptions={topic: "*"}) as consumer,
        ):
            sent = await producer.send(
                Message(topic, "body", tags="a", keys=("k1", "k2"), properties={"colour": "red"})
            )
            assert (sent.queue.queue_id, sent.queue_offset, sent.offset_message_id) == (-1, 0, "")
            (first,) = await consumer.receive()
            expected = ("body", "a", ("k1", "k2"), {"colour": "red"}, topic, sent.message_id)
            assert parts(first) == (*expected, 1, 0)
            assert first.born_timestamp_ms <= first.store_timestamp_ms
            assert first.invisible_until_ms > first.store_timestamp_ms
            await consumer.change_invisible(first, 0)
            (again,) = await consumer.receive()
            assert parts(again) == (*expected, 2, 0)
            assert again.receipt != first.receipt
            await consumer.ack(again)
            assert again.is_settled
            assert await consumer.receive(wait_s=0) == []
            with pytest.raises(ExpiredReceiptError):
                await consumer.ack(first)

    play(main)


def test_sends_of_all_kinds_arrive(play: Play, url: str, topic: str, group: str):
    async def main() -> None:
        async with Producer(url, linger_s=0.01) as producer:
            await producer.send_batch([Message(topic, "b1"), Message(topic, "b2")])
            await producer.send_oneway(Message(topic, "oneway"))
            for number in range(20):
                await producer.send_soon(Message(topic, str(number)))
            await producer.send(Message(topic, "x" * 100_000))
        async with SimpleConsumer(url, group=group, subscriptions={topic: "*"}) as consumer:
            received: list[str] = []
            while len(received) < 24:
                messages = await consumer.receive(32)
                received += [message.text for message in messages]
                await consumer.ack_all(messages)
        expected = {"b1", "b2", "oneway", "x" * 100_000, *map(str, range(20))}
        assert set(received) == expected

    play(main)


def test_a_push_consumer_retries_and_buries(
    play: Play, broker: Broker, url: str, topic: str, group: str
):
    broker.create_group(group, retry_max_times=1)
    tries: list[tuple[str, int]] = []

    async def main() -> None:
        dead = anyio.Event()

        async def handle(message: Any) -> None:
            tries.append((message.text, message.delivery_attempt))
            if message.text == "last":
                dead.set()
            elif message.text == "bad":
                raise RetryLater(-1 if message.delivery_attempt > 1 else 1)

        async with (
            Producer(url) as producer,
            PushConsumer(url, group=group, subscriptions={topic: "*"}) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, handle)
            await producer.send(Message(topic, "good"))
            await producer.send(Message(topic, "bad"))
            with anyio.fail_after(20):
                while not broker_has(broker, f"%DLQ%{group}"):  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            await producer.send(Message(topic, "last"))
            await dead.wait()
            consumer.stop()

    play(main)
    assert tries == [("good", 1), ("bad", 1), ("bad", 2), ("last", 1)]
    assert [message.body for message in broker.messages(f"%DLQ%{group}")] == [b"bad"]


def broker_has(broker: Broker, topic: str) -> bool:
    try:
        return bool(broker.messages(topic))
    except Exception:  # noqa: BLE001 - there is no such topic yet
        return False


def test_a_fifo_group_gets_each_queue_in_order(
    play: Play, broker: Broker, url: str, new_topic: Callable[[str], str], group: str
):
    broker.create_group(group, consume_message_orderly=True)
    topic = new_topic("FIFO")
    seen: list[str] = []

    async def main() -> None:
        async with Producer(url) as producer:
            for number in range(6):
                await producer.send(Message(topic, str(number), sharding_key="one"))
        async with PushConsumer(url, group=group, subscriptions={topic: "*"}) as consumer:
            async for message in consumer:
                seen.append(message.text)
                if len(seen) == 6:
                    break

    play(main)
    assert seen == [str(number) for number in range(6)]


def test_delayed_messages_come_late_or_are_recalled(
    play: Play, url: str, new_topic: Callable[[str], str], group: str, broker: Broker
):
    topic = new_topic("DELAY")

    async def main() -> None:
        async with (
            Producer(url) as producer,
            SimpleConsumer(url, group=group, subscriptions={topic: "*"}) as consumer,
        ):
            due_ms = broker.now_ms + 2_000  # its clock may have been moved
            kept = await producer.send(Message(topic, "kept", deliver_at_ms=due_ms))
            assert kept.recall_handle
            await producer.send(Message(topic, "soon", delay_s=1))
            (first,) = await consumer.receive()
            (second,) = await consumer.receive()
            assert [first.text, second.text] == ["soon", "kept"]
            assert second.properties["TIMER_DELIVER_MS"] == str(due_ms)
            with pytest.raises(ServerError):  # the broker's setting forbids it
                await producer.recall(topic, kept.recall_handle)

    play(main)


def test_transactions_commit_and_roll_back(
    play: Play, url: str, new_topic: Callable[[str], str], group: str
):
    topic = new_topic("TRANSACTION")

    async def main() -> None:
        async with (
            TransactionProducer(
                url, group=f"{group}_producer", check=lambda _: TransactionState.UNKNOWN
            ) as producer,
            SimpleConsumer(url, group=group, subscriptions={topic: "*"}) as consumer,
        ):
            states = [TransactionState.ROLLBACK, TransactionState.COMMIT]
            for state in states:
                message = Message(topic, state.name)
                sent = await producer.send_in_transaction(message, lambda _, state=state: state)
                assert sent.result.transaction_id
            (committed,) = await consumer.receive()
            assert committed.text == "COMMIT"

    play(main)


def test_several_topics_and_filters_of_one_client(
    play: Play, broker: Broker, url: str, topic: str, group: str
):
    other = f"{topic}_other"
    broker.create_topic(other, queues=1)

    async def main() -> None:
        subscriptions = {topic: "a || b", other: Sql("n > 1")}
        async with (
            Client(url) as client,
            Producer(client) as producer,
            SimpleConsumer(client, group=group, subscriptions=subscriptions) as consumer,
        ):
            # Both places wait; the one that has a message gives it at once.
            for name, body, tag, number in (
                (other, "two", "x", "2"), (topic, "a", "a", "0"), (topic, "c", "c", "0"),
                (other, "one", "x", "1"), (topic, "b", "b", "0"),
            ):  # fmt: skip
                await producer.send(Message(name, body, tags=tag, properties={"n": number}))
            received: list[str] = []
            while len(received) < 3:
                messages = await consumer.receive(wait_s=5)
                received += [message.text for message in messages]
                await consumer.ack_all(messages)
            assert sorted(received) == ["a", "b", "two"]
            start_s = anyio.current_time()
            assert await consumer.receive(wait_s=0.5) == []
            assert anyio.current_time() - start_s < 4

    play(main)


def test_a_namespace_is_the_servers_to_look_at(play: Play, url: str, group: str, topic: str):
    async def main() -> None:
        options: Any = {"namespace": "ns"}
        async with (
            Producer(url, **options) as producer,
            SimpleConsumer(url, group=group, subscriptions={topic: "*"}, **options) as consumer,
        ):
            await producer.send(Message(topic, "in it"))
            (message,) = await consumer.receive()
            assert (message.topic, message.text) == (topic, "in it")

    play(main)


def test_the_blocking_classes(url: str, topic: str, group: str):
    with (
        trocket.blocking.Producer(url) as producer,
        trocket.blocking.SimpleConsumer(url, group=group, subscriptions={topic: "*"}) as consumer,
    ):
        producer.send(Message(topic, "hello"))
        (message,) = consumer.receive()
        assert message.text == "hello"
        consumer.ack(message)


def test_errors_are_those_of_other_brokers(play: Play, url: str, topic: str, group: str):
    async def main() -> None:
        async with Producer(url, wait_for_broker_s=0) as producer:
            with pytest.raises(RouteNotFoundError):
                await producer.send(Message(f"{topic}_unknown", "body"))
            with pytest.raises(ServerError, match="the expected type is NORMAL"):
                await producer.send(Message(topic, "body", delay_s=1))
            with pytest.raises(MessageRefusedError, match="no delay_level by gRPC: give delay_s"):
                await producer.send(Message(topic, "body", delay_level=1))
            with pytest.raises(MessageRefusedError, match="no flag by gRPC"):
                await producer.send(Message(topic, "body", flag=1))
            queue = (await producer.queues(topic))[0]
            with pytest.raises(ConfigurationError, match="give the message a sharding_key"):
                await producer.send(Message(topic, "body"), queue=queue)
            with pytest.raises(ConfigurationError, match="a request does not work by gRPC"):
                await producer.request(Message(topic, "body"))
        async with SimpleConsumer(url, group=group, subscriptions={topic: "*"}) as consumer:
            with pytest.raises(ServerError, match="invisibleTime is too small"):
                await consumer.receive(invisible_s=5)

    play(main)
