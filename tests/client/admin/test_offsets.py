"""Ranges of queues, offsets of groups, and resetting them."""

from __future__ import annotations

from typing import Any

import pytest

from trocket.client import (
    Admin,
    ConfigurationError,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from trocket.testing import Broker

from .conftest import Do, is_there, run, send, until


def test_offsets_has_the_range_of_each_queue(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 2)
        async with Producer(admin.client) as producer:
            queues = await producer.queues("T")
            sent = [await producer.send(Message("T", "x"), queue=queues[0]) for _ in range(3)]
        first, second = await admin.offsets("T")
        assert (first.begin, first.end, first.count) == (0, 3, 3)
        assert first.last_store_ms is not None
        stored = await admin.message(sent[-1].offset_message_id)
        assert stored.store_timestamp_ms == first.last_store_ms
        assert (second.begin, second.end, second.last_store_ms) == (0, 0, None)

    do(verb)


def test_the_lag_of_a_group_is_what_it_has_not_consumed(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await admin.create_group("g")
        await send(admin, "T", *"abcde")
        whole = await admin.lag("g", "T")
        assert (whole.queues[0].committed, whole.queues[0].lag, whole.total) == (None, 5, 5)
        queue = MessageQueue("T", "broker-a", 0)
        async with PullConsumer(admin.client, group="g") as consumer:
            await consumer.commit({queue: 3})
        part = await admin.lag("g")
        assert part.by_topic == {"T": 2}
        assert (part.queues[0].committed, part.queues[0].end) == (3, 5)

    do(verb)


def test_the_topics_of_a_group_are_those_it_subscribes_to_and_its_retry_topic(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        async with PushConsumer(admin.client, group="g", subscriptions={"T": "*"}):
            lag = await admin.lag("g")
            assert set(lag.by_topic) == {"T", "%RETRY%g"}

    do_once(verb)


def test_offsets_of_a_group_at_rest_are_set_to_wherever_is_asked(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await admin.create_group("g")
        await send(admin, "T", *"ab")
        # So that the next two are stored in another millisecond.
        begin_ms = (await admin.offsets("T"))[0].last_store_ms
        assert begin_ms is not None
        await until(lambda: _is_past(admin, begin_ms))
        (third, _) = await send(admin, "T", *"cd")
        stored = await admin.message(third.offset_message_id)

        async def reset(**options: Any) -> tuple[int | None, int]:
            (done,) = await admin.reset_offset("g", "T", **options)
            committed = (await admin.lag("g", "T")).queues[0].committed
            assert committed == (done.before if options.get("dry_run") else done.after)
            return done.before, done.after

        assert await reset(to="end", dry_run=True) == (None, 4)
        assert await reset(to="end") == (None, 4)
        assert await reset(to="begin") == (4, 0)
        assert await reset(timestamp_ms=stored.store_timestamp_ms) == (0, 2)
        assert await reset(offsets={MessageQueue("T", "broker-a", 0): 3}) == (2, 3)

    do(verb)


async def _is_past(admin: Admin, then_ms: int) -> bool:
    return admin.client.wall_ms() > then_ms


def test_running_consumers_get_the_reset_offsets(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await send(admin, "T", *"abc")
        await admin.create_group("g")
        await admin.reset_offset("g", "T", to="end")
        async with PushConsumer(admin.client, group="g", subscriptions={"T": "*"}) as consumer:
            queue = MessageQueue("T", "broker-a", 0)

            async def has_the_queue() -> bool:
                return queue in consumer.queues

            await until(has_the_queue)
            (moved,) = await admin.reset_offset("g", "T", offsets={queue: 1})
            assert (moved.before, moved.after) == (3, 1)
            assert [(await consumer.receive()).text for _ in range(2)] == ["b", "c"]
            assert [r.after for r in await admin.reset_offset("g", "T", to="begin")] == [0]
            assert [(await consumer.receive()).text for _ in range(3)] == ["a", "b", "c"]

    do(verb)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "give one of"),
        ({"to": "begin", "timestamp_ms": 1}, "give one of"),
        ({"to": "middle"}, "'begin' or 'end'"),
        ({"timestamp_ms": -1}, "not negative"),
        ({"offsets": {MessageQueue("T", "broker-a", 7): 0}}, "no queue 7 on broker-a"),
        ({"offsets": {MessageQueue("T", "broker-a", 0): -1}}, "not negative"),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused(
    do_once: Do, options: dict[str, Any], text: str
) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        with pytest.raises(ConfigurationError, match=text):
            await admin.reset_offset("g", "T", **options)

    do_once(verb)


def test_single_offsets_need_a_broker_that_resets_or_no_consumers() -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await send(admin, "T", *"abc")
        await admin.create_group("g")
        async with PushConsumer(admin.client, group="g", subscriptions={"T": "*"}) as consumer:
            await until(lambda: is_there(consumer))
            with pytest.raises(ConfigurationError, match="stop them first"):
                await admin.reset_offset("g", "T", offsets={MessageQueue("T", "broker-a", 0): 0})

    with Broker(config={"useServerSideResetOffset": "false"}) as broker:
        run(broker, "trio", verb)
