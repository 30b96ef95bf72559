"""Writes the checkpoint and the file of queue ends: the state known to be on the device.

Java counterpart: store/StoreCheckpoint.java of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import Final

import trio

from ..common.steps import STEP_ITEMS, Steps, at_once
from ..disk.errors import StoreIOError
from ..disk.os_disk import Disk
from .config import MessageStoreConfig
from .format import Key
from .index.index_service import IndexService, IndexState
from .log.commit_log import CommitLog
from .log.log_reader import NOWHERE
from .queues.consume_queue import ConsumeQueue
from .queues.consume_queue_store import ConsumeQueueStore
from .queues.queue_ends import EncodedEnds, QueueEnds, QueueEndsFile, queue_text, topic_text
from .recovery.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

VISITS_PER_STEP: Final = 2_000
"""Queues that one step visits, which takes about 1 ms."""

# Computation of the next checkpoint from the previous one. Pure.
#
# Java counterpart: store/StoreCheckpoint.java, whose times DefaultMessageStore sets, of 5.3.3.


def next_checkpoint(
    before: Checkpoint, dispatched_offset: int, timestamp_ms: int, index: IndexState | None
) -> Checkpoint:
    """The checkpoint when log and queues are on the device up to an offset.

    Args:
      before: the previous checkpoint.
      dispatched_offset: that offset, bytes.
      timestamp_ms: no record before that offset has a later store timestamp.
      index: the result of `IndexService.state`; None: as in the previous checkpoint.
    """
    checkpoint = replace(
        before, physic_msg_timestamp_ms=timestamp_ms, dispatched_offset=dispatched_offset
    )
    redo_from_ms = timestamp_ms
    if index is not None:
        checkpoint.index = index.progress
        checkpoint.index_msg_timestamp_ms = max(
            checkpoint.index_msg_timestamp_ms, index.finished_timestamp_ms
        )
        # After a kill Apache's broker deletes the index file that was being filled: it must read
        # the log from far enough back to index all of that again.
        redo_from_ms = index.unfinished_since_ms(dispatched_offset, timestamp_ms)
    # 5.5.0 begins with the last log file whose first message was not stored after the logics
    # time (older ones: 3 s before it). A file may begin later in the very millisecond of the first
    # record to index again, but not in the millisecond before: hence - 1.
    checkpoint.logics_msg_timestamp_ms = max(0, min(timestamp_ms, redo_from_ms) - 1)
    return checkpoint


class KeptEnds:
    """The ends of all queues in memory, and their text, so that a checkpoint visits few queues.

    With 50,000 queues a visit of all takes 15 ms, and their JSON text 45 ms; a broker serves
    nothing meanwhile. Here are begin and end of each queue as of its last visit, and the text of
    each topic. A queue that changes is noted in `ConsumeQueueStore.changed`, so the others are as
    they were: a visit of those gives the ends of all queues at that moment. Owned by the store's
    task.

    Args:
      queue_store: its queues are visited.
    """

    def __init__(self, queue_store: ConsumeQueueStore) -> None:
        self._queue_store = queue_store
        # The `queue_text` of each queue by topic and queue id. Texts, as the garbage collector
        # passes over them, and would not over 50,000 pairs.
        self._topics: dict[str, dict[int, str]] = {}
        self._texts: dict[str, bytes] = {}
        # Topics whose text is not that of their queues, each with the encoding that is under way.
        self._stale: dict[str, object] = {}

    def clear(self) -> None:
        """Forget all; all queues are visited next time."""
        self._topics.clear()
        self._texts.clear()
        self._stale.clear()
        self._queue_store.note_all_changed()

    def visit(self, per_step: int = VISITS_PER_STEP) -> Steps[None]:
        """Steps that visit most of the queues that changed, so that few are left for `take`.

        Args:
          per_step: queues that one step visits, > 0.
        """
        # A queue that changes meanwhile comes again, so the number of steps is limited.
        for _ in range(len(self._queue_store.changed) // per_step):
            self._visit(self._queue_store.take_changed(per_step))
            yield

    def take(self) -> None:
        """Visit all queues that changed, in one step: the ends kept are then those of now."""
        self._visit(self._queue_store.take_changed(len(self._queue_store.changed)))

    def texts(self) -> Steps[dict[str, bytes]]:
        """Steps that return the text of the ends by topic; no queue may be visited meanwhile.

        A topic that is forgotten meanwhile is not in the result.
        """
        left = STEP_ITEMS
        while self._stale:
            topic = next(iter(self._stale))
            queues = self._topics[topic]
            encoding = self._stale[topic] = object()
            text = yield from topic_text(topic, queues)
            if self._stale.get(topic) is encoding:  # no queue of it was forgotten meanwhile
                del self._stale[topic]
                self._texts[topic] = text
            left -= len(queues)
            if left <= 0 and self._stale:
                left = STEP_ITEMS
                yield
        return dict(self._texts)

    def forget_topics(self, topics: Set[str]) -> None:
        """Drop the queues of these topics; those that still exist are visited next time."""
        for topic in topics:
            for queue_id in self._topics.pop(topic, {}):
                self._note_change((topic, queue_id))
            self._texts.pop(topic, None)
            self._stale.pop(topic, None)

    def forget_queue(self, key: Key) -> None:
        """As `forget_topics`, for one queue."""
        self._drop(key)
        self._note_change(key)

    def _note_change(self, key: Key) -> None:
        queue = self._queue_store.queues.get(key)
        if queue is not None:
            queue.note_change()

    def _visit(self, queues: list[ConsumeQueue]) -> None:
        current, topics, stale = self._queue_store.queues, self._topics, self._stale
        for queue in queues:
            key = queue.key
            # Deleted, or replaced by another one.
            found = current.get(key)
            if found is None:
                self._drop(key)
                continue
            # Units before `tail_offset` are in the files, though their messages may be hidden.
            end, tail = found.max_offset, found.tail_offset
            if tail > end:
                end = tail
            if not end:
                self._drop(key)
                continue
            topic, queue_id = key
            of_topic = topics.get(topic)
            if of_topic is None:
                of_topic = topics[topic] = {}
            text = queue_text(queue_id, found.min_offset, end)
            if of_topic.get(queue_id) != text:
                of_topic[queue_id] = text
                stale[topic] = None

    def _drop(self, key: Key) -> None:
        topic, queue_id = key
        of_topic = self._topics.get(topic)
        if of_topic is None or of_topic.pop(queue_id, None) is None:
            return
        if of_topic:
            self._stale[topic] = None
        else:
            del self._topics[topic]
            self._texts.pop(topic, None)
            self._stale.pop(topic, None)


class CheckpointWriter:
    """Records on disk what the next start may rely on. Owned by the store's task.

    Args:
      recorded_offset: returns the physical offset up to which units and index entries are made.
      confirm_offset: in controller mode, returns the physical offset up to which the log is
        confirmed; None: not in that mode.

    Attributes:
      current: the newest checkpoint.
      own_from: from this physical offset on all records are known to be written by this program.
      queues_failed: queue files could not be synced. No checkpoint is written from then on: the
        next start makes their units again from the log.
      turn: held while a checkpoint is taken and written.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        disk: Disk,
        log: CommitLog,
        queue_store: ConsumeQueueStore,
        index: IndexService,
        recorded_offset: Callable[[], int],
        *,
        confirm_offset: Callable[[], int] | None = None,
    ) -> None:
        self.current = Checkpoint()
        self.own_from = 0
        self.queues_failed = False
        self.turn = trio.Lock()
        self._config = config
        self._disk = disk
        self._path = f"{config.store_path_root_dir}/checkpoint"
        self._log = log
        self._queue_store = queue_store
        self._index = index
        self._recorded_offset = recorded_offset
        self._confirm_offset = confirm_offset
        known = QueueEnds(-1, config.queue_file_size)
        self._ends_file = QueueEndsFile(disk, config.store_path_root_dir, known)
        self._kept = KeptEnds(queue_store)

    def load(self) -> Checkpoint:
        """Read the checkpoint.

        Raises:
          StoreIOError: it could not be read.
        """
        self.current = read_checkpoint(self._disk, self._path)
        return self.current

    def loaded(self, ends: QueueEnds, own_from: int) -> None:
        """Start from the state that recovery found.

        Args:
          ends: the content of the file of queue ends.
          own_from: see the attribute.
        """
        self._ends_file = QueueEndsFile(self._disk, self._config.store_path_root_dir, ends)
        self._kept.clear()
        self.own_from = own_from

    def index_state(self) -> IndexState | None:
        """The state of the index for the next checkpoint, see `IndexService.state`."""
        if not self._config.message_index_enable:
            return IndexState(None, 0, None)
        return self._index.state(self._recorded_offset())

    def queue_ends(self) -> EncodedEnds:
        """The ends of log and queues up to `recorded_offset`, at once; see queue_ends.py."""
        head = self.take_ends()
        return at_once(self.encoded(head))

    def visit_changed(self, per_step: int = VISITS_PER_STEP) -> Steps[None]:
        """Steps that visit most of the queues that changed, so that `take_ends` is short.

        Args:
          per_step: queues that one step visits, > 0.
        """
        return self._kept.visit(per_step)

    def take_ends(self) -> QueueEnds:
        """Take the ends of log and queues up to `recorded_offset`, in one step.

        Returns: the head of the file; `encoded` returns all of it.
        """
        self._kept.take()
        return QueueEnds(
            self._recorded_offset(),
            self._config.queue_file_size,
            log_start=self._log.min_offset,
            begins_at=self._log.min_offset,
            own_from=self.own_from,
        )

    def encoded(self, head: QueueEnds) -> Steps[EncodedEnds]:
        """Steps that encode the ends that `take_ends` took; none may be taken meanwhile.

        Args:
          head: the result of that call.
        """
        topics = yield from self._kept.texts()
        ends = self._ends_file.next = EncodedEnds(head, topics)
        return ends

    @property
    def has_new_confirm_offset(self) -> bool:
        """Whether the newest checkpoint lacks the present confirm offset."""
        confirm, written = self._confirm_offset, self.current
        return confirm is not None and (
            min(confirm(), written.dispatched_offset) != written.confirm_physical_offset
        )

    def sync_queues(self, paths: list[str]) -> None:
        """fsync queue files; may run in a worker thread.

        Args:
          paths: the result of `queue_store.take_unsynced`, called in the store's task.

        Raises:
          StoreIOError: an fsync failed. Repeating it proves nothing; see `queues_failed`.
        """
        try:
            self._queue_store.sync(paths)
        except StoreIOError:
            self.queues_failed = True
            raise

    def write(
        self,
        dispatched_offset: int,
        timestamp_ms: int,
        index: IndexState | None = None,
        ends: EncodedEnds | None = None,
    ) -> None:
        """Write the checkpoint, once log and queues are synced up to `dispatched_offset`.

        Args:
          timestamp_ms: no record before that offset has a later store timestamp.
          index: the result of `index_state` from before the log was synced, its file synced since;
            None: as in the previous checkpoint.
          ends: the result of `queue_ends`, or `encoded`, taken together with that offset; None:
            take it now.

        Raises:
          StoreIOError: it could not be written.
        """
        checkpoint = next_checkpoint(self.current, dispatched_offset, timestamp_ms, index)
        if self._confirm_offset is not None:
            checkpoint.confirm_physical_offset = min(self._confirm_offset(), dispatched_offset)
        ends = self.queue_ends() if ends is None else ends
        self._ends_file.note(ends, dispatched_offset)
        write_checkpoint(self._disk, self._path, checkpoint)
        self.current = checkpoint

    def note_log_start(self, physical_offset: int) -> None:
        """Record that the log will begin here, before retention removes older files.

        May run in a worker thread.

        Raises:
          StoreIOError: it could not be written; then nothing may be removed.
        """
        self._ends_file.note_log_start(physical_offset)

    def begin_midway(self, physical_offset: int) -> None:
        """Record that an empty log will begin at this offset, before its first file exists.

        Raises:
          StoreIOError: it could not be written.
        """
        self._ends_file.begin_midway(physical_offset)

    def note_foreign_records(self) -> None:
        """Record that the following records may be from another program.

        Raises:
          StoreIOError: it could not be written.
        """
        if self.own_from != NOWHERE:
            self._ends_file.note_foreign(NOWHERE)
            self.own_from = NOWHERE

    def forget_topics(self, topics: Set[str]) -> None:
        """Record that these topics have no queues, before their queues are removed.

        Otherwise the next start would miss the queues and rebuild them from the log.

        Raises:
          StoreIOError: it could not be written.
        """
        self._ends_file.forget_topics(topics)
        self._kept.forget_topics(topics)

    def forget_queue(self, key: Key) -> None:
        """As `forget_topics`, for one queue.

        Raises:
          StoreIOError: it could not be written.
        """
        self._ends_file.forget_queue(key)
        self._kept.forget_queue(key)
