"""A held pull kept its whole request: 60 pulls with bodies of 15 MiB took 953 MiB of the broker.

A pull has no body in RocketMQ's clients, but a frame may have one, and it was kept for up to 30
minutes. What a held pull selects messages by was not bounded either.
"""

from __future__ import annotations

import tracemalloc

import pytest
import trio
import trio.testing

from trocket.broker.filters.subscription import SUBSCRIPTION_LENGTH_MAX
from trocket.broker.waiting.pull_request_hold import CHECK_INTERVAL_S
from trocket.common.connection_policy import BUDGET_MIN
from trocket.remoting.codec import RemotingCommand

from ..kit import Broker, Client, embedded_broker, pull_fields, send_fields

MIB = 1 << 20
SEND_MESSAGE_V2, PULL_MESSAGE = 310, 11
PULL_NOT_FOUND = 19
PULLS = 20
BODY = bytes(15 * MIB)


def pull(**more: object) -> RemotingCommand:
    """A pull of a queue that has one message, from behind it: it is held."""
    fields = pull_fields(queueOffset=1, suspendTimeoutMillis=600_000, **more)
    return RemotingCommand(PULL_MESSAGE, {name: str(value) for name, value in fields.items()})


def many_tags(number: int) -> str:
    tags = "||".join(f"{number * 5_000 + tag:x}abc" for tag in range(3_000))
    assert len(tags) <= SUBSCRIPTION_LENGTH_MAX
    return tags


async def with_topic(broker: Broker) -> Client:
    client = await broker.connect()
    assert (await client.ask(SEND_MESSAGE_V2, send_fields(), b"first")).code == 0
    return client


@pytest.mark.slow
async def test_held_pulls_keep_no_bodies(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_broker() as broker:
        producer = await with_topic(broker)
        stranger = await broker.connect()
        tracemalloc.start()
        try:
            opaques = []
            for _ in range(PULLS):
                command = pull()
                command.body = BODY
                opaques.append(await stranger.send(command))
                await trio.testing.wait_all_tasks_blocked()
            assert tracemalloc.get_traced_memory()[0] < 2 * len(BODY)  # the stream keeps one
        finally:
            tracemalloc.stop()
        assert (await producer.ask(SEND_MESSAGE_V2, send_fields(), b"second")).code == 0
        for opaque in opaques:
            found = await stranger.answer(opaque)
            assert (found.code, found.opaque) == (0, opaque)
            assert b"second" in found.body


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_a_held_pull_is_answered_as_its_request_was_written(
    autojump_clock: trio.testing.MockClock, serialize_type: int
) -> None:
    async with embedded_broker() as broker:
        producer = await with_topic(broker)
        consumer = await broker.connect()
        command = pull()
        command.serialize_type = serialize_type
        opaque = await consumer.send(command)
        await trio.testing.wait_all_tasks_blocked()
        assert consumer.unasked == []
        assert (await producer.ask(SEND_MESSAGE_V2, send_fields(), b"second")).code == 0
        found = await consumer.answer(opaque)
        assert (found.opaque, found.serialize_type, found.code) == (opaque, serialize_type, 0)


@pytest.mark.slow
async def test_held_subscriptions_stay_below_their_share(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each pull brings other tags, as many as one may have."""
    async with embedded_broker(remoting_bytes_max=BUDGET_MIN) as broker:
        producer = await with_topic(broker)
        assert broker.controller.server is not None
        share = broker.controller.server.memory.held_requests
        stranger = await broker.connect()
        for number in range(120):
            await stranger.send(pull(subscription=many_tags(number)))
            await trio.testing.wait_all_tasks_blocked()
            assert share.used <= share.limit
        assert any(
            "held requests" in line and "remotingBytesMax" in line for line in caplog.messages
        )
        assert share.used > share.limit // 2
        # An honest consumer's pull is held again when the stranger, who holds most, is closed.
        consumer = await broker.connect()
        refused = await consumer.ask(PULL_MESSAGE, pull(subscription=many_tags(-1)).ext_fields)
        assert refused.code == PULL_NOT_FOUND  # as if its time were over
        await trio.sleep(2)
        opaque = await consumer.send(pull())
        await trio.testing.wait_all_tasks_blocked()
        assert consumer.unasked == []
        assert (await producer.ask(SEND_MESSAGE_V2, send_fields(), b"second")).code == 0
        assert (await consumer.answer(opaque)).code == 0
        await trio.sleep(CHECK_INTERVAL_S + 1)
        assert share.used == 0


async def test_pulls_that_share_tags_are_counted_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tags = "||".join(f"tag{number}" for number in range(1000))
    async with embedded_broker() as broker:
        await with_topic(broker)
        assert broker.controller.server is not None
        share = broker.controller.server.memory.held_requests
        clients = [await broker.connect() for _ in range(3)]
        await clients[0].send(pull(subscription=tags))
        await trio.testing.wait_all_tasks_blocked()
        first = share.used
        for client in clients[1:]:
            await client.send(pull(subscription=tags))
            await trio.testing.wait_all_tasks_blocked()
        assert share.used - first < first // 10
        await clients[0].stream.aclose()
        await trio.sleep(CHECK_INTERVAL_S + 1)
        assert share.used > first // 2  # the others' pulls still keep the tags
        for client in clients[1:]:
            await client.stream.aclose()
        await trio.sleep(CHECK_INTERVAL_S + 1)
        assert share.used == 0
