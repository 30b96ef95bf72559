"""Consumers that pop, with trocket's broker: in both loops, and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio
import trio.testing

from trocket import (
    AccessDeniedError,
    Admin,
    ConsumeFromWhere,
    Credentials,
    ExpiredReceiptError,
    Message,
    Producer,
    PushConsumer,
    PushedMessage,
    RetryLater,
    SimpleConsumer,
    SimpleConsumerOptions,
    Sql,
    blocking,
)
from trocket.client import PolicyEntryInfo
from trocket.remoting.fastjson import loads
from trocket.remoting.headers import GetConsumerRunningInfoRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker, MemoryBroker

from .conftest import Play
from .support import send

FIRST = SimpleConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
POPPED = {"defaultMessageRequestMode": "POP", "enablePropertyFilter": True}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config=POPPED) as broker:
        yield broker


async def advance(broker: Broker, seconds: float) -> None:
    await anyio.to_thread.run_sync(lambda: broker.advance(seconds=seconds))


@pytest.mark.slow
def test_what_is_not_acknowledged_comes_again(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, *map(str, range(6)))
        async with SimpleConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            messages = await consumer.receive(wait_s=5.0)
            assert [each.text for each in messages] == list("012345")
            await consumer.ack(messages[0])
            await consumer.ack_all(messages[1:4])
            await consumer.change_invisible(messages[4], 300.0)
            await advance(broker, 70.0)
            (again,) = await consumer.receive(wait_s=20.0)
            assert (again.text, again.delivery_attempt, again.topic) == ("5", 2, topic)
            assert again.first_pop_time_ms < again.invisible_until_ms - 60_000
            await consumer.ack(again)
            await advance(broker, 240.0)
            (last,) = await consumer.receive(wait_s=20.0)
            assert (last.text, last.delivery_attempt) == ("4", 2)
            await consumer.ack(last)
            await advance(broker, 120.0)
            assert await consumer.receive(wait_s=0.2) == []

    play(scenario)


def test_filters_several_topics_and_what_administrators_see(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        other = f"{topic}_other"
        await anyio.to_thread.run_sync(lambda: broker.create_topic(other, queues=2))
        await send(broker.url, topic, "a", tags="a")
        await send(broker.url, topic, "b", tags="b")
        await send(broker.url, other, "low", properties={"n": "1"})
        subscriptions = {topic: "b", other: Sql("n > 1")}
        async with (
            SimpleConsumer(
                broker.url, group=group, subscriptions=subscriptions, **FIRST
            ) as consumer,
            Admin(consumer.client) as admin,
        ):
            (message,) = await consumer.receive()
            assert (message.topic, message.text) == (topic, "b")
            await consumer.ack(message)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: send(broker.url, other, "high", properties={"n": "2"}))
                (message,) = await consumer.receive(wait_s=10.0)
            assert (message.topic, message.text) == (other, "high")
            await consumer.ack(message)
            seen = await admin.clients(group)
            assert seen.consume_type == "CONSUME_POP"
            assert {each.topic for each in seen.subscriptions} == {topic, other}

    play(scenario)


@pytest.mark.slow
def test_in_order(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, *"abc")
        async with SimpleConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, is_orderly=True, **FIRST
        ) as consumer:
            a, b = await consumer.receive(2)
            assert await consumer.receive(wait_s=0.1) == []
            await consumer.ack(a)
            await consumer.change_invisible(b, 0.1)
            again = await consumer.receive(2, wait_s=10.0)
            assert [(each.text, each.delivery_attempt) for each in again] == [("b", 2), ("c", 1)]
            await consumer.ack_all(again[:1])
            wrong = again[1].settled.receipt._replace(offset=99)
            again[1].on_changed(wrong, again[1].deadline_s)
            with pytest.raises(ExpiredReceiptError):
                await consumer.change_invisible(again[1], 1.0)

    play(scenario)


def test_a_push_consumer_retries_and_buries(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "poison", *map(str, range(40)))
        tries: dict[str, list[int]] = {}
        tried = anyio.Event()

        async def handle(message: PushedMessage) -> None:
            nonlocal tried
            tries.setdefault(message.text, []).append(message.reconsume_times)
            tried.set()
            if message.text == "poison":
                raise RetryLater(3)

        async with (
            PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: "*"},
                mode="pop",
                max_reconsume_times=1,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ) as consumer,
            Admin(consumer.client) as admin,
            Producer(consumer.client) as producer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, handle)
            while len(tries) < 41:
                await tried.wait()
                tried = anyio.Event()
            info = await consumer.client.request(
                broker.broker_address,
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequestHeader(
                    consumer_group=group, client_id=consumer.client.client_id, jstack_enable=False
                ),
            )
            table = loads(info.body)["mqPopTable"]
            assert [queue for queue in table if dict(queue)["topic"] == topic]
            while not await anyio.to_thread.run_sync(lambda: broker.messages(f"%DLQ%{group}")):
                await advance(broker, 5.0)
            assert tries["poison"] == [0, 1]
            assert all(each == [0] for text, each in tries.items() if text != "poison")
            # The dead letter names its topic, not the retry topic that it was popped from.
            while not (letters := await admin.dead_letters(group)):
                await anyio.lowlevel.checkpoint()
            await producer.resend(letters[0])
            while len(tries["poison"]) < 3:
                await tried.wait()
                tried = anyio.Event()
            assert tries["poison"] == [0, 1, 0]
            consumer.stop()

    play(scenario)


def test_threads_have_both(broker: Broker, topic: str, group: str) -> None:
    with (
        blocking.Producer(broker.url) as producer,
        blocking.SimpleConsumer(broker.url, group=group, **FIRST) as consumer,
    ):
        consumer.subscribe(topic)
        for body in "abcd":
            producer.send(Message(topic, body))
        seen = []
        for message in consumer:
            seen.append(message.text)
            if message.text == "b":
                break
        assert seen == ["a", "b"]
        assert consumer.subscriptions == {topic: "*"}
    with blocking.SimpleConsumer(
        broker.url, group=f"{group}_all", subscriptions={topic: "*"}, **FIRST
    ) as consumer:
        received = []
        for message in consumer:
            received.append(message)
            if message.text == "d":
                consumer.close()
        assert [each.text for each in received] == list("abcd")
        # Each was acknowledged when the next one was requested.
        assert [each.is_settled for each in received] == [True, True, True, False]
    with blocking.PushConsumer(
        broker.url,
        group=f"{group}_push",
        subscriptions={topic: "*"},
        mode="pop",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ) as pushed:
        found = [pushed.receive() for _ in "abcd"]
        assert [each.text for each in found] == list("abcd")
        assert all(each.receipt is not None and not each.is_revoked for each in found)
        assert found[0].delivery_attempt == 1
        assert (found[0].invisible_until_ms or 0) - (found[0].first_pop_time_ms or 0) == 60_000
        for each in found:
            each.ack()


# In virtual time


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[tuple[MemoryBroker, Producer]]:
    async with MemoryBroker(config=POPPED) as broker:
        await broker.create_topic("T", queues=1)
        async with Producer(broker.url, dial=broker.dial) as producer:
            yield broker, producer


@pytest.mark.slow
async def test_a_crash_of_the_broker_loses_no_message(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with (
        opened() as (broker, producer),
        SimpleConsumer(
            broker.url, group="g", subscriptions={"T": "*"}, dial=broker.dial, **FIRST
        ) as consumer,
    ):
        for number in range(8):
            await producer.send(Message("T", str(number)))
        messages = await consumer.receive(8, invisible_s=30.0)
        await consumer.ack_all(messages[:4])
        await trio.sleep(25.0)  # longer than pops stay in memory
        await broker.crash()
        seen: set[str] = set()
        with trio.move_on_after(120.0):
            while True:
                found = await consumer.receive(wait_s=10.0)
                seen |= {each.text for each in found}
                await consumer.ack_all(found)
        assert {"4", "5", "6", "7"} <= seen


@pytest.mark.slow
async def test_a_simple_consumer_makes_no_dead_letters(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with (
        opened() as (broker, producer),
        SimpleConsumer(
            broker.url, group="g", subscriptions={"T": "*"}, dial=broker.dial, **FIRST
        ) as consumer,
    ):
        await producer.send(Message("T", "again"))
        for attempt in range(1, 20):  # retryMaxTimes of a group is 16
            (message,) = await consumer.receive(invisible_s=1.0, wait_s=60.0)
            assert (message.text, message.delivery_attempt) == ("again", attempt)


@pytest.mark.slow
async def test_a_long_handler_keeps_its_message_when_it_is_extended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as (broker, producer):
        await producer.send(Message("T", "long"))
        tries: list[int] = []

        async def handle(message: PushedMessage) -> None:
            tries.append(message.reconsume_times)
            await trio.sleep(300.0)
            consumer.stop()

        async with PushConsumer(
            broker.url,
            group="g",
            subscriptions={"T": "*"},
            mode="pop",
            pop_invisible_s=20.0,
            pop_extend=True,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            dial=broker.dial,
        ) as consumer:
            await consumer.run(handle)
        assert tries == [0]
        async with SimpleConsumer(
            broker.url, group="g", subscriptions={"T": "*"}, dial=broker.dial, **FIRST
        ) as other:
            assert await other.receive(wait_s=100.0) == []


async def test_what_a_broker_pops_after_stop_comes_to_others_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as (broker, producer):
        await producer.send(Message("T", "first"))

        async def handle(message: PushedMessage) -> None:
            consumer.stop()
            await producer.send(Message("T", "second"))  # the broker holds a pop, and answers it
            async with SimpleConsumer(
                broker.url, group="g", subscriptions={"T": "*"}, dial=broker.dial, **FIRST
            ) as other:
                (second,) = await other.receive(wait_s=10.0)
                assert second.text == "second"
                others.append(second.text)
                await other.ack(second)

        others: list[str] = []
        async with PushConsumer(
            broker.url,
            group="g",
            subscriptions={"T": "*"},
            mode="pop",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            dial=broker.dial,
        ) as consumer:
            await consumer.run(handle)
        assert others == ["second"]


# With accounts

SECURED = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"root","password":"rootpassword"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"innerpassword"}',
}
ROOT = Credentials("root", "rootpassword")
ALICE = Credentials("alice", "alicepassword")


@pytest.mark.slow
@pytest.mark.parametrize("is_pushed", [False, True])
def test_accounts_are_checked_and_requests_are_signed(play: Play, is_pushed: bool) -> None:
    async def scenario(broker: Broker) -> None:
        async with (
            Admin(broker.url, credentials=ROOT) as admin,
            Producer(admin.client) as producer,
        ):
            await producer.send(Message("Orders", "one"))
            await admin.create_user("alice", "alicepassword")
            options: Any = {"credentials": ALICE, **FIRST}
            async with SimpleConsumer(
                broker.url, group="g", subscriptions={"Orders": "*"}, **options
            ) as consumer:
                with pytest.raises(AccessDeniedError, match="alice"):
                    await consumer.receive(wait_s=1.0)
            policies = [
                PolicyEntryInfo(resource="Topic:Orders", actions=["Sub"], decision="Allow"),
                PolicyEntryInfo(resource="Group:g", actions=["Sub"], decision="Allow"),
            ]
            await admin.set_acl("alice", policies)
            if is_pushed:
                async with PushConsumer(
                    broker.url, group="g", subscriptions={"Orders": "*"}, mode="pop", **options
                ) as pushed:
                    found = await pushed.receive()
                    assert (found.text, found.receipt is not None) == ("one", True)
                    await found.retry(1)
                    found = await pushed.receive()
                    assert found.delivery_attempt == 2
                    found.ack()
                return
            async with SimpleConsumer(
                broker.url, group="g", subscriptions={"Orders": "*"}, **options
            ) as consumer:
                (message,) = await consumer.receive(wait_s=5.0)
                await consumer.change_invisible(message, 1.0)
                (message,) = await consumer.receive(wait_s=20.0)
                assert message.delivery_attempt == 2
                await consumer.ack(message)

    config = {**SECURED, **POPPED}
    with Broker(config=config) as broker:
        broker.create_topic("Orders", queues=1)
        play(lambda: scenario(broker))
