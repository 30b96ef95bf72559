"""Sends and consumes through a fault of the broker, and reports sends and received messages.

A step is one message of each of four keys. Sends that fail are repeated until they are
acknowledged, so every message reported as acknowledged must be received.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread

from trocket import ClientError, Message, RetryLater, Sql, TransactionState

from . import pop
from .door import settled
from .points import Points
from .stage import FIRST, Stage

KEYS = 4
STEPS_BEFORE = STEPS_AFTER = 5
STEP_PAUSE_S = 0.4
AGAIN_S = 0.2
SEND_DEADLINE_S = 90.0
RECEIVE_DEADLINE_S = 170.0
"""A connection lost by its client stays a member of the group for 120 s."""
POP_INVISIBLE_S = 10.0
TRIES = 3
"""Deliveries of a message to a consumer that rejects it, the last included."""

Send = Callable[["Through", list[Message]], Awaitable[None]]


class Through:
    """One such scenario."""

    def __init__(self, stage: Stage, points: Points, name: str, send: str, consume: str) -> None:
        self.stage = stage
        self.producer = stage.producer
        self.acknowledged: list[str] = []
        self.received: list[list[Any]] = []
        self._failed: list[str] = []
        self._points = points
        self._name = name
        self._send = send
        self._consume = consume
        self._step = 0
        self._is_over = False

    async def play(self) -> None:
        try:
            await self._play()
        finally:
            self._is_over = True
            self.stage.facts |= {
                "failed": self._failed,
                "acknowledged": self.acknowledged,
                "received": self.received,
            }

    async def _play(self) -> None:
        if self._send == "transaction":
            self.producer = await self.stage.enter(
                self.stage.door.transaction_producer(
                    self.stage.namesrv, group=self.stage.topic, timeout_s=10.0, check=fate
                )
            )
        await self._start_consumer()
        counts = [await self._send_steps(lambda: self._step >= STEPS_BEFORE)]
        await self._wait_received()
        over = self._points.reach(self._name, "ready")
        counts.append(await self._send_steps(over.is_set))
        end = self._step + STEPS_AFTER
        counts.append(await self._send_steps(lambda: self._step >= end))
        await self._wait_received()
        self.stage.facts["counts"] = counts
        await self._points.reach(self._name, "done").wait()

    # ---- sending -------------------------------------------------------------------------

    async def _send_steps(self, is_enough: Callable[[], bool]) -> int:
        before = len(self.acknowledged)
        while not is_enough():
            messages = [self._message(key) for key in range(KEYS)]
            if self._send in ("batch", "async"):
                await self._until_acknowledged(messages)
            else:
                for message in messages:
                    await self._until_acknowledged([message])
            self._step += 1
            await anyio.sleep(STEP_PAUSE_S)
        return len(self.acknowledged) - before

    def _message(self, key: int) -> Message:
        body = f"{key}/{self._step}"
        return self.stage.message(
            body,
            f"T{key}",
            f"k-{body}",
            properties={"step": str(self._step)},
            delay_level=1 + key % 2 if self._send == "delayed" else 0,
        )

    async def _until_acknowledged(self, messages: list[Message]) -> None:
        end_s = anyio.current_time() + SEND_DEADLINE_S
        while messages:
            failed: list[Message] = []
            for message, error in await self._try(messages):
                if error is None:
                    self.acknowledged.append(message.body)
                elif anyio.current_time() > end_s:
                    raise TimeoutError(f"{message.body} is not acknowledged: {error}")
                else:
                    self._failed.append(f"{message.body}: {error}"[:200])
                    failed.append(message)
            messages = failed
            if messages:
                await anyio.sleep(AGAIN_S)

    async def _try(self, messages: list[Message]) -> list[tuple[Message, ClientError | None]]:
        """Send once, as far as the program is concerned; what became of each."""
        if self._send == "async":
            deliveries = [(message, await self._soon(message)) for message in messages]
            return [(message, await _outcome(delivery)) for message, delivery in deliveries]
        try:
            if self._send == "batch":
                await self.producer.send_batch(messages)
            elif self._send == "transaction":
                await self.producer.send_in_transaction(messages[0], local_fate)
            elif self._send == "ordered":
                await self.producer.send(messages[0], selector=by_key)
            else:
                await self.producer.send(messages[0])
        except ClientError as error:
            return [(message, error) for message in messages]
        return [(message, None) for message in messages]

    async def _soon(self, message: Message) -> Any:
        try:
            return await self.producer.send_soon(message)
        except ClientError as error:
            return error

    # ---- receiving -----------------------------------------------------------------------

    async def _start_consumer(self) -> None:
        if self._consume == "pull":
            self.stage.start_soon(self._poll)
            return
        how: dict[str, Any] = {}
        if self._consume == "pop":
            await pop.set_mode(self.stage, "POP")
            how = {"mode": "pop", "pop_invisible_s": POP_INVISIBLE_S}
        consumer = self.stage.consumer(
            expression=Sql("step >= 0") if self._consume == "sql" else "*",
            is_orderly=self._consume == "orderly",
            persist_offsets_s=1.0,
            **how,
        )
        await self.stage.run(consumer, self._take, concurrency=KEYS)

    async def _take(self, message: Any) -> None:
        self.received.append(
            [
                message.text,
                message.reconsume_times,
                message.tags,
                " ".join(message.keys),
                message.properties.get("step"),
                message.topic == self.stage.topic,
                time.time_ns() // 1_000_000 - message.born_timestamp_ms,
            ]
        )
        if self._consume == "retry" and message.reconsume_times < TRIES - 1:
            raise RetryLater(1)

    async def _poll(self) -> None:
        async with self.stage.door.pull_consumer(
            self.stage.namesrv,
            group=self.stage.topic,
            consume_from_where=FIRST,
            auto_commit_s=1.0,
            timeout_s=10.0,
        ) as consumer:
            await settled(consumer.assign(await consumer.queues(self.stage.topic)))
            while not self._is_over:
                for message in await consumer.poll(timeout_s=0.5):
                    await self._take(message)

    def _missing(self) -> set[str]:
        last = TRIES - 1 if self._consume == "retry" else 0
        came = {row[0] for row in self.received if row[1] >= last}
        wanted = {
            body
            for body in self.acknowledged
            if self._send != "transaction" or FATES[_key(body)] is TransactionState.COMMIT
        }
        return wanted - came

    async def _wait_received(self) -> None:
        """Wait until all acknowledged messages are received; the harness reports missing ones."""
        with anyio.move_on_after(RECEIVE_DEADLINE_S):
            while self._missing():  # noqa: ASYNC110 - it depends on two lists
                await anyio.sleep(0.1)


FATES = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
)
"""The end of each key's transaction; the last two end on a check of the broker."""


def _key(body: str) -> int:
    return int(body.split("/")[0])


def fate(message: Any) -> TransactionState:
    return FATES[_key(message.text)]


def local_fate(message: Message) -> TransactionState:
    key = _key(message.body)
    return FATES[key] if key < 2 else TransactionState.UNKNOWN


def by_key(queues: Any, message: Message) -> Any:
    return queues[_key(message.body) % len(queues)]


async def _outcome(delivery: Any) -> ClientError | None:
    if isinstance(delivery, ClientError):
        return delivery
    try:
        if hasattr(delivery, "result"):
            await anyio.to_thread.run_sync(delivery.result)
        else:
            await delivery
    except ClientError as error:
        return error
    return None
