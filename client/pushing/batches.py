"""Batches of messages for handlers: each of one kind, until it is full or its time is over.

Java counterpart: consumeMessageBatchMaxSize of ConsumeMessageConcurrentlyService, without linger.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf
from typing import Generic, NamedTuple, TypeVar

import anyio

from ..connection.client import Client
from ..errors import ClosedError
from .consume_result_service import ConsumeResultService
from .handler_check import Handlers
from .pushed_message import PushedMessage
from .ready_messages import ReadyMessages

T = TypeVar("T")


class Batches(Generic[T]):
    """The batches that are not handed out yet: at most one of each key, none of them empty.

    Args:
      size_max: number of items of a full batch, >= 1.
      linger_s: seconds from the first item on, after which a batch is handed out as it is.
    """

    def __init__(self, size_max: int, linger_s: float) -> None:
        self.size_max: int = size_max
        self._linger_s = linger_s
        # In the order of their times.
        self._open: dict[Hashable, _Batch[T]] = {}

    def add(self, key: Hashable, item: T, now_s: float) -> list[T] | None:
        """Add an item to the batch of its key; returns the batch if it is full now."""
        batch = self._open.get(key)
        if batch is None:
            batch = self._open[key] = _Batch([], now_s + self._linger_s)
        batch.items.append(item)
        if len(batch.items) < self.size_max:
            return None
        del self._open[key]
        return batch.items

    def take_due(self, now_s: float) -> list[T] | None:
        """Take a batch whose time is over; None if there is none."""
        for key, batch in self._open.items():
            if batch.due_s > now_s:
                return None
            del self._open[key]
            return batch.items
        return None

    @property
    def due_s(self) -> float | None:
        """When the next batch is due; None if there is none."""
        return next((batch.due_s for batch in self._open.values()), None)

    @property
    def last_items(self) -> list[tuple[Hashable, T]]:
        """The last item of each batch, with its key."""
        return [(key, batch.items[-1]) for key, batch in self._open.items()]

    def take_all(self) -> list[T]:
        """Take the items of all batches: those of one batch in their order."""
        items = [item for batch in self._open.values() for item in batch.items]
        self._open.clear()
        return items


class _Batch(NamedTuple, Generic[T]):
    items: list[T]
    due_s: float


class BatchCollector:
    """Collects the messages of a consumer into batches, each for one handler.

    One task collects at a time: otherwise each would wait with a part of the messages.

    Args:
      ready: the messages that are ready for delivery.
      results: hands out the next messages of orderly queues.
      batches: those that are filling up.
      key_of: messages with the same key go into the same batch.
      is_orderly: a batch has messages of one queue, in order.
    """

    def __init__(
        self,
        client: Client,
        ready: ReadyMessages,
        results: ConsumeResultService,
        batches: Batches[PushedMessage],
        key_of: Callable[[PushedMessage], Hashable],
        *,
        is_orderly: bool,
    ) -> None:
        self._client = client
        self._ready = ready
        self._results = results
        self._batches = batches
        self._key_of = key_of
        self._is_orderly = is_orderly
        self._turn = anyio.Lock()

    async def next_batch(self) -> list[PushedMessage]:
        """Wait for the next batch: one to `size_max` messages of one key, not settled.

        Raises: ClosedError: the consumer is not open, or was stopped.
        """
        async with self._turn:
            while True:
                self._client.check_open()
                if self._ready.is_stopped:
                    self._batches.take_all()
                    raise ClosedError("the consumer was stopped")
                batch = self._collect()
                if batch is not None:
                    wanted = self._put_aside([each for each in batch if not each.is_revoked])
                    if wanted:
                        return wanted
                    continue
                due_s = self._batches.due_s
                wait_s = inf if due_s is None else due_s - self._client.now_s()
                with anyio.move_on_after(wait_s):
                    await self._ready.wait()

    def _put_aside(self, batch: list[PushedMessage]) -> list[PushedMessage]:
        """Give back the messages that were paused while their batch filled; returns the others."""
        paused = [message for message in batch if self._ready.holds(message)]
        if not paused:
            return batch
        self._give_back(paused)
        return [message for message in batch if not self._ready.holds(message)]

    def give_back(self, not_begun: Iterable[PushedMessage] = ()) -> None:
        """Give back the messages that no handler had: the consumer may go on after the `run`.

        Args:
          not_begun: those of batches that were handed out, and not given to a handler.
        """
        messages = [*not_begun, *self._batches.take_all()]
        if self._ready.is_stopped:  # they come again to others
            return
        self._give_back(messages)
        self._ready.wake()

    def _give_back(self, messages: Sequence[PushedMessage]) -> None:
        if self._is_orderly:  # of each queue, one at a time is ready
            for message in messages:
                message._put_back()
        else:
            self._ready.give_back(messages)

    def _collect(self) -> list[PushedMessage] | None:
        """Add the messages that are there until a batch is full; returns it, or one that is due."""
        now_s = self._client.now_s()
        batches = self._batches
        due = batches.take_due(now_s)  # first, so that no other topic can delay it
        if due is not None:
            return due
        if self._is_orderly:
            for key, last in batches.last_items:
                full = self._fill(key, last, now_s)
                if full is not None:
                    return full
        while (message := self._ready.take()) is not None:
            key = self._key_of(message)
            full = batches.add(key, message, now_s)
            if full is None and self._is_orderly:
                full = self._fill(key, message, now_s)
            if full is not None:
                return full
        return batches.take_due(now_s)

    def _fill(self, key: Hashable, last: PushedMessage, now_s: float) -> list[PushedMessage] | None:
        """Add the messages behind the last one of an orderly queue; returns the full batch."""
        results = self._results
        while True:
            message = self._ready.take_from(lambda last=last: results.take_next(last))  # type: ignore[misc]
            if message is None:
                return None
            full = self._batches.add(key, message, now_s)
            if full is not None:
                return full
            last = message


def batch_key(handlers: Handlers, is_orderly: bool) -> Callable[[PushedMessage], Hashable]:
    """The key that the messages of a batch share: the queue, if orderly; the topic, if each topic
    has a handler."""
    if is_orderly:
        return lambda message: (message.queue, message.topic if handlers.is_by_topic else "")
    if handlers.is_by_topic:
        return lambda message: message.topic
    return lambda message: ""
