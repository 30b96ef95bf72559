"""PopProgress: what statistics and metrics ask about pops that are not acknowledged.

`buffer.PopBuffer` implements it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .check_point import CheckPoint


class PopProgress(Protocol):
    """Pops that are not acknowledged, of all groups."""

    def next_offset(self, topic: str, group: str, queue_id: int) -> int:
        """The offset after the last pop whose commit waits; -1 if there is none."""

    def in_flight(self, topic: str, group: str, queue_id: int) -> int:
        """The number of messages that were popped and are not acknowledged, about."""

    def check_points(self) -> Iterator[tuple[CheckPoint, int]]:
        """The check points that are in memory and not stored, the oldest first, each with its queue
        of the revive topic: those of the moment of the call."""


class NoPops:
    """No pops at all, for tests and tools."""

    def next_offset(self, topic: str, group: str, queue_id: int) -> int:
        return -1

    def in_flight(self, topic: str, group: str, queue_id: int) -> int:
        return 0

    def check_points(self) -> Iterator[tuple[CheckPoint, int]]:
        return iter(())
