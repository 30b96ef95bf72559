"""Pull consumers against an embedded broker, in both loops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from math import inf

import pytest
import trio
import trio.testing

from trocket import (
    Client,
    ClosedError,
    ConfigurationError,
    ConsumeFromWhere,
    MessageQueue,
    PullConsumer,
    PullConsumerOptions,
    PullStatus,
    Sql,
)
from trocket.testing import Broker

from .conftest import Play
from .outages import know, two_brokers
from .scripted_broker import URL
from .support import poll, send_numbers

FIRST = PullConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


@pytest.mark.slow
def test_positions_are_the_programs(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 10)
        async with PullConsumer(broker.url, group=group, auto_commit=False, **FIRST) as consumer:
            (queue,) = await consumer.queues(topic)
            consumer.assign([queue])
            assert await poll(consumer, 10) == [str(n) for n in range(10)]
            # A young queue: the broker says 0 of a group that never committed.
            assert (consumer.position(queue), await consumer.committed(queue)) == (10, 0)
            consumer.seek(queue, 7)
            assert consumer.position(queue) == 7
            assert await poll(consumer, 3) == ["7", "8", "9"]
            await consumer.commit()
            assert await consumer.committed(queue) == 10
            await consumer.seek_to_begin(queue)
            assert len(await consumer.poll(4)) == 4
            await consumer.seek_to_committed(queue)
            assert await consumer.poll(timeout_s=0.05) == []
            await consumer.seek_to_time(queue, 0)
            assert await poll(consumer, 10) == [str(n) for n in range(10)]
            await consumer.seek_to_end(queue)
            assert await consumer.poll(timeout_s=0.05) == []
            assert (await consumer.begin_offset(queue), await consumer.end_offset(queue)) == (0, 10)

    play(scenario)


@pytest.mark.slow
def test_a_paused_queue_gives_nothing(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 3)
        async with PullConsumer(broker.url, group=group, **FIRST) as consumer:
            queues = await consumer.queues(topic)
            consumer.assign(queues)
            consumer.pause(queues)
            assert await consumer.poll(timeout_s=0.1) == []
            consumer.resume(queues)
            assert await poll(consumer, 3) == ["0", "1", "2"]
            consumer.assign([])
            assert consumer.assignment == []
            for verb in (consumer.position, lambda q: consumer.seek(q, 0)):
                with pytest.raises(ConfigurationError, match="not assigned"):
                    verb(queues[0])

    play(scenario)


def test_leaving_commits_what_was_polled(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 5)
        async with PullConsumer(broker.url, group=group, **FIRST) as consumer:
            consumer.assign(await consumer.queues(topic))
            assert len(await consumer.poll(2)) == 2
        assert broker.lag(group, topic) == 3
        async with PullConsumer(broker.url, group=group, **FIRST) as consumer:
            consumer.assign(await consumer.queues(topic))
            assert await poll(consumer, 3) == ["2", "3", "4"]

    play(scenario)


@pytest.mark.parametrize(("selector", "found"), [("b", "13579"), (Sql("n < 3"), "012")])
def test_what_is_not_wanted_is_left_out(
    play: Play, broker: Broker, topic: str, group: str, selector: object, found: str
) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 10)
        async with PullConsumer(broker.url, group=group, **FIRST) as consumer:
            (queue,) = await consumer.queues(topic)
            pulled = await consumer.pull(queue, 0, selector=selector)  # type: ignore[arg-type]
            assert [m.text for m in pulled.messages] == list(found)
            consumer.assign([queue], selector)  # type: ignore[arg-type]
            assert await poll(consumer, len(found)) == list(found)

    play(scenario)


def test_one_pull_reports_the_range_of_the_queue(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 3)
        async with PullConsumer(broker.url, group=group) as consumer:
            (queue,) = await consumer.queues(topic)
            pulled = await consumer.pull(queue, 1, count=1)
            assert (pulled.status, pulled.next_offset) == (PullStatus.FOUND, 2)
            assert (pulled.min_offset, pulled.max_offset) == (0, 3)
            assert [m.text for m in pulled.messages] == ["1"]
            assert (await consumer.pull(queue, 3)).status is PullStatus.NO_NEW_MESSAGE
            beyond = await consumer.pull(queue, 9)
            assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 3)

    play(scenario)


@pytest.mark.parametrize(
    "ask",
    [
        lambda consumer, queue: consumer.begin_offset(queue),
        lambda consumer, queue: consumer.end_offset(queue),
        lambda consumer, queue: consumer.offset_at(queue, 0),
        lambda consumer, queue: consumer.committed(queue),
        lambda consumer, queue: consumer.pull(queue, 0),
        lambda consumer, queue: consumer.commit({queue: 1}),
    ],
    ids=["begin_offset", "end_offset", "offset_at", "committed", "pull", "commit"],
)
def test_a_queue_that_a_program_kept_needs_no_look_up_of_its_topic(
    play: Play,
    broker: Broker,
    topic: str,
    group: str,
    caplog: pytest.LogCaptureFixture,
    ask: Callable[[PullConsumer, MessageQueue], Awaitable[object]],
) -> None:
    async def scenario() -> None:
        await send_numbers(broker.url, topic, 1)
        async with PullConsumer(broker.url, group=group) as consumer:
            (queue,) = await consumer.queues(topic)
        async with PullConsumer(broker.url, group=group) as fresh:
            await ask(fresh, queue)

    play(scenario)
    assert not caplog.records


@pytest.mark.parametrize("is_shared", [False, True])
async def test_closing_ends_a_poll_that_waits_without_limit(
    autojump_clock: trio.testing.MockClock, is_shared: bool
) -> None:
    async with two_brokers() as brokers, AsyncExitStack() as stack:
        client = Client(URL, dial=brokers.dial)
        if is_shared:
            await stack.enter_async_context(client)
            consumer = PullConsumer(client, group="g")
        else:
            consumer = PullConsumer(URL, group="g", dial=brokers.dial)
        await consumer.open()
        consumer.subscribe("T")

        async def poll() -> None:
            with pytest.raises(ClosedError):
                await consumer.poll(timeout_s=inf)

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll)
                await trio.testing.wait_all_tasks_blocked()
                await consumer.close()
            await poll()


async def test_a_topic_may_be_left_before_its_first_pull(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers() as brokers:
        consumer = PullConsumer(URL, group="g", dial=brokers.dial, **FIRST)
        know(brokers, consumer.client.client_id)
        async with consumer:
            consumer.subscribe("T")
            assert await consumer.poll()
            consumer.seek(consumer.assignment[0], 5)
            consumer.unsubscribe("T")
            await trio.testing.wait_all_tasks_blocked()
    assert not caplog.records
