"""Orderly queues that change hands, in both loops: no message is handled by two members at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from trocket import (
    Client,
    ConsumeFromWhere,
    MessageQueue,
    PullConsumer,
    PushConsumer,
    PushConsumerOptions,
    PushedMessage,
)
from trocket.client.core.process_queue import REBALANCE_LOCK_MAX_LIVE_MS
from trocket.client.pushing import push_rebalance
from trocket.client.tasks import clock
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import DEADLINE_S, Play
from .support import send

ORDERLY = PushConsumerOptions(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    is_orderly=True,
    persist_offsets_s=1000.0,
)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two attempts; no test here measures them."""
    monkeypatch.setattr(push_rebalance, "REBALANCE_RETRY_S", 0.05)


async def until_owner(consumer: PushConsumer, topic: str) -> None:
    while topic not in {queue.topic for queue in consumer.queues}:
        await consumer.rebalance()
        await anyio.lowlevel.checkpoint()


def successor_of(consumer: PushConsumer) -> str:
    """An instance name whose client id comes before that of the consumer, so it gets the queue."""
    return "!" + consumer.client.instance_name


class Failing:
    """A strategy of a program that fails at times."""

    name = "FAILING"

    def __init__(self) -> None:
        self.failures: list[object] = []

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if not self.failures:
            return queues
        failure = self.failures.pop(0)
        if isinstance(failure, Exception):
            raise failure
        return cast("Sequence[MessageQueue]", failure)


@pytest.mark.slow
@pytest.mark.parametrize("failure", [KeyError("room"), None, ["TopicTest"]], ids=repr)
@pytest.mark.parametrize("kind", ["push", "pull"])
def test_a_strategy_that_fails_is_named_and_the_queues_stay(
    play: Play,
    broker: Broker,
    topic: str,
    group: str,
    kind: str,
    failure: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        caplog.clear()
        await send(broker.url, topic, "before")
        strategy = Failing()
        made: Any = PullConsumer
        if kind == "push":
            made = partial(PushConsumer, subscriptions={topic: "*"})
        options = {"strategy": strategy, "consume_from_where": "first", "rebalance_s": 0.1}
        async with made(broker.url, group=group, **options) as consumer:
            if kind == "pull":
                consumer.subscribe(topic)
            with anyio.fail_after(DEADLINE_S):
                await received(consumer, "before")
                strategy.failures = [failure] * 3
                while strategy.failures:
                    await anyio.lowlevel.checkpoint()
                await send(broker.url, topic, "later")
                await received(consumer, "later")
        assert "Failing.allocate" in caplog.text

    play(scenario)


async def received(consumer: Any, text: str) -> None:
    """Wait for one message."""
    if isinstance(consumer, PullConsumer):
        while not (messages := await consumer.poll(1)):
            pass
        assert [message.text for message in messages] == [text]
    else:
        message = await anext(aiter(consumer))
        message.ack()
        assert message.text == text


@pytest.mark.parametrize("outcome", ["acknowledged", "failed"])
def test_a_queue_goes_to_a_new_member_when_its_message_is_settled(
    play: Play, broker: Broker, topic: str, group: str, outcome: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "1", "2")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **ORDERLY
        ) as first:
            message = await first.receive()
            async with PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: "*"},
                instance_name=successor_of(first),
                **ORDERLY,
            ) as second:
                # The first member gives the queue up, and has its message in hand.
                while topic in {queue.topic for queue in first.queues}:
                    await first.rebalance()
                for _ in range(3):
                    await second.rebalance()
                assert topic not in {queue.topic for queue in second.queues}
                if outcome == "acknowledged":
                    message.ack()
                else:
                    await message.retry()
                await until_owner(second, topic)
                nearest = await second.receive()
                assert nearest.text == ("2" if outcome == "acknowledged" else "1")
                nearest.ack()

    play(scenario)


