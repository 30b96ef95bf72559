"""The dispatcher of committed messages: makes them visible in queues and index.

Java counterparts: DefaultMessageStore.CommitLogDispatcher and ReputMessageService of 5.3.3.

Invariant: under SYNC_FLUSH nothing is visible before it is on the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Set
from typing import NamedTuple

from ..format import Key
from ..index.index_backlog import Indexed
from ..index.index_service import IndexService
from ..queues.consume_queue import ConsumeQueue
from .activity import Activity


class HeldCommit(NamedTuple):
    """One commit that waits for its fsync.

    Attributes:
      end: physical offset at which it ends.
      queues: its queues, each with the queue offset at which it ends.
      items: for the index.
    """

    end: int
    queues: list[tuple[ConsumeQueue, int]]
    items: list[Indexed]


def _ignore(_: Collection[Key]) -> None:
    pass


class Dispatcher:
    """Makes commits visible, at once or after their fsync.

    Args:
      index: None: messages are not indexed.
      activity: signalled when an fsync has made messages visible.

    Attributes:
      dispatched_offset: physical offset up to which the log is visible.
      on_visible: called with the keys of queues that became visible without a caller's `commit`,
        which returns them.
    """

    def __init__(self, index: IndexService | None, activity: Activity) -> None:
        self.dispatched_offset = 0
        self.on_visible: Callable[[Collection[Key]], None] = _ignore
        self._index = index
        self._activity = activity
        self._held: deque[HeldCommit] = deque()

    def show(self, end: int, touched: list[ConsumeQueue], items: list[Indexed]) -> list[Key]:
        """Make a commit visible; returns the keys of its queues."""
        for queue in touched:
            queue.max_offset = queue.committed_offset = queue.next_offset
        self.dispatched_offset = end
        if self._index is not None:
            self._index.add(items)
        return [queue.key for queue in touched]

    def hold(self, end: int, touched: list[ConsumeQueue], items: list[Indexed]) -> None:
        """Keep a commit until an fsync has covered it."""
        ends = []
        for queue in touched:
            queue.committed_offset = queue.next_offset
            ends.append((queue, queue.next_offset))
        self._held.append(HeldCommit(end, ends, items))

    def show_flushed(self, flushed_offset: int) -> None:
        """Make visible the commits that an fsync has covered.

        Args:
          flushed_offset: physical offset up to which the log is on the device.
        """
        held = self._held
        if not held:
            return
        visible: dict[Key, None] = {}
        while held and held[0].end <= flushed_offset:
            self.dispatched_offset, ends, items = held.popleft()
            for queue, queue_end in ends:
                queue.max_offset = queue_end
                visible[queue.key] = None
            if self._index is not None:
                self._index.add(items)
        self._activity.signal()  # the index has new items
        if visible:
            self.on_visible(visible.keys())

    def forget_topics(self, topics: Set[str]) -> None:
        """Drop held commits of deleted topics."""
        for held in self._held:
            held.queues[:] = [entry for entry in held.queues if entry[0].key[0] not in topics]

    def cut(self, queue: ConsumeQueue) -> None:
        """Limit held commits of a queue to its current end, after units were removed."""
        for held in self._held:
            held.queues[:] = [
                (q, min(end, q.next_offset) if q is queue else end) for q, end in held.queues
            ]
