"""The consume queues of a store, by key.

Java counterpart: store/queue/ConsumeQueueStore.java of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from ...common.java_hash import hash_prefix
from ...common.java_integers import INT32_MAX, INT64_MAX
from ...disk.errors import CorruptRecordError, StoreIOError
from ...disk.os_disk import Disk
from ...disk.start_warnings import warn_of_stray, warn_of_strays
from ...remoting.errors import LocalProtocolError
from ...remoting.message_codec import record_topic
from ..format import BATCH_UNIT_SIZE
from ..status import BoundaryType
from ..topic_path import topic_path
from .batch_consume_queue import BatchConsumeQueue
from .consume_queue import ConsumeQueue, QueueFiles, QueueSizeError
from .consume_queue_ext import BitMapOf, ConsumeQueueExt, ExtendedConsumeQueue

logger = logging.getLogger(__name__)

TIME_MAX = INT64_MAX
UNREADABLE_MAX = 1000
"""Unreadable messages in a row after which a search by time gives up on a range."""

TOPIC_FACTS_COUNT_MAX = 16_384
"""Topics whose facts are cached, a few hundred bytes each; the cache saves time and memory only."""

QUEUE_ID_MAX = INT32_MAX
"""Queue ids are int32 on the wire; no broker created a folder with a larger one."""


class _TopicFacts(NamedTuple):
    """Values that the queues of one topic share.

    Attributes:
      folder: the name of its folder.
      magic, topic_field: of its records.
    """

    folder: str
    magic: int
    topic_field: bytes
    topic_hash: int


@lru_cache(maxsize=TOPIC_FACTS_COUNT_MAX)
def _topic_facts(topic: str) -> _TopicFacts | None:
    """The facts of a topic."""
    name = topic_path(topic)
    if name is None:
        return None
    try:
        magic, topic_field = record_topic(topic)
    except LocalProtocolError:
        return None
    # All queues of a topic share these objects through the cache: a put to one of thousands of
    # queues finds them in the processor's cache.
    return _TopicFacts(name, magic, topic_field, hash_prefix(f"{topic}#"))


class ConsumeQueueStore:
    """The queues of a store. Owned by the store's task.

    Args:
      file_size, batch_file_size, ext_file_size: bytes of one file of a queue, of a batch queue, of
        an extension.
      writes_ext: whether new messages get an extension unit.

    Attributes:
      batch_topics: topics whose queues are batch queues, because such files exist or the broker
        configured them; the broker may add topics that have no queues yet.
      bitmap_of: computes the bit maps of new extension units; None: they have none. Set it before
        `load`, which recreates lost units.
      writes_ext: whether new messages get an extension unit.
      damaged: what is wrong with queues whose files are damaged, by (topic, queue id); they are
        empty until they are rebuilt from the log.
      changed: see `QueueFiles.changed`; always the same object.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        *,
        file_size: int,
        batch_file_size: int = 300_000 * BATCH_UNIT_SIZE,
        ext_file_size: int = 48 * 1024 * 1024,
        writes_ext: bool = False,
    ) -> None:
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.changed: dict[ConsumeQueue, None] = {}
        self.files = QueueFiles(disk, file_size, self.changed)
        self.batch_files = QueueFiles(disk, batch_file_size, self.changed)
        self.ext_files = QueueFiles(disk, ext_file_size, self.changed)
        self.batch_topics: set[str] = set()
        self.bitmap_of: BitMapOf | None = None
        self.writes_ext = writes_ext
        self.damaged: dict[tuple[str, int], CorruptRecordError] = {}
        self._sync_failure: StoreIOError | None = None
        # Of the queues that `take_changed` returned, those with visible units in memory only.
        self._unwritten: dict[ConsumeQueue, None] = {}
        self._disk = disk
        self._has_ext = writes_ext
        self._folder = f"{root}/consumequeue"
        self._batch_folder = f"{root}/batchconsumequeue"
        self._ext_folder = f"{root}/consumequeue_ext"

    def load(self) -> None:
        """Open the queue of every folder; damaged ones are in `damaged`.

        Raises:
          StoreIOError: a file could not be read.
        """
        self.queues.clear()
        self.changed.clear()
        self._unwritten.clear()
        self.damaged = {}
        self._has_ext = self.writes_ext or self._disk.exists(self._ext_folder)
        self.batch_topics |= set(self._disk.list(self._batch_folder))
        for topic, queue_id in self._found(self._batch_folder):
            self._load(topic, queue_id)
        for topic, queue_id in self._found(self._folder):
            if topic in self.batch_topics:
                logger.warning(
                    "%(folder)s/%(topic)s is ignored: the topic has batch queues",
                    {"folder": self._folder, "topic": topic},
                )
            else:
                self._load(topic, queue_id)

    def _load(self, topic: str, queue_id: int) -> None:
        queue = self.create(topic, queue_id)
        if queue is not None:
            try:
                queue.load()
            except CorruptRecordError as error:
                self.damaged[queue.key] = error
                queue.reset()

    def size_problem(self) -> CorruptRecordError | None:
        """The error when no queue file has the configured size; None: some file has it."""
        problem = None
        for error in self.damaged.values():
            if isinstance(error, QueueSizeError):
                problem = problem or error
        fits = any(not q.is_batch and q.file_offsets for q in self.queues.values())
        return None if fits else problem

    def use_disk(self, disk: Disk) -> None:
        """Switch to another disk with the same files; nothing may be unwritten."""
        self._disk = disk
        for pool in (self.files, self.batch_files, self.ext_files):
            pool.close()
            pool.disk = disk

    def _found(self, folder: str) -> Iterator[tuple[str, int]]:
        disk = self._disk
        for topic in disk.list(folder):
            if topic_path(topic) is None:
                warn_of_stray(f"{folder}/{topic}")
                continue
            if not disk.is_folder(f"{folder}/{topic}"):
                warn_of_stray(f"{folder}/{topic}")
                continue
            names = disk.list(f"{folder}/{topic}")
            warn_of_strays(f"{folder}/{topic}", names)
            for name in names:
                if name.isascii() and name.isdigit() and int(name) <= QUEUE_ID_MAX:
                    yield topic, int(name)

    def is_possible(self, topic: str, queue_id: int) -> bool:
        """Whether a queue may have this topic and id, see `create`."""
        return _topic_facts(topic) is not None and 0 <= queue_id <= QUEUE_ID_MAX

    def create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A new, empty queue, a batch queue for one of `batch_topics`; nothing is written yet.

        Returns: None when the topic cannot be a folder's name, or the queue id is not an int32
          >= 0.
        """
        facts = _topic_facts(topic)
        if facts is None or not 0 <= queue_id <= QUEUE_ID_MAX:
            return None
        name, magic, topic_field, topic_hash = facts
        # Existing extensions are read even when no new ones are written.
        ext_folder = f"{self._ext_folder}/{name}/{queue_id}"
        queue: ConsumeQueue
        if topic in self.batch_topics:
            queue = BatchConsumeQueue(
                topic,
                queue_id,
                folder=f"{self._batch_folder}/{name}/{queue_id}",
                files=self.batch_files,
                topic_field=topic_field,
                topic_hash=topic_hash,
            )
        elif self.writes_ext or (self._has_ext and self._disk.exists(ext_folder)):
            queue = ExtendedConsumeQueue(
                topic,
                queue_id,
                folder=f"{self._folder}/{name}/{queue_id}",
                files=self.files,
                topic_field=topic_field,
                magic=magic,
                topic_hash=topic_hash,
                ext=ConsumeQueueExt(ext_folder, self.ext_files),
                writes=self.writes_ext,
                bitmap_of=self.bitmap_of,
            )
        else:
            queue = ConsumeQueue(
                topic,
                queue_id,
                folder=f"{self._folder}/{name}/{queue_id}",
                files=self.files,
                topic_field=topic_field,
                magic=magic,
                topic_hash=topic_hash,
            )
        self.queues[queue.key] = queue
        return queue

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, created if there is none; None as for `create`."""
        return self.queues.get((topic, queue_id)) or self.create(topic, queue_id)

    def end_of(self, topic: str, queue_id: int) -> int:
        """The queue offset after the newest message of the log, visible or not; 0 when there is no
        such queue. What a table remembers of a queue may be up to here."""
        queue = self.queues.get((topic, queue_id))
        return queue.committed_offset if queue is not None else 0

    def physical_end(self) -> int:
        """First byte of the log after the last record that a unit points to."""
        return max((queue.physical_end() for queue in self.queues.values()), default=0)

    def write(self) -> None:
        """Write the visible units that are in memory only to the files.

        Raises:
          StoreIOError: a file could not be written; the rest may still be in memory.
        """
        for queue in self.queues.values():
            if queue.max_offset > queue.tail_offset:
                queue.write()
                self.written(queue)

    def unwritten(self, count_min: int = 1) -> list[ConsumeQueue]:
        """The queues with at least `count_min` visible units that are in memory only."""
        found = [q for q in self.recent() if q.max_offset - q.tail_offset >= count_min]
        return [q for q in found if self.queues.get(q.key) is q]

    def recent(self) -> list[ConsumeQueue]:
        """Queues that may have visible units in memory only; no other has any.

        A checkpoint writes all units, so these have changed since. Some may have been deleted.
        """
        waiting = self._unwritten
        if not waiting:
            return list(self.changed)
        return [*waiting, *(queue for queue in self.changed if queue not in waiting)]

    def written(self, queue: ConsumeQueue) -> None:
        """Note that a queue has no visible units in memory only: it was written, or deleted."""
        self._unwritten.pop(queue, None)

    def take_changed(self, count_max: int) -> list[ConsumeQueue]:
        """Remove queues from `changed`, the first `count_max` of them, and return them.

        Some may have been deleted since, or replaced by another queue with their key.
        """
        changed = self.changed
        taken = list(islice(changed, count_max))
        if len(taken) == len(changed):
            changed.clear()
        else:
            for queue in taken:
                del changed[queue]
        for queue in taken:
            if queue.max_offset > queue.tail_offset:
                self._unwritten[queue] = None
        return taken

    def note_all_changed(self) -> None:
        """Add every queue to `changed`."""
        self.changed.update(dict.fromkeys(self.queues.values()))

    def sync(self, paths: Iterable[str]) -> None:
        """Sync these files and folders; may run in a worker thread.

        Raises:
          StoreIOError: one could not be synced, now or at an earlier call: it is unknown what was
            lost, so no checkpoint may be written until the queues are recovered.
        """
        if self._sync_failure is not None:
            raise StoreIOError(self._sync_failure.path, self._sync_failure.reason)
        paths = list(paths)
        try:
            if not self._disk.sync_together(paths):
                for path in sorted(paths):  # the same order in each run of a test
                    self._sync_one(path)
        except StoreIOError as error:
            self._sync_failure = error
            raise
        except Exception as error:
            unexpected = f"fsync failed: {type(error).__name__}: {error}"
            self._sync_failure = StoreIOError("the queue files", unexpected)
            raise self._sync_failure from error

    def put_back_unsynced(self, paths: Iterable[str]) -> None:
        """Undo `take_unsynced` for paths whose sync was not started."""
        self.files.unsynced |= set(paths)

    def _sync_one(self, path: str) -> None:
        """Sync a file, opened separately because the pool is not for threads, or a folder."""
        if self._disk.is_folder(path):
            self._disk.sync_folder(path)
        elif self._disk.exists(path):
            file = self._disk.open(path)
            try:
                file.sync()
            finally:
                file.close()

    def mark_folders_unsynced(self, known: Collection[tuple[str, int]]) -> None:
        """Mark the folders of queues that no checkpoint covers as unsynced.

        The process that created them may have died before it synced them: the folders exist now,
        but may not after a power cut.

        Args:
          known: the queues that the last checkpoint covers.
        """
        for key, queue in self.queues.items():
            if key in known:
                continue
            of_queue = [queue.folder]
            if isinstance(queue, ExtendedConsumeQueue):
                of_queue.append(queue.ext.folder)
            for folder in of_queue:
                topic_folder = folder.rpartition("/")[0]
                folders = {folder, topic_folder, topic_folder.rpartition("/")[0]}
                queue.files.unsynced |= {each for each in folders if self._disk.exists(each)}

    def take_unsynced(self) -> list[str]:
        """The files written to, and the folders with new entries, since the last call; in no
        order, as 50,000 paths take 20 ms to sort."""
        paths: list[str] = []
        for pool in (self.ext_files, self.files, self.batch_files):
            paths += pool.unsynced
            pool.unsynced = set()
        return paths

    def topics(self) -> dict[str, list[int]]:
        """Queue ids by topic, both sorted."""
        found: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self.queues):
            found.setdefault(topic, []).append(queue_id)
        return found

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Remove all queues of these topics; the messages stay in the log until it is cleaned.

        Returns: how many of the topics had queues.

        Raises:
          StoreIOError: a file could not be removed.
        """
        deleted = 0
        keys_of: dict[str, list[tuple[str, int]]] = {topic: [] for topic in topics}
        for key in self.queues:
            if key[0] in keys_of:
                keys_of[key[0]].append(key)
        for topic, keys in keys_of.items():
            for key in keys:
                queue = self.queues.pop(key)
                self.written(queue)
                queue.remove()
            name = topic_path(topic)
            if keys and name is not None:
                for folder in (self._folder, self._batch_folder, self._ext_folder):
                    self._disk.remove_folder(f"{folder}/{name}")
                deleted += 1
            self.batch_topics.discard(topic)
        return deleted

    def remove_all(self) -> None:
        """Remove every queue: there is no log that they could point into.

        Raises:
          StoreIOError: a file could not be removed.
        """
        batch_topics = set(self.batch_topics)
        self.delete_topics([topic for topic, _ in self.queues])
        self.batch_topics |= batch_topics

    def close(self) -> None:
        for pool in (self.files, self.batch_files, self.ext_files):
            pool.close()


def offset_by_time(
    queue: ConsumeQueue,
    timestamp_ms: int,
    boundary: BoundaryType,
    time_at: Callable[[int], int],
) -> int:
    """The queue offset for a store timestamp.

    LOWER: the first message stored at or after it; UPPER: the last stored at or before it. As in
    Apache, UPPER of a time before the first message is 0, LOWER of a time after the last is the
    queue's next offset; the result is then limited to [min, max]. Unreadable messages count as
    newer than they may be: the result is then too early, so that no message is skipped.

    Args:
      time_at: store timestamp (ms) of the message at a queue offset; raises CorruptRecordError
        for an unreadable message.

    Raises:
      StoreIOError: a file could not be read.

    Source: RocketMQ 5.3.3 store/ConsumeQueue.java binarySearchInQueueByTime, ConsumeQueueStore.java
      getOffsetInQueueByTime.
    """
    if isinstance(queue, BatchConsumeQueue):
        return queue.offset_by_time(timestamp_ms, boundary)
    low, high = queue.min_offset, queue.max_offset
    after = boundary is BoundaryType.LOWER
    while low < high:
        middle = (low + high) // 2
        readable, stored_ms = _next_time(middle, min(high, middle + UNREADABLE_MAX), time_at)
        if stored_ms < timestamp_ms or (not after and stored_ms == timestamp_ms):
            low = readable + 1
        else:
            high = middle
    return low if after else max(low - 1, queue.min_offset)


def _next_time(start: int, end: int, time_at: Callable[[int], int]) -> tuple[int, int]:
    """The first readable message in [start, end), and its time; `TIME_MAX` if there is none."""
    for queue_offset in range(start, end):
        try:
            return queue_offset, time_at(queue_offset)
        except CorruptRecordError:
            continue
    return end, TIME_MAX