def test_a_message_that_the_program_has_not_taken_goes_at_once(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "1")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **ORDERLY
        ) as first:
            first.pause([topic])
            await until_owner(first, topic)
            async with PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: "*"},
                instance_name=successor_of(first),
                **ORDERLY,
            ) as second:
                while topic in {queue.topic for queue in first.queues}:
                    await first.rebalance()
                await until_owner(second, topic)
                (await second.receive()).ack()

    play(scenario)


def test_a_reset_inside_a_handler_begins_when_its_message_is_settled(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "1", "2", "3")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **ORDERLY
        ) as consumer:
            (await consumer.receive()).ack()
            message = await consumer.receive()
            assert message.text == "2"
            await consumer.seek(message.queue, 0)
            for _ in range(3):
                await consumer.rebalance()
            assert topic not in {queue.topic for queue in consumer.queues}
            message.ack()
            again = await consumer.receive()
            assert again.text == "1"
            again.ack()

    play(scenario)


def test_a_lock_that_is_answered_late_does_not_begin_a_queue_whose_message_is_in_hand(
    play: Play, broker: Broker, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        is_first, is_late, answer_now, is_answered = (
            True,
            anyio.Event(),
            anyio.Event(),
            anyio.Event(),
        )
        request = Client.request

        async def delayed(
            client: Client, address: str, code: int, header: object, body: bytes = b"", **more: Any
        ) -> RemotingCommand:
            nonlocal is_first
            answer = await request(client, address, code, header, body, **more)  # type: ignore[arg-type]
            is_lock = code == RequestCode.LOCK_BATCH_MQ and topic.encode() in body
            if is_lock and b"%RETRY%" not in body and is_first:
                is_first = False
                is_late.set()
                await answer_now.wait()
                is_answered.set()
            return answer

        monkeypatch.setattr(Client, "request", delayed)
        await send(broker.url, topic, "1", "2")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **ORDERLY
        ) as consumer:
            await is_late.wait()  # the first rebalance goes on when another one is through
            await until_owner(consumer, topic)
            message = await consumer.receive()
            await consumer.seek(message.queue, 0)
            answer_now.set()
            await is_answered.wait()
            for _ in range(3):
                await consumer.rebalance()
            assert topic not in {queue.topic for queue in consumer.queues}
            message.ack()
            (await consumer.receive()).ack()

    play(scenario)


def test_a_member_that_stood_still_delivers_nothing_until_its_lock_is_renewed(
    play: Play, broker: Broker, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "1", "2")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **ORDERLY
        ) as consumer:
            message = await consumer.receive()
            stood_still_ms = REBALANCE_LOCK_MAX_LIVE_MS + 1
            monkeypatch.setattr(clock, "monotonic_ms", lambda: real() + stood_still_ms)
            locks = broker.faults.delay(RequestCode.LOCK_BATCH_MQ, seconds=0.01)
            message.ack()
            nearest = await consumer.receive()
            assert (nearest.text, locks.hits) == ("2", 1)
            nearest.ack()

    real = clock.monotonic_ms
    play(scenario)


def test_closing_under_a_thread_keeps_the_lock_of_its_queue_and_of_no_other(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    other = f"{topic}_other"
    broker.create_topic(other, queues=1)
    may_end = threading.Event()

    async def scenario() -> None:
        await send(broker.url, topic, "1")
        topics = dict.fromkeys((topic, other), "*")
        first = PushConsumer(broker.url, group=group, subscriptions=topics, **ORDERLY)
        has_begun = threading.Event()

        def handle(message: PushedMessage) -> None:
            has_begun.set()
            may_end.wait()

        async with anyio.create_task_group() as tasks:
            await first.open()
            tasks.start_soon(first.run, handle)
            await anyio.to_thread.run_sync(has_begun.wait)
            await until_owner(first, other)
            first.stop(0.0)
            await first.close()
            async with PushConsumer(
                broker.url, group=group, subscriptions=topics, **ORDERLY
            ) as second:
                await until_owner(second, other)
                for _ in range(3):
                    await second.rebalance()
                assert topic not in {queue.topic for queue in second.queues}

    try:
        play(scenario)
    finally:
        may_end.set()
