"""All consume queues: by key, from the folders, into the folders.

Java counterpart: store/queue/ConsumeQueueStore.java of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..remoting.errors import LocalProtocolError
from ..remoting.java_hash import hash_prefix
from ..remoting.message_codec import record_topic
from .commit_log import CommitLog
from .consume_queue import ConsumeQueue, QueueFiles
from .disk import Disk
from .status import BoundaryType
from .topic_path import topic_path

logger = logging.getLogger(__name__)

QUEUE_ID_MAX = 0x7FFFFFFF
"""Queue ids are int32 on the wire; a folder's name beyond it was not made by a broker."""


class ConsumeQueueStore:
    """The queues of a store. Owned by the store's task.

    Args:
      disk: where they lie.
      root: the data folder.
      file_size: bytes of one queue file.
    """

    def __init__(self, disk: Disk, root: str, *, file_size: int) -> None:
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.files = QueueFiles(disk, file_size)
        self.batch_topics: frozenset[str] = frozenset()
        self._disk = disk
        self._folder = f"{root}/consumequeue"
        self._batch_folder = f"{root}/batchconsumequeue"

    def load(self) -> None:
        """Open every queue there is a folder of.

        Raises:
          StoreIOError, CorruptRecordError: see `ConsumeQueue.load`.
        """
        disk = self._disk
        # Queues of batches (BatchCQ) have files of their own; their topics are left alone.
        self.batch_topics = frozenset(disk.list(self._batch_folder))
        for topic in disk.list(self._folder):
            if topic_path(topic) is None:
                logger.warning("%s/%s is no topic's folder; it is left alone", self._folder, topic)
                continue
            for name in disk.list(f"{self._folder}/{topic}"):
                if name.isascii() and name.isdigit() and int(name) <= QUEUE_ID_MAX:
                    queue = self.create(topic, int(name))
                    if queue is not None:
                        queue.load()

    def create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A new, empty queue; nothing is written yet.

        Returns: None when the topic cannot be a folder's name, or the queue id is no int32 >= 0.
        """
        name = topic_path(topic)
        if name is None or not 0 <= queue_id <= QUEUE_ID_MAX:
            return None
        try:
            magic, topic_field = record_topic(topic)
        except LocalProtocolError:
            return None
        queue = ConsumeQueue(
            topic,
            queue_id,
            folder=f"{self._folder}/{name}/{queue_id}",
            files=self.files,
            topic_field=topic_field,
            magic=magic,
            topic_hash=hash_prefix(f"{topic}#"),
        )
        self.queues[queue.key] = queue
        return queue

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, made if there is none; None as `create`."""
        return self.queues.get((topic, queue_id)) or self.create(topic, queue_id)

    def physical_end(self) -> int:
        """The highest byte of the log that a unit points behind."""
        return max((queue.physical_end() for queue in self.queues.values()), default=0)

    def write(self) -> None:
        """Write what is visible and in memory only to the files.

        Raises:
          StoreIOError: one could not be written; the rest may still be in memory.
        """
        for queue in self.unwritten():
            queue.write()

    def unwritten(self, count_min: int = 1) -> list[ConsumeQueue]:
        """The queues with at least so many visible units that are in memory only."""
        return [q for q in self.queues.values() if q.max_offset - q.tail_offset >= count_min]

    def sync(self, paths: Iterable[str]) -> None:
        """Sync these files; may run in a worker thread (each is opened on its own).

        Raises:
          StoreIOError: one could not be synced.
        """
        for path in paths:
            if self._disk.exists(path):
                file = self._disk.open(path)
                try:
                    file.sync()
                finally:
                    file.close()

    def take_unsynced(self) -> list[str]:
        """The files written to since the last call."""
        paths = sorted(self.files.unsynced)
        self.files.unsynced = set()
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
        for topic in set(topics):
            keys = [key for key in self.queues if key[0] == topic]
            for key in keys:
                self.queues.pop(key).remove()
            name = topic_path(topic)
            if keys and name is not None:
                self._disk.remove_folder(f"{self._folder}/{name}")
                deleted += 1
        return deleted

    def remove_all(self) -> None:
        """Remove every queue: there is no log that they could point into.

        Raises:
          StoreIOError: a file could not be removed.
        """
        self.delete_topics([topic for topic, _ in self.queues])

    def close(self) -> None:
        """Close the files."""
        self.files.close()


def offset_by_time(
    log: CommitLog, queue: ConsumeQueue, timestamp_ms: int, boundary: BoundaryType
) -> int:
    """The queue offset that a store timestamp stands for.

    LOWER: the first message stored at or after it; UPPER: the last stored at or before it. As in
    Apache, UPPER of a time before the first message is 0, LOWER of one after the last is the next
    offset to come; the answer is then brought into [min, max].

    Raises:
      StoreIOError: a file could not be read.

    Source: RocketMQ 5.3.3 store/ConsumeQueue.java binarySearchInQueueByTime, ConsumeQueueStore.java
      getOffsetInQueueByTime.
    """
    low, high = queue.min_offset, queue.max_offset
    after = boundary is BoundaryType.LOWER
    while low < high:
        middle = (low + high) // 2
        stored_ms = log.store_timestamp_ms(queue.unit_at(middle)[0])
        if stored_ms < timestamp_ms or (not after and stored_ms == timestamp_ms):
            low = middle + 1
        else:
            high = middle
    return low if after else max(low - 1, queue.min_offset)
