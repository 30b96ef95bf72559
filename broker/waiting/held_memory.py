"""HeldMemory: the share of held requests in the memory budget of the broker's connections.

A held pull keeps neither body nor header of its request, a waiting pop no body. Both keep their
selector: tags codes or a compiled expression. A selector may be large, and thousands of requests
may share it, so it is counted once, for the first connection that brought it.
"""

from __future__ import annotations

import sys
from typing import Final, Protocol

from ...common.sql92.expression import EXPRESSION_CHARACTER_SIZE, Expression
from ...remoting.channel import Channel
from .pull import Selector

HELD_PULL_SIZE: Final = 800
"""Bytes of one held pull, with topic, group and numbers, without its selector."""

_CODE_SIZE: Final = 32
"""Bytes of one int."""


def size_of_selector(selector: Selector) -> int:
    """Approximate size of tags codes or a compiled expression, in bytes."""
    if isinstance(selector, Expression):
        return len(selector.text) * EXPRESSION_CHARACTER_SIZE
    return sys.getsizeof(selector) + _CODE_SIZE * len(selector)


class Held(Protocol):
    """A held request: a pull or a pop."""

    @property
    def channel(self) -> Channel:
        """The connection of the request."""

    @property
    def selector(self) -> Selector | None:
        """Its filter; None: it wants all messages."""


class _Counted:
    """The reference count of a selector that held requests share."""

    __slots__ = ("count", "payer", "selector", "size")

    def __init__(self, selector: Selector, payer: Channel, size: int) -> None:
        self.selector = selector  # a reference, so that no other object gets its id
        self.payer = payer
        self.size = size
        self.count = 0


class HeldMemory:
    """Accounting of the memory of one broker's held requests of one kind."""

    def __init__(self) -> None:
        self._selectors: dict[int, _Counted] = {}

    def take(self, held: Held, held_size: int = HELD_PULL_SIZE) -> bool:
        """Count a request that is to be held.

        Args:
          held_size: its bytes without its selector.
        Returns: False if it does not fit into the budget, and was not counted.
        """
        channel = held.channel
        selector = held.selector
        if selector is None:  # the usual case
            return channel.memory.held_requests.take(channel, held_size)
        known = self._selectors.get(id(selector))
        size = 0 if known is not None else size_of_selector(selector)
        if not channel.memory.held_requests.take(channel, held_size + size):
            return False
        if known is None:
            known = self._selectors[id(selector)] = _Counted(selector, channel, size)
        known.count += 1
        return True

    def room(self, channel: Channel) -> int:
        """Pulls without a selector of a connection that fit into the budget."""
        return channel.memory.held_requests.room // HELD_PULL_SIZE

    def take_unfiltered(self, channel: Channel, count: int) -> None:
        """`take` of a connection's pulls without a selector, which fit."""
        channel.memory.held_requests.take(channel, HELD_PULL_SIZE * count)

    def give_back_unfiltered(self, channel: Channel, count: int) -> None:
        """`give_back` of a connection's pulls without a selector."""
        channel.memory.held_requests.give_back(channel, HELD_PULL_SIZE * count)

    def give_back(self, held: Held, held_size: int = HELD_PULL_SIZE) -> None:
        """Release the memory of a counted request that is no longer held."""
        channel = held.channel
        channel.memory.held_requests.give_back(channel, held_size)
        selector = held.selector
        if selector is None:
            return
        # Requests of a group share a filter; the connection of the first one pays for it.
        known = self._selectors[id(selector)]
        known.count -= 1
        if not known.count:
            del self._selectors[id(selector)]
            known.payer.memory.held_requests.give_back(known.payer, known.size)
