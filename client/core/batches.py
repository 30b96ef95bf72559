"""Batches of messages that fill up, each of one kind, until they are full or their time is over.

Pure: times are arguments, seconds of one clock.

Java counterpart: consumeMessageBatchMaxSize of ConsumeMessageConcurrentlyService, without linger.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

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
        """Take a batch whose time is over; None: there is none."""
        for key, batch in self._open.items():
            if batch.due_s > now_s:
                return None
            del self._open[key]
            return batch.items
        return None

    @property
    def due_s(self) -> float | None:
        """When the next batch is due; None: there is none."""
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
