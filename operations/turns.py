"""Taking turns: of what is too much to be asked for at once, some more each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def in_turn(items: Sequence[T], begin: int, count: int) -> tuple[list[T], int]:
    """Some of the items, from a place on and around the end.

    Args:
      begin: the place, from 0; it may be larger than there are items, as they become fewer.
      count: how many, at most.
    Returns: these items, and the place at which to begin the next time.
    """
    begin %= max(len(items), 1)
    chosen = [*items[begin:], *items[:begin]][:count]
    return chosen, begin + len(chosen)
