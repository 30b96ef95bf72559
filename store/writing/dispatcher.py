"""Making committed messages visible: to consumers by their queues, to queries by the index.

Java counterparts: DefaultMessageStore.CommitLogDispatcher and ReputMessageService of 5.3.3.

Invariant: under SYNC_FLUSH nothing is visible before it is on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from typing import NamedTuple

from ..format import Key
from ..index.index_service import IndexItem, IndexService
from ..queues.consume_queue import ConsumeQueue
from .activity import Activity


class Held(NamedTuple):
    """One commit that waits for its fsync.

    Attributes:
      end: physical offset at which it ends.
      queues: with the queue offset at which each of them ends.
      items: for the index.
    """

    end: int
    queues: list[tuple[ConsumeQueue, int]]
    items: list[IndexItem]


def _ignore(_: Collection[Key]) -> None:
    pass


class Dispatcher:
    """Shows what is committed, at once or after the fsync.

    Args:
      index: None: there is none.
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
        self._held: list[Held] = []

    def show(self, end: int, touched: list[ConsumeQueue], items: list[IndexItem]) -> list[Key]:
        """Make a commit visible; returns the keys of its queues."""
        for queue in touched:
            queue.max_offset = queue.committed_offset = queue.next_offset
        self.dispatched_offset = end
        if self._index is not None:
            self._index.add(items)
        return [queue.key for queue in touched]

    def hold(self, end: int, touched: list[ConsumeQueue], items: list[IndexItem]) -> None:
        """Keep a commit until an fsync has covered it."""
        ends = []
        for queue in touched:
            queue.committed_offset = queue.next_offset
            ends.append((queue, queue.next_offset))
        self._held.append(Held(end, ends, items))

    def show_flushed(self, flushed_offset: int) -> None:
        """Make visible what an fsync has covered, bytes of the log."""
        held = self._held
        if not held:
            return
        visible: dict[Key, None] = {}
        while held and held[0].end <= flushed_offset:
            self.dispatched_offset, ends, items = held.pop(0)
            for queue, queue_end in ends:
                queue.max_offset = queue_end
                visible[queue.key] = None
            if self._index is not None:
                self._index.add(items)
        self._activity.signal()  # the index has something to do
        if visible:
            self.on_visible(visible.keys())

    def forget_topics(self, topics: Set[str]) -> None:
        """Show nothing more of topics that are deleted."""
        for held in self._held:
            held.queues[:] = [entry for entry in held.queues if entry[0].key[0] not in topics]

    def cut(self, queue: ConsumeQueue) -> None:
        """Show no more of a queue than it has: some of its units were taken back."""
        for held in self._held:
            held.queues[:] = [
                (q, min(end, q.next_offset) if q is queue else end) for q, end in held.queues
            ]
