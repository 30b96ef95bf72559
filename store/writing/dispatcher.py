"""The dispatcher of committed messages: makes them visible in queues and index.

Java counterparts: DefaultMessageStore.CommitLogDispatcher and ReputMessageService of 5.3.3.

Invariants: under SYNC_FLUSH nothing is visible before it is on the device; in controller mode
nothing at or beyond the confirm offset is.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Set
from typing import NamedTuple

from ...disk.errors import StoreIOError
from ..format import Key
from ..index.index_backlog import Indexed
from ..index.index_service import IndexService
from ..queues.consume_queue import ConsumeQueue
from .activity import Activity

logger = logging.getLogger(__name__)


class HeldCommit(NamedTuple):
    """One commit that waits for its fsync, or to be confirmed.

    Attributes:
      end: physical offset at which it ends.
      queues: its queues, each with the queue offset at which it ends.
      items: for the index.
    """

    end: int
    queues: list[tuple[ConsumeQueue, int]]
    items: list[Indexed]


class HiddenQueue(NamedTuple):
    """A queue with messages that were not confirmed when the store was opened.

    Attributes:
      queue: its `max_offset` is before them.
      end: queue offset after them.
    """

    queue: ConsumeQueue
    end: int


def _ignore(_: Collection[Key]) -> None:
    pass


class Dispatcher:
    """Makes commits visible, at once or later: after their fsync, or when they are confirmed.

    Args:
      index: None: messages are not indexed.
      activity: signalled when messages became visible later.
      changed: see `QueueFiles.changed`; queues with new visible messages are added.

    Attributes:
      dispatched_offset: physical offset up to which the log is visible.
      opened_end: the end of the log when the store was opened. All units and index entries before
        it are known to recovery, visible or not.
      on_visible: called with the keys of queues that became visible without a caller's `commit`,
        which returns them.
    """

    def __init__(
        self,
        index: IndexService | None,
        activity: Activity,
        changed: dict[ConsumeQueue, None],
    ) -> None:
        self.dispatched_offset = 0
        self.opened_end = 0
        self.on_visible: Callable[[Collection[Key]], None] = _ignore
        self._index = index
        self._activity = activity
        self._changed = changed
        self._held: deque[HeldCommit] = deque()
        self._hidden: list[HiddenQueue] = []

    @property
    def recorded_offset(self) -> int:
        """Physical offset up to which units and index entries are made: those of the messages that
        were hidden when the store was opened are made, too."""
        return max(self.dispatched_offset, self.opened_end)

    def start_at(self, end: int) -> None:
        """Begin with a log whose units are all made, and visible."""
        self.dispatched_offset = self.opened_end = end
        self._held.clear()
        self._hidden = []

    def hide(self, confirmed: int, queues: Iterable[ConsumeQueue]) -> None:
        """Hide the messages of an opened log that end after a physical offset.

        Args:
          confirmed: within the log.
          queues: all of them, with all units visible.

        Raises:
          StoreIOError: a queue's file could not be read.
        """
        self.dispatched_offset = confirmed
        for queue in queues:
            end = queue.max_offset
            visible = queue.end_before(confirmed, end)
            if visible < end:
                queue.max_offset = visible
                self._changed[queue] = None
                self._hidden.append(HiddenQueue(queue, end))

    def show(self, end: int, touched: list[ConsumeQueue], items: list[Indexed]) -> list[Key]:
        """Make a commit visible; returns the keys of its queues."""
        changed = self._changed
        for queue in touched:
            queue.max_offset = queue.committed_offset = queue.next_offset
            changed[queue] = None
        self.dispatched_offset = end
        if self._index is not None:
            self._index.add(items)
        return [queue.key for queue in touched]

    def hold(self, end: int, touched: list[ConsumeQueue], items: list[Indexed]) -> None:
        """Keep a commit until `show_until` reaches its end."""
        ends = []
        for queue in touched:
            queue.committed_offset = queue.next_offset
            ends.append((queue, queue.next_offset))
        self._held.append(HeldCommit(end, ends, items))

    def show_until(self, offset: int) -> None:
        """Make visible what was held and ends at a physical offset or before it.

        Args:
          offset: up to it the log is on the device under SYNC_FLUSH, and confirmed in controller
            mode.
        """
        held = self._held
        if not (held or self._hidden):
            return
        visible: dict[Key, None] = {}
        if self._hidden:
            self._show_hidden(offset, visible)
        while held and held[0].end <= offset:
            self.dispatched_offset, ends, items = held.popleft()
            for queue, queue_end in ends:
                queue.max_offset = queue_end
                self._changed[queue] = None
                visible[queue.key] = None
            if self._index is not None:
                self._index.add(items)
        if held and offset > self.dispatched_offset:
            # The offset is within a commit. Its index items, and with them `dispatched_offset`,
            # follow with the rest.
            for queue, queue_end in held[0].queues:
                shown = _end_before(queue, offset, queue_end)
                if shown > queue.max_offset:
                    queue.max_offset = shown
                    self._changed[queue] = None
                    visible[queue.key] = None
        self._activity.signal()  # the index has new items
        if visible:
            self.on_visible(visible.keys())

    def _show_hidden(self, offset: int, visible: dict[Key, None]) -> None:
        """Show what was hidden when the store was opened, as far as an offset covers it."""
        still: list[HiddenQueue] = []
        for queue, end in self._hidden:
            shown = end if offset >= self.opened_end else _end_before(queue, offset, end)
            if shown > queue.max_offset:
                queue.max_offset = shown
                self._changed[queue] = None
                visible[queue.key] = None
            if shown < end:
                still.append(HiddenQueue(queue, end))
        self._hidden = still
        self.dispatched_offset = max(self.dispatched_offset, min(offset, self.opened_end))

    def forget_topics(self, topics: Set[str]) -> None:
        """Drop held commits of deleted topics."""
        self._hidden = [each for each in self._hidden if each.queue.key[0] not in topics]
        for held in self._held:
            held.queues[:] = [entry for entry in held.queues if entry[0].key[0] not in topics]

    def cut(self, queue: ConsumeQueue) -> None:
        """Limit held commits of a queue to its current end, after units were removed."""
        self._hidden = [
            HiddenQueue(q, min(end, q.next_offset) if q is queue else end)
            for q, end in self._hidden
        ]
        for held in self._held:
            held.queues[:] = [
                (q, min(end, q.next_offset) if q is queue else end) for q, end in held.queues
            ]


def _end_before(queue: ConsumeQueue, physical_end: int, end: int) -> int:
    """`ConsumeQueue.end_before`; the present end where the units cannot be read just now."""
    try:
        return queue.end_before(physical_end, end)
    except StoreIOError as error:
        logger.warning(
            "messages of queue %(queue_id)d of topic %(topic)s become visible late: %(error)s",
            {"queue_id": queue.key[1], "topic": queue.key[0], "error": error},
        )
        return queue.max_offset
