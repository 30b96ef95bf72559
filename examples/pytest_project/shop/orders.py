"""The shop itself: orders go out as messages, a warehouse ships what comes in."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass

from .messaging import TWO_HOURS, Sender

CURRENCIES = ("CHF", "EUR", "USD")


@dataclass(frozen=True)
class Order:
    """An order of `count` pieces of `item` for `cents` of `currency`."""

    number: str
    account: str
    item: str
    count: int = 1
    cents: int = 100
    currency: str = "EUR"

    def __post_init__(self) -> None:
        if self.count < 1 or self.cents < 0:
            raise ValueError(f"order {self.number}: {self.count} pieces for {self.cents} cents")
        if self.currency not in CURRENCIES:
            raise ValueError(f"order {self.number}: {self.currency} is not taken")
        if not self.number or " " in self.number:
            raise ValueError(f"{self.number!r} is not a valid order number")

    def to_bytes(self) -> bytes:
        """The body of its message."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Order:
        """The order of a message."""
        return cls(**json.loads(body))


class OrderDesk:
    """Takes orders.

    Args:
      sender: open.
      topic: of orders.
      reminders: topic of reminders of bills.
    """

    def __init__(self, sender: Sender, topic: str, reminders: str = "") -> None:
        self._sender = sender
        self._topic = topic
        self._reminders = reminders

    async def place(self, order: Order, *, in_order: bool = False) -> None:
        """Have an order shipped; `in_order`: after those of the same account before it."""
        await self._send(self._topic, order, in_order_of=order.account if in_order else None)

    async def remind(self, order: Order, delay_level: int = TWO_HOURS) -> None:
        """Send a reminder of its bill, to be delivered later."""
        await self._send(self._reminders, order, delay_level=delay_level)

    async def _send(
        self, topic: str, order: Order, *, delay_level: int = 0, in_order_of: str | None = None
    ) -> None:
        await self._sender.send(
            topic,
            order.to_bytes(),
            key=order.number,
            tag=order.currency,
            in_order_of=in_order_of,
            delay_level=delay_level,
        )


class OutOfStockError(Exception):
    """There are not enough pieces now."""


class Warehouse:
    """Ships orders, each once, however often its message comes.

    Args:
      stock: pieces by item.

    Attributes:
      shipped: numbers of orders, in the order of shipping.
    """

    def __init__(self, **stock: int) -> None:
        self.stock = Counter(stock)
        self.shipped: list[str] = []

    async def handle(self, body: bytes) -> None:
        """Ship an order.

        Raises: OutOfStockError: it must come again.
        """
        order = Order.from_bytes(body)
        if order.number in self.shipped:
            return
        if self.stock[order.item] < order.count:
            raise OutOfStockError(order.item)
        self.stock[order.item] -= order.count
        self.shipped.append(order.number)
