"""The index backlog: committed messages that wait in memory for their index entries."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, TypeAlias

IndexItem: TypeAlias = tuple[int, bytes, int, int]
"""(hash of "topic#", properties, physical offset, store timestamp ms) of one message. A plain
tuple: each put creates one, and a NamedTuple takes four times as long."""


class IndexRun(NamedTuple):
    """Consecutive messages whose entries the C extension has packed already.

    Attributes:
      message_count: at least one; each message may have no entry, or several.
      entries: for `IndexFile.put_packed`.
      physical_offset: of the first message.
    """

    message_count: int
    entries: bytes
    physical_offset: int


Indexed: TypeAlias = IndexItem | IndexRun


class IndexBacklog:
    """Items and runs, oldest first.

    Args:
      has_runs: `add` gets runs, too; without them it costs nothing per item.

    Attributes:
      count: messages in all of them.
    """

    __slots__ = ("_has_runs", "_waiting", "count")

    def __init__(self, *, has_runs: bool) -> None:
        self._has_runs = has_runs
        self._waiting: deque[Indexed] = deque()
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def first_offset(self) -> int:
        """Physical offset of the oldest message; there must be one."""
        return self._waiting[0][2]

    def add(self, items: list[Indexed]) -> None:
        """Add the messages of one commit, in the log's order."""
        self._waiting.extend(items)
        self.count += len(items)
        if self._has_runs:
            for item in items:
                if type(item) is IndexRun:
                    self.count += item.message_count - 1

    def take_runs(self, count: int) -> bytes:
        """Remove the oldest messages as far as they are runs, the first one and others of at most
        `count` messages together. Returns: their entries; empty: the oldest message is no run.
        """
        waiting, taken = self._waiting, 0
        entries: list[bytes] = []
        while waiting and type(first := waiting[0]) is IndexRun:
            if entries and taken + first.message_count > count:
                break
            waiting.popleft()
            entries.append(first.entries)
            taken += first.message_count
        self.count -= taken
        return entries[0] if len(entries) == 1 else b"".join(entries)

    def take(self, count: int) -> list[IndexItem]:
        """Remove and return at most `count` items, up to the next run."""
        waiting = self._waiting
        popleft = waiting.popleft
        items: list[Any]
        if self._has_runs:
            items = []
            while len(items) < count and waiting and type(waiting[0]) is not IndexRun:
                items.append(popleft())
        else:
            items = [popleft() for _ in range(min(count, len(waiting)))]
        self.count -= len(items)
        return items

    def clear(self) -> None:
        """Remove all messages."""
        self._waiting.clear()
        self.count = 0
