"""Places: which pulls or pops may wait: how many, of whom, and in how much memory. Pure.

A held pull keeps neither body nor header of its request, a waiting pop no body. Both keep their
selector: tags codes or a compiled expression. A selector may be large, and thousands of requests
may share it, so it is counted once, for the first connection that brought it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from ...common.sql92.expression import EXPRESSION_CHARACTER_SIZE, Expression
from ...remoting.channel import Channel
from ..settings.limits import BrokerLimits
from .pull import Selector

_CODE_SIZE: Final = 32
"""Bytes of one int."""

K = TypeVar("K")


def size_of_selector(selector: Selector) -> int:
    """Approximate size of tags codes or a compiled expression, in bytes."""
    if isinstance(selector, Expression):
        return len(selector.text) * EXPRESSION_CHARACTER_SIZE
    return sys.getsizeof(selector) + _CODE_SIZE * len(selector)


class Held(Protocol):
    """A waiting request: a pull or a pop."""

    @property
    def channel(self) -> Channel:
        """The connection of the request."""

    @property
    def selector(self) -> Selector | None:
        """Its filter; None: it wants all messages."""


class _Counted:
    """The reference count of a selector that requests share."""

    __slots__ = ("count", "payer", "selector", "size")

    def __init__(self, selector: Selector, payer: Channel, size: int) -> None:
        self.selector = selector  # a reference, so that no other object gets its id
        self.payer = payer
        self.size = size
        self.count = 0


class Places:
    """The places of one kind of requests of a broker.

    The first half of them is open to all. When it is taken, no connection may have more than
    heldPullsPerConnectionMax, and no group more than heldPullsPerGroupMax.

    Args:
      config: the broker's.
      held: connection and group of each request that waits now. Counting a pull costs more than
        holding it, so with this they are counted only while the shares are enforced; None: always,
        as for pops, which are fewer, and too slow to be counted at once.

    Attributes:
      count: requests that wait.
    """

    def __init__(
        self,
        config: BrokerLimits,
        held: Callable[[], Iterable[tuple[Channel, str]]] | None = None,
    ) -> None:
        self._config = config
        self._held = held
        self.count = 0
        self._selectors: dict[int, _Counted] = {}
        self._of_channels: Counter[Channel] = Counter()
        self._of_groups: Counter[str] = Counter()
        self.has_shares = held is None

    def refusal(
        self, channel: Channel, group: str, limit: str, count_max: int
    ) -> tuple[str, str] | None:
        """The key of the limit that one more request would exceed, and why; None: it may wait.

        Args:
          limit, count_max: of all requests.
        """
        if self.count >= count_max:
            return limit, f"{self.count} wait"
        if self.count < count_max // 2:
            return None
        if not self.has_shares and self._held is not None:
            self.has_shares = True
            for each in self._held():
                self._count_share(*each)
        if self._of_channels[channel] >= self._config.held_pulls_per_connection_max:
            key = "heldPullsPerConnectionMax"
        elif self._of_groups[group] >= self._config.held_pulls_per_group_max:
            key = "heldPullsPerGroupMax"
        else:
            return None
        return key, f"{self.count} wait, and it has its share of them"

    def drop_shares(self) -> None:
        """Stop counting by connection and group, until half of the places are taken again."""
        self.has_shares = False
        self._of_channels.clear()
        self._of_groups.clear()

    def take(self, held: Held, group: str, size: int) -> bool:
        """Give a place to a request.

        Args:
          size: its bytes, without its selector.
        Returns: False: it does not fit into the connections' memory budget.
        """
        channel, selector = held.channel, held.selector
        known, selector_size = None, 0
        if selector is not None:  # seldom
            known = self._selectors.get(id(selector))
            selector_size = 0 if known is not None else size_of_selector(selector)
        if not channel.memory.held_requests.take(channel, size + selector_size):
            return False
        if selector is not None:
            if known is None:
                known = self._selectors[id(selector)] = _Counted(selector, channel, selector_size)
            known.count += 1
        self.count += 1
        if self.has_shares:
            self._count_share(channel, group)
        return True

    def give_back(self, held: Held, group: str, size: int) -> None:
        """Release the place of a request that waits no longer."""
        channel, selector = held.channel, held.selector
        self.count -= 1
        channel.memory.held_requests.give_back(channel, size)
        if selector is not None:
            known = self._selectors[id(selector)]
            known.count -= 1
            if not known.count:
                del self._selectors[id(selector)]
                known.payer.memory.held_requests.give_back(known.payer, known.size)
        if self.has_shares:
            take_one(self._of_channels, channel)
            take_one(self._of_groups, group)

    def _count_share(self, channel: Channel, group: str) -> None:
        self._of_channels[channel] += 1
        self._of_groups[group] += 1


def take_one(counts: Counter[K], key: K) -> None:
    """Count one less, and forget a key whose count is 0."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
