"""Counts of a fast path: usual work that the C extension took, and what it left to pure Python.

An extension that stops taking its work answers nothing wrong. Without counts, only the CPU of the
process would show it.
"""

from __future__ import annotations

from typing import Final

TROUBLE_KEY: Final = "fastPath_"
"""Before a path's name in a broker's runtime information. RocketMQ has no such keys, so a path has
one only while it `is_troubled`."""

TAKEN_SHARE_MIN: Final = 0.01
"""Less than this share taken counts as none: nearly all usual work is taken, or there is a cause
that concerns all of it."""

LEFT_COUNT_MIN: Final = 10_000
"""Pieces of work before the share is judged: the first sends to each queue and the like are always
left."""


class PathCounts:
    """What became of the work of one fast path since the process started.

    Attributes:
      taken: pieces of work that the extension did.
      left: pieces that look usual, and that pure Python did.
      failed: unexpected errors of the extension.
      is_judged: whether a small share taken is a trouble.
    """

    __slots__ = ("failed", "is_judged", "left", "taken")

    def __init__(self, *, is_judged: bool = True) -> None:
        self.taken = self.left = self.failed = 0
        self.is_judged = is_judged

    @property
    def is_troubled(self) -> bool:
        """Whether the extension failed, or takes next to nothing."""
        total = self.taken + self.left
        is_unused = self.left >= LEFT_COUNT_MIN and self.taken < TAKEN_SHARE_MIN * total
        return self.failed > 0 or (self.is_judged and is_unused)

    def text(self) -> str:
        """The counts for operators and programs."""
        return f"taken {self.taken}, left {self.left}, failed {self.failed}"
