"""Automatic batches of producers (`linger_s`), in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from trocket import (
    ClientError,
    Interceptor,
    Message,
    MessageRefusedError,
    Producer,
    SendError,
    SendResult,
    SendStatus,
)
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import MemoryBroker

BATCH = RequestCode.SEND_BATCH_MESSAGE
LINGER_S = 1.0


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[tuple[MemoryBroker, Producer]]:
    async with MemoryBroker() as broker:
        await broker.create_topic("T", queues=1)
        options = {"linger_s": LINGER_S, **options}
        async with Producer(broker.url, dial=broker.dial, **options) as producer:
            await producer.queues("T")
            yield broker, producer


async def send_all(
    producer: Producer, messages: Sequence[Message]
) -> list[SendResult | ClientError]:
    """Send each message in a task; the outcomes are in the order of the messages."""
    outcomes: dict[int, SendResult | ClientError] = {}

    async def send(index: int, message: Message) -> None:
        try:
            outcomes[index] = await producer.send(message)
        except ClientError as error:
            outcomes[index] = error

    async with trio.open_nursery() as nursery:
        for index, message in enumerate(messages):
            nursery.start_soon(send, index, message)
            await trio.testing.wait_all_tasks_blocked()  # they are sent in this order
    return [outcomes[index] for index in range(len(messages))]


def is_batch_of(results: Sequence[SendResult | ClientError]) -> bool:
    return all(isinstance(each, SendResult) for each in results)


async def texts(broker: MemoryBroker) -> list[str]:
    return [message.text for message in await broker.messages("T")]


async def test_messages_that_wait_share_a_request_and_keep_their_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as (broker, producer):
        # A plain send would fail here: there is none.
        broker.faults.refuse(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)
        messages = [Message("T", str(index), tags=f"t{index}") for index in range(5)]
        begun_s = trio.current_time()
        results = await send_all(producer, messages)
        assert trio.current_time() - begun_s == pytest.approx(LINGER_S, abs=0.1)
        stored = await broker.messages("T")
        assert [message.text for message in stored] == list("01234")
        assert [message.tags for message in stored] == ["t0", "t1", "t2", "t3", "t4"]
        for message, result in zip(stored, results, strict=True):
            assert isinstance(result, SendResult), result
            assert result.status is SendStatus.SEND_OK
            assert result.message_id == message.unique_key
            assert result.queue_offset == message.queue_offset
            assert result.offset_message_id == message.offset_message_id


async def test_a_message_that_waits_alone_is_sent_as_without_linger(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as (broker, producer):
        broker.faults.refuse(BATCH, ResponseCode.MESSAGE_ILLEGAL)
        result = await producer.send(Message("T", "alone"))
        (stored,) = await broker.messages("T")
        assert (result.queue_offset, result.message_id) == (0, stored.unique_key)


@pytest.mark.parametrize(
    ("options", "body"), [({"batch_count_max": 3}, "x"), ({"batch_size_max": 2700}, "x" * 800)]
)
async def test_a_full_batch_does_not_wait(
    autojump_clock: trio.testing.MockClock, options: dict[str, Any], body: str
) -> None:
    async with opened(linger_s=3600, **options) as (broker, producer):
        begun_s = trio.current_time()
        deliveries = [await producer.send_soon(Message("T", body)) for _ in range(4)]
        for delivery in deliveries[:3]:
            await delivery
        assert trio.current_time() - begun_s < 60
        assert len(await texts(broker)) == 3
    # The end of the block sends the fourth.
    assert (await deliveries[3]).queue_offset == 3


async def test_only_messages_that_may_share_a_batch_do(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as (broker, producer):
        await broker.create_topic("Other", queues=1)
        broker.faults.refuse(BATCH, ResponseCode.MESSAGE_ILLEGAL)
        results = await send_all(
            producer,
            [
                Message("T", "plain"),
                Message("Other", "topic"),
                Message("T", "key", sharding_key="k"),
                Message("T", "wait", wait_store_ok=False),
                Message("T", "late", delay_level=1),
            ],
        )
        assert is_batch_of(results), results


async def test_a_large_message_goes_alone_and_overtakes_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as (broker, producer):
        large = "x" * 10_000
        results = await send_all(
            producer, [Message("T", body) for body in ("one", "two", large, "three", "four")]
        )
        assert is_batch_of(results), results
        stored = await broker.messages("T")
        assert [each.text for each in stored] == ["one", "two", large, "three", "four"]
        # In a batch it would not be compressed.
        assert stored[2].store_size < 1000


async def test_each_sender_has_its_own_error(autojump_clock: trio.testing.MockClock) -> None:
    async with opened(retry_times=0) as (broker, producer):
        broker.faults.refuse(BATCH, ResponseCode.SYSTEM_BUSY)
        outcomes = await send_all(
            producer,
            [
                Message("T", "one"),
                Message("T", "two"),
                Message("T", {"no": "bytes"}),
                Message("T", "three", properties={"p": "x" * 40_000}),
            ],
        )
        first, second, third, fourth = outcomes
        assert isinstance(first, SendError)
        assert isinstance(second, SendError)
        assert first is not second
        assert str(first) == str(second)
        assert first.attempts == second.attempts
        assert isinstance(third, MessageRefusedError)
        assert isinstance(fourth, MessageRefusedError)


async def test_drain_and_close_do_not_wait_for_the_rest_of_linger(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened(linger_s=3600) as (broker, producer):
        begun_s = trio.current_time()
        delivery = await producer.send_soon(Message("T", "soon"))
        await producer.drain()
        assert delivery.is_done
        results: list[SendResult] = []

        async def send() -> None:
            results.append(await producer.send(Message("T", "sent")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            await producer.close()
        assert results[0].queue_offset == 1
        assert await texts(broker) == ["soon", "sent"]
        assert trio.current_time() - begun_s < 60


async def test_a_full_buffer_sends_what_waits(autojump_clock: trio.testing.MockClock) -> None:
    async with opened(linger_s=3600, send_buffer_count_max=4) as (broker, producer):
        begun_s = trio.current_time()
        for index in range(12):
            await producer.send_soon(Message("T", str(index)))
        await producer.drain()
        assert trio.current_time() - begun_s < 60
        assert await texts(broker) == [str(index) for index in range(12)]


async def test_interceptors_see_each_message(autojump_clock: trio.testing.MockClock) -> None:
    class Recorder(Interceptor):
        def __init__(self) -> None:
            self.sent: list[tuple[str, int | None]] = []

        def after_send(
            self, message: Message, result: SendResult | None, error: Exception | None
        ) -> None:
            self.sent.append((message.body, result and result.queue_offset))

    recorder = Recorder()
    async with opened(interceptors=[recorder]) as (_, producer):
        await send_all(producer, [Message("T", "one"), Message("T", "two")])
    assert sorted(recorder.sent) == [("one", 0), ("two", 1)]


async def test_a_batch_is_sent_again_when_its_broker_is_busy(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with opened() as (broker, producer):
        broker.faults.refuse(BATCH, ResponseCode.SYSTEM_BUSY, times=1)
        results = await send_all(producer, [Message("T", "one"), Message("T", "two")])
        assert is_batch_of(results), results
        assert await texts(broker) == ["one", "two"]
