"""Where in a queue a time begins, found by looking at messages. Pure.

A broker's own answer is not enough: those of Apache's 4.9.7 name the message whose time is nearest,
before or after, and any one of several that were stored in the same millisecond.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def first_new(guess: int, low: int, high: int, is_new: Callable[[int], bool]) -> int:
    """The first offset of [low, high) that is new; `high` when none is.

    It asks twice where the guess is right, and about 2 log2(d) times where it is wrong by d.

    Args:
      guess: where it may be.
      is_new: false for all offsets before some one, and true from there on.
    """
    guess = min(max(guess, low), high)
    step = 1
    if guess == high or is_new(guess):
        begin = end = guess
        while begin > low:
            begin = max(low, end - step)
            if not is_new(begin):
                begin += 1
                break
            end, step = begin, step * 2
    else:
        begin = end = guess + 1
        while end < high:
            end = min(high, begin + step)
            if is_new(end - 1):
                end -= 1
                break
            begin, step = end, step * 2
    return begin + bisect_left(range(begin, end), True, key=is_new)
