"""Deliveries: the receipt handles of messages that a client has received and not settled.

A server's handle may be any text. The client knows a delivery by a Receipt, whose revive queue id
is the delivery's number here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...remoting.receipt import ORDER_REVIVE_QUEUE

DELIVERIES_MAX: Final = 1_000_000
"""Messages that are received and not settled at most; the oldest are forgotten. 300 bytes each."""

SWEEP_COUNT: Final = 1_024
"""New deliveries after which those whose time is over are looked for."""

LATE_MS: Final = 60_000
"""How long the handle of a message whose time is over is kept: the server says that it is."""

FIRST_NUMBER: Final = ORDER_REVIVE_QUEUE + 1
_NUMBERS_END: Final = 0x7FFF_FFFF


class Delivery(NamedTuple):
    """A message that was received.

    Attributes:
      topic: as it was asked for, with namespace.
      message_id, handle: as the server gave them.
      attempt: which delivery it is, from 1 on.
      until_ms: when it becomes visible again, by the client's clock, ms since 1970.
      is_buried: it became a dead letter, and with that it is acknowledged.
    """

    topic: str
    message_id: str
    handle: str
    attempt: int
    until_ms: int
    is_buried: bool = False


class Deliveries:
    """The deliveries of one client, by number."""

    def __init__(self) -> None:
        self._by_number: dict[int, Delivery] = {}
        self._next = FIRST_NUMBER
        self._sweep_in = SWEEP_COUNT

    def __len__(self) -> int:
        return len(self._by_number)

    def add(self, delivery: Delivery, now_ms: int) -> int:
        """Keep a delivery, and number it."""
        self._sweep_in -= 1
        if not self._sweep_in:
            self._sweep(now_ms)
        number = self._next
        self._next = FIRST_NUMBER if number == _NUMBERS_END else number + 1
        self._by_number.pop(number, None)
        self._by_number[number] = delivery
        if len(self._by_number) > DELIVERIES_MAX:
            del self._by_number[next(iter(self._by_number))]
        return number

    def find(self, number: int) -> Delivery | None:
        """A delivery that is not settled; None: it is, or its time is over."""
        return self._by_number.get(number)

    def replace(self, number: int, delivery: Delivery) -> None:
        """Keep another state of a delivery."""
        self._by_number[number] = delivery

    def remove(self, number: int) -> None:
        """Forget a delivery, because it is settled."""
        self._by_number.pop(number, None)

    def _sweep(self, now_ms: int) -> None:
        self._sweep_in = max(SWEEP_COUNT, len(self._by_number))
        over = [
            number for number, each in self._by_number.items() if each.until_ms + LATE_MS < now_ms
        ]
        for number in over:
            del self._by_number[number]
