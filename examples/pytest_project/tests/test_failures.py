"""The shop when the broker fails: busy, full, disconnected or restarted."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from shop.messaging import NotSentError, consume
from shop.orders import Order, OrderDesk, Warehouse

from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

pytestmark = pytest.mark.anyio

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.mark.parametrize("times", [1, 2])
async def test_a_busy_broker_is_asked_again(
    rocketmq_broker: Broker, rocketmq_topic: str, desk: OrderDesk, times: int
) -> None:
    fault = rocketmq_broker.faults.refuse(SEND, ResponseCode.SYSTEM_BUSY, "busy", times=times)
    await desk.place(Order("n1", "alice", "bread"))
    assert fault.hits == times
    assert len(rocketmq_broker.messages(rocketmq_topic)) == 1


async def test_a_broker_that_stays_busy_is_given_up(
    rocketmq_broker: Broker, rocketmq_topic: str, desk: OrderDesk
) -> None:
    rocketmq_broker.faults.refuse(SEND, times=None)
    with pytest.raises(NotSentError):
        await desk.place(Order("n1", "alice", "bread"))
    assert rocketmq_broker.messages(rocketmq_topic) == []


async def test_an_order_whose_answer_was_lost_is_shipped_once(
    rocketmq_broker: Broker, rocketmq_topic: str, rocketmq_group: str, desk: OrderDesk
) -> None:
    rocketmq_broker.faults.drop(SEND)
    order = Order("n1", "alice", "bread")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.place, order)  # it is stored, but the answer is lost
        while not rocketmq_broker.messages(rocketmq_topic):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()  # the desk gives up, and places the order again
    await desk.place(order)
    assert len(rocketmq_broker.messages(rocketmq_topic)) == 2
    warehouse = Warehouse(bread=2)
    await consume(rocketmq_broker.url, rocketmq_topic, rocketmq_group, warehouse.handle, count=2)
    assert warehouse.shipped == ["n1"]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_lost_connection_is_made_anew(
    rocketmq_broker: Broker, rocketmq_topic: str, desk: OrderDesk, times: int
) -> None:
    rocketmq_broker.faults.disconnect(SEND, times=times)
    await desk.place(Order("n1", "alice", "bread"))
    assert len(rocketmq_broker.messages(rocketmq_topic)) == 1


async def test_a_full_disk_is_an_error_until_there_is_room(
    rocketmq_broker: Broker, rocketmq_topic: str, desk: OrderDesk
) -> None:
    rocketmq_broker.faults.disk_full()
    with pytest.raises(NotSentError, match="full"):
        await desk.place(Order("n1", "alice", "bread"))
    rocketmq_broker.faults.disk_ok()
    await desk.place(Order("n2", "alice", "bread"))
    assert [m.keys for m in rocketmq_broker.messages(rocketmq_topic)] == ["n2"]


async def test_orders_are_there_after_a_restart(
    rocketmq_broker: Broker, rocketmq_topic: str, rocketmq_group: str, desk: OrderDesk
) -> None:
    await desk.place(Order("n1", "alice", "bread"))
    rocketmq_broker.restart()
    await desk.place(Order("n2", "alice", "bread"))
    warehouse = Warehouse(bread=2)
    await consume(rocketmq_broker.url, rocketmq_topic, rocketmq_group, warehouse.handle, count=2)
    assert sorted(warehouse.shipped) == ["n1", "n2"]
