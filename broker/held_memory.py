"""Memory of held pulls: what they take of the budget of the broker's connections.

A held pull keeps no body and no header of its request. Besides some short texts it keeps what it
selects messages by: tags codes and a compiled expression. Those may be large, and thousands of
pulls may share one, so each is counted once, for the connection that came with it first.
"""

from __future__ import annotations

import sys
from typing import Final, Protocol

from ..common.sql92.expression import EXPRESSION_CHARACTER_SIZE, Expression
from ..remoting.channel import Channel

HELD_PULL_SIZE: Final = 800
"""Bytes of one held pull, with topic, group and numbers, and without what it selects by."""

_CODE_SIZE: Final = 32
"""Bytes of one int."""

_Selector = frozenset[int] | Expression


class Held(Protocol):
    """A held pull, as far as it is counted: its connection, and what it selects messages by."""

    channel: Channel
    tags_codes: frozenset[int] | None
    expression: Expression | None


def size_of_selector(selector: _Selector) -> int:
    """About how many bytes tags codes or a compiled expression take."""
    if isinstance(selector, Expression):
        return len(selector.text) * EXPRESSION_CHARACTER_SIZE
    return sys.getsizeof(selector) + _CODE_SIZE * len(selector)


class _Counted:
    """Tags codes or an expression that held pulls share."""

    __slots__ = ("count", "payer", "selector", "size")

    def __init__(self, selector: _Selector, payer: Held) -> None:
        self.selector = selector  # keeps its id from being another object's
        self.payer = payer.channel
        self.size = size_of_selector(selector)
        self.count = 0


class HeldMemory:
    """The accounts of one broker's held pulls."""

    def __init__(self) -> None:
        self._selectors: dict[int, _Counted] = {}

    def take(self, pull: Held) -> bool:
        """Count a pull that is to be held.

        Returns: False: it does not fit into the budget, and was not counted.
        """
        channel = pull.channel
        selectors = _selectors_of(pull)
        size = HELD_PULL_SIZE
        for selector in selectors:
            if id(selector) not in self._selectors:
                size += size_of_selector(selector)
        if not channel.memory.held_requests.take(channel, size):
            return False
        for selector in selectors:
            known = self._selectors.get(id(selector))
            if known is None:
                known = self._selectors[id(selector)] = _Counted(selector, pull)
            known.count += 1
        return True

    def give_back(self, pull: Held) -> None:
        """A pull that was counted is no longer held."""
        channel = pull.channel
        channel.memory.held_requests.give_back(channel, HELD_PULL_SIZE)
        for selector in _selectors_of(pull):
            known = self._selectors[id(selector)]
            known.count -= 1
            if not known.count:
                del self._selectors[id(selector)]
                known.payer.memory.held_requests.give_back(known.payer, known.size)


def _selectors_of(pull: Held) -> list[_Selector]:
    return [one for one in (pull.tags_codes, pull.expression) if one is not None]
