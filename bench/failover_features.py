"""Features under failover: delayed messages, transactions, pops and retries, at a low rate.

Each feature has a topic to itself, whose messages are numbers. Order is not promised, and a message
may come more than once; what is promised is in `Promise`.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from trocket.client import (
    ClientError,
    Message,
    Producer,
    PushConsumer,
    SendStatus,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)

DELAYS, TRANSACTIONS, POPS, RETRIES = "Delays", "Transactions", "Pops", "Retries"
FEATURES: Final = (DELAYS, TRANSACTIONS, POPS, RETRIES)
PREFIX: Final = "Failover"
"""Of the topics, with the name of the feature behind."""
DELAY_LEVEL: Final = 2
LEVEL_S: Final = 5.0
"""Delay of DELAY_LEVEL in RocketMQ's table."""
TIMER_S: Final = 4.0
"""Delay of the other half of the delayed messages, by the timer wheel."""
EARLY_S: Final = 1.0
"""A message may be this much early: brokers count in seconds and have their own clock's reading."""
INVISIBLE_S: Final = 15.0
RETRY_S: Final = 0.1
EVERY_S: Final = 0.1
"""Between two messages of a feature."""
SHOWN_MAX: Final = 5
KEYS: Final = {"transactionTimeOut": 2_000, "transactionCheckInterval": 2_000}
"""Of broker.conf: a transaction without an outcome is asked for soon."""


@dataclass
class Promise:
    """What one feature promised and gave.

    Attributes:
      confirmed: numbers that must come; `times` times each, at least.
      forbidden: numbers that must not come: transactions that were rolled back.
      came: how often each number came.
      early: numbers that came before they were due.
      due_s: when a number is due, monotonic seconds.
    """

    feature: str
    times: int = 1
    confirmed: set[int] = field(default_factory=set)
    forbidden: set[int] = field(default_factory=set)
    came: Counter[int] = field(default_factory=Counter)
    early: set[int] = field(default_factory=set)
    due_s: dict[int, float] = field(default_factory=dict)

    def got(self, number: int) -> None:
        """A consumer was given a number."""
        self.came[number] += 1
        if time.monotonic() < self.due_s.get(number, 0.0) - EARLY_S:
            self.early.add(number)

    @property
    def missing(self) -> set[int]:
        """What was confirmed and did not come often enough."""
        return {number for number in self.confirmed if self.came[number] < self.times}

    @property
    def wrong(self) -> set[int]:
        """What came and must not."""
        return {number for number in self.forbidden if self.came[number]}

    def outcome(self) -> dict[str, object]:
        """Figures for a report."""
        return {
            "confirmed": len(self.confirmed),
            "missing": len(self.missing),
            "wrong": len(self.wrong),
            "early": len(self.early),
            "again": sum(count - self.times for count in self.came.values() if count > self.times),
            "examples": [
                f"{number}, {self.came[number]} times"
                for number in sorted(self.missing | self.wrong | self.early)[:SHOWN_MAX]
            ],
        }

    @property
    def is_kept(self) -> bool:
        return not (self.missing or self.wrong or self.early)


