"""Allocation: the shares of one member when items are divided among several.

A client divides the queues of a topic among the members of its group, and a broker does it for
clients that ask it (QUERY_ASSIGNMENT). Both must come to the same result.

Java counterpart: AllocateMessageQueueAveragely and AllocateMessageQueueAveragelyByCircle in
client/consumer/rebalance of RocketMQ 5.5.0. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def share_averagely(items: Sequence[T], index: int, count: int) -> list[T]:
    """Adjacent items, in numbers that differ by at most one among the members: 01 23 4.

    Args:
      items: what is divided, in an order that all members know.
      index: of the member, 0 to `count` - 1.
      count: members, > 0.
    """
    size, more = divmod(len(items), count)
    # The first `more` members have one item more.
    start = index * size + min(index, more)
    return list(items[start : start + size + (index < more)])


def share_by_circle(items: Sequence[T], index: int, count: int) -> list[T]:
    """One item for each member in turn: 03 14 2.

    Args:
      items, index, count: see `share_averagely`.
    """
    return list(items[index::count])
