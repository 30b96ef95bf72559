"""Tests of a user, with async fixtures of pytest-asyncio, anyio's plugin and pytest-trio."""

from __future__ import annotations

import pytest
import pytest_asyncio
import pytest_trio

from trocket import ConsumeFromWhere, Message, Producer, PushConsumer

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


async def check(producer, consumer, topic):
    await producer.send(Message(topic, "order"))
    message = await consumer.receive()
    assert message.text == "order"
    message.ack()


def make_consumer(broker, group, topic):
    return PushConsumer(
        broker.url, group=group, subscriptions={topic: "*"}, consume_from_where=FIRST
    )


# pytest-asyncio: set-up and tear-down may be in different tasks of one loop


@pytest_asyncio.fixture
async def opened_producer(rocketmq_broker):
    producer = await Producer(rocketmq_broker.url).open()
    yield producer
    await producer.close()


@pytest_asyncio.fixture
async def opened_consumer(rocketmq_broker, rocketmq_group, rocketmq_topic):
    consumer = await make_consumer(rocketmq_broker, rocketmq_group, rocketmq_topic).open()
    yield consumer
    await consumer.close()
    assert rocketmq_broker.lag(rocketmq_group, rocketmq_topic) == 0


@pytest_asyncio.fixture
async def with_producer(rocketmq_broker):
    async with Producer(rocketmq_broker.url) as producer:
        yield producer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_producer(rocketmq_broker):
    producer = await Producer(rocketmq_broker.url).open()
    yield producer
    await producer.close()


@pytest.mark.asyncio
async def test_open_and_close(opened_producer, opened_consumer, rocketmq_topic):
    await check(opened_producer, opened_consumer, rocketmq_topic)


@pytest.mark.asyncio
async def test_async_with(with_producer, opened_consumer, rocketmq_topic):
    await check(with_producer, opened_consumer, rocketmq_topic)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("number", [1, 2])
async def test_a_producer_of_the_module(module_producer, rocketmq_broker, rocketmq_topic, number):
    await module_producer.send(Message(rocketmq_topic, str(number)))
    assert [each.text for each in rocketmq_broker.messages(rocketmq_topic)] == [str(number)]


# anyio's plugin, under both loops


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
async def anyio_producer(anyio_backend, rocketmq_broker):
    async with Producer(rocketmq_broker.url) as producer:
        yield producer


@pytest.fixture
async def anyio_consumer(anyio_backend, rocketmq_broker, rocketmq_group, rocketmq_topic):
    consumer = await make_consumer(rocketmq_broker, rocketmq_group, rocketmq_topic).open()
    yield consumer
    await consumer.close()


@pytest.mark.anyio
async def test_anyio(anyio_producer, anyio_consumer, rocketmq_topic):
    await check(anyio_producer, anyio_consumer, rocketmq_topic)


# pytest-trio


@pytest_trio.trio_fixture
async def trio_producer(rocketmq_broker):
    async with Producer(rocketmq_broker.url) as producer:
        yield producer


@pytest_trio.trio_fixture
async def trio_consumer(rocketmq_broker, rocketmq_group, rocketmq_topic):
    consumer = await make_consumer(rocketmq_broker, rocketmq_group, rocketmq_topic).open()
    yield consumer
    await consumer.close()


@pytest.mark.trio
async def test_trio(trio_producer, trio_consumer, rocketmq_topic):
    await check(trio_producer, trio_consumer, rocketmq_topic)
