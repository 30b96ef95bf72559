"""FairBacklog: requests that wait to be tried, one of each connection in turn.

A client with thousands of requests delays only its own. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ...remoting.channel import Channel

T = TypeVar("T")


class FairBacklog(Generic[T]):
    """Items to be tried, round-robin by connection; those of one connection in their order.

    Args:
      channel_of: the connection of an item.
    """

    def __init__(self, channel_of: Callable[[T], Channel]) -> None:
        self._channel_of = channel_of
        # Not plain dicts: to take the first key of one again and again takes quadratic time.
        self._of: OrderedDict[Channel, OrderedDict[T, None]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, items: Iterable[T]) -> None:
        """Add items; one that is already queued keeps its place."""
        of, channel_of = self._of, self._channel_of
        for item in items:
            channel = channel_of(item)
            waiting = of.get(channel)
            if waiting is None:
                waiting = of[channel] = OrderedDict()
            waiting[item] = None

    def pop(self) -> T:
        """The next item. The backlog must not be empty."""
        channel, waiting = next(iter(self._of.items()))
        item, _ = waiting.popitem(last=False)
        if waiting:
            self._of.move_to_end(channel)
        else:
            del self._of[channel]
        return item
