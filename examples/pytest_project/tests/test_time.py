"""Two hours, and retries over hours, in a moment: the broker's time is set on."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from shop.messaging import consume
from shop.orders import Order, OrderDesk, OutOfStockError, Warehouse

from trocket.testing import Broker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("level", "due"),
    [
        (2, {"seconds": 5}),
        (5, {"minutes": 1}),
        (14, {"minutes": 10}),
        (16, {"minutes": 30}),
        (17, {"hours": 1}),
        (18, {"hours": 2}),
    ],
)
async def test_a_reminder_comes_when_it_is_due(
    rocketmq_broker: Broker,
    rocketmq_topic: str,
    rocketmq_group: str,
    desk: OrderDesk,
    level: int,
    due: dict[str, float],
) -> None:
    await desk.remind(Order("n1", "alice", "bread"), level)
    assert rocketmq_broker.messages(rocketmq_topic) == []
    rocketmq_broker.advance(**due)
    warehouse = Warehouse(bread=1)
    await consume(rocketmq_broker.url, rocketmq_topic, rocketmq_group, warehouse.handle, count=1)
    assert warehouse.shipped == ["n1"]


async def test_a_consumer_that_waits_gets_it_at_once(
    rocketmq_broker: Broker, rocketmq_topic: str, rocketmq_group: str, desk: OrderDesk
) -> None:
    warehouse = Warehouse(bread=1)
    await desk.remind(Order("n1", "alice", "bread"))
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            await consume(
                rocketmq_broker.url, rocketmq_topic, rocketmq_group, warehouse.handle, count=1
            )

        tasks.start_soon(wait)
        rocketmq_broker.advance(hours=2)
    assert warehouse.shipped == ["n1"]


@pytest.mark.parametrize("hours", [0, 1, 1.9])
async def test_a_reminder_does_not_come_before(
    rocketmq_broker: Broker, rocketmq_topic: str, desk: OrderDesk, hours: float
) -> None:
    await desk.remind(Order("n1", "alice", "bread"))
    rocketmq_broker.advance(hours=hours)
    assert rocketmq_broker.messages(rocketmq_topic) == []


@pytest.mark.parametrize("failures", [1, 2, 3, 5])
async def test_what_is_out_of_stock_comes_again_until_it_is_there(
    rocketmq_broker: Broker,
    rocketmq_topic: str,
    rocketmq_group: str,
    desk: OrderDesk,
    failures: int,
) -> None:
    warehouse = Warehouse()
    tries = 0

    async def handle(body: bytes) -> None:
        nonlocal tries
        tries += 1
        if tries > failures:
            warehouse.stock["bread"] = 1
        try:
            await warehouse.handle(body)
        except OutOfStockError:
            later.set()
            raise

    later = anyio.Event()
    await desk.place(Order("n1", "alice", "bread"))
    retries = f"%RETRY%{rocketmq_group}"
    async with anyio.create_task_group() as tasks:

        async def work() -> None:
            await consume(
                rocketmq_broker.url, rocketmq_topic, rocketmq_group, handle, count=failures + 1
            )

        tasks.start_soon(work)
        for number in range(failures):
            await later.wait()
            later = anyio.Event()
            while len(rocketmq_broker.messages(retries)) <= number:
                rocketmq_broker.advance(minutes=10)  # the broker has it a moment after the failure
                await anyio.lowlevel.checkpoint()
    assert (tries, warehouse.shipped) == (failures + 1, ["n1"])