class Features:
    """The clients of all features, in the loop of the caller.

    Args:
      namesrv_address: HOST:PORT.
      sends: whether more is sent.
      on_error: is given each error of a client.

    Attributes:
      promises: by feature.
    """

    def __init__(
        self,
        namesrv_address: str,
        sends: Callable[[], bool],
        on_error: Callable[[ClientError], None],
    ) -> None:
        self._namesrv = namesrv_address
        self._sends = sends
        self._on_error = on_error
        self._numbers = dict.fromkeys(FEATURES, 0)
        self.promises = {name: Promise(name, 2 if name == RETRIES else 1) for name in FEATURES}

    @property
    def is_settled(self) -> bool:
        """Whether nothing that was promised is missing."""
        return not any(each.missing for each in self.promises.values())

    async def run(self) -> None:
        """Send and consume until it is cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, DELAYS, self._delayed)
            nursery.start_soon(self._send, POPS, self._plain)
            nursery.start_soon(self._send, RETRIES, self._plain)
            nursery.start_soon(self._transactions)
            nursery.start_soon(self._push, DELAYS)
            nursery.start_soon(self._push, TRANSACTIONS)
            nursery.start_soon(self._push, RETRIES)
            nursery.start_soon(self._pop)

    # ---- sending -------------------------------------------------------------------------

    def _next(self, feature: str) -> int:
        self._numbers[feature] += 1
        return self._numbers[feature]

    async def _send(
        self, feature: str, send: Callable[[Producer, str, int], Awaitable[bool]]
    ) -> None:
        async with Producer(self._namesrv, group=f"send-{feature}") as producer:
            while True:
                await trio.sleep(EVERY_S)
                if not self._sends():
                    continue
                number = self._next(feature)
                try:
                    if await send(producer, PREFIX + feature, number):
                        self.promises[feature].confirmed.add(number)
                except ClientError as error:
                    self._on_error(error)

    async def _plain(self, producer: Producer, topic: str, number: int) -> bool:
        result = await producer.send(Message(topic, str(number)))
        return result.status is SendStatus.SEND_OK

    async def _delayed(self, producer: Producer, topic: str, number: int) -> bool:
        if number % 2:
            delay_s, message = LEVEL_S, Message(topic, str(number), delay_level=DELAY_LEVEL)
        else:
            delay_s, message = TIMER_S, Message(topic, str(number), delay_s=TIMER_S)
        self.promises[DELAYS].due_s[number] = time.monotonic() + delay_s
        result = await producer.send(message)
        return result.status is SendStatus.SEND_OK

    async def _transactions(self) -> None:
        """By number: rolled back, left to the check, or committed."""
        promise = self.promises[TRANSACTIONS]

        def outcome(number: int) -> TransactionState:
            return TransactionState.ROLLBACK if number % 4 == 0 else TransactionState.COMMIT

        async with TransactionProducer(
            self._namesrv,
            group=f"send-{TRANSACTIONS}",
            check=lambda message: outcome(int(message.body)),
        ) as producer:
            while True:
                await trio.sleep(EVERY_S)
                if not self._sends():
                    continue
                number = self._next(TRANSACTIONS)
                state = TransactionState.UNKNOWN if number % 4 == 1 else outcome(number)
                try:
                    done = await producer.send_in_transaction(
                        Message(PREFIX + TRANSACTIONS, str(number)),
                        lambda message, state=state: state,  # type: ignore[misc]
                    )
                except ClientError as error:
                    self._on_error(error)
                    continue
                if outcome(number) is TransactionState.ROLLBACK:
                    promise.forbidden.add(number)
                elif done.result.status is SendStatus.SEND_OK:
                    promise.confirmed.add(number)

    # ---- consuming -----------------------------------------------------------------------

    async def _push(self, feature: str) -> None:
        promise = self.promises[feature]
        async with PushConsumer(
            self._namesrv,
            group=f"take-{feature}",
            subscriptions={PREFIX + feature: "*"},
            consume_from_where="first",
        ) as consumer:
            async for message in consumer.messages(auto_ack=False):
                promise.got(int(message.body))
                if feature == RETRIES and not message.reconsume_times:
                    with contextlib.suppress(ClientError):
                        await message.retry(delay_level=1)
                else:
                    message.ack()

    async def _pop(self) -> None:
        promise = self.promises[POPS]
        async with SimpleConsumer(
            self._namesrv,
            group=f"take-{POPS}",
            subscriptions={PREFIX + POPS: "*"},
            consume_from_where="first",
        ) as consumer:
            while True:
                try:
                    for message in await consumer.receive(invisible_s=INVISIBLE_S, wait_s=1.0):
                        promise.got(int(message.body))
                        await consumer.ack(message)
                except ClientError as error:
                    self._on_error(error)
                    await trio.sleep(RETRY_S)
