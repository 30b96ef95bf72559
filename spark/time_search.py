"""Exact search of a queue for the first message of a time. Pure.

A broker's answer is only a guess: Apache's 4.9.7 returns the message whose time is nearest, before
or after, and any one of several messages of the same millisecond.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def first_new(guess: int, low: int, high: int, is_new: Callable[[int], bool]) -> int:
    """The first offset of [low, high) that is new; `high` when none is.

    Calls `is_new` twice if the guess is right, and about 2 log2(d) times if it is off by d.

    Args:
      guess: the probable offset.
      is_new: false up to some offset, and true from there on.
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
