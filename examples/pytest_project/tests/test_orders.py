"""Orders go through."""

from __future__ import annotations

import pytest
from shop.messaging import consume
from shop.orders import CURRENCIES, Order, OrderDesk, Warehouse

from trocket.testing import Broker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("item", ["bread", "Käse", "🍏", "x" * 5_000])
@pytest.mark.parametrize("currency", CURRENCIES)
async def test_an_order_is_shipped(
    rocketmq_broker: Broker,
    rocketmq_topic: str,
    rocketmq_group: str,
    desk: OrderDesk,
    item: str,
    currency: str,
) -> None:
    await desk.place(Order("n1", "alice", item, currency=currency))
    warehouse = Warehouse(**{item: 1})
    await consume(rocketmq_broker.url, rocketmq_topic, rocketmq_group, warehouse.handle, count=1)
    assert warehouse.shipped == ["n1"]
    assert rocketmq_broker.lag(rocketmq_group, rocketmq_topic) == 0


@pytest.mark.parametrize("wanted", ["CHF", "EUR", "USD", "CHF || EUR", "EUR || USD"])
async def test_a_warehouse_gets_only_its_currencies(
    rocketmq_broker: Broker,
    rocketmq_topic: str,
    rocketmq_group: str,
    desk: OrderDesk,
    wanted: str,
) -> None:
    for currency in CURRENCIES:
        await desk.place(Order(currency, "alice", "bread", currency=currency))
    warehouse = Warehouse(bread=3)
    await consume(
        rocketmq_broker.url,
        rocketmq_topic,
        rocketmq_group,
        warehouse.handle,
        tags=wanted,
        count=len(wanted.split("||")),
    )
    assert sorted(warehouse.shipped) == wanted.split(" || ")


@pytest.mark.parametrize("accounts", [1, 2, 5])
async def test_orders_of_an_account_stay_in_order(
    rocketmq_broker: Broker, rocketmq_topic: str, desk: OrderDesk, accounts: int
) -> None:
    for number in range(10):
        account = f"account-{number % accounts}"
        await desk.place(Order(f"{account}.{number}", account, "bread"), in_order=True)
    queues: dict[str, set[int]] = {}
    for message in rocketmq_broker.messages(rocketmq_topic):
        account = Order.from_bytes(message.body).account
        queues.setdefault(account, set()).add(message.queue_id)
    assert {len(used) for used in queues.values()} == {1}
    assert len(queues) == accounts


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"cents": -1},
        {"currency": "GBP"},
        {"number": ""},
        {"number": "two words"},
    ],
)
async def test_a_wrong_order_never_leaves(
    rocketmq_broker: Broker, rocketmq_topic: str, desk: OrderDesk, wrong: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="order"):
        await desk.place(Order(**{"number": "n1", "account": "a", "item": "bread"} | wrong))
    assert rocketmq_broker.messages(rocketmq_topic) == []


@pytest.mark.parametrize("tag", CURRENCIES)
async def test_a_message_says_what_it_is(
    rocketmq_broker: Broker, rocketmq_topic: str, desk: OrderDesk, tag: str
) -> None:
    await desk.place(Order("n1", "alice", "bread", currency=tag))
    (message,) = rocketmq_broker.messages(rocketmq_topic)
    assert (message.keys, message.tags) == ("n1", tag)
