"""The appender of a slave: a master's bytes at the same offsets, and their queue units.

Java counterpart: CommitLog.appendData of 5.3.3. `ha/copier.py` decides what is appended.
"""

from __future__ import annotations

from ...disk.errors import StoreIOError
from ..checkpoint_writer import CheckpointWriter
from ..format import UNIT
from ..log.commit_log import CommitLog
from ..queues.consume_queue import PRE_BLANK, ConsumeQueue
from .dispatcher import Dispatcher
from .log_writer import LogWriter

_pack_unit = UNIT.pack


class CopyAppender:
    """Adds bytes that a slave's copier has checked to the next `LogWriter.commit`.

    Args:
      writer, dispatcher, checkpoints: the store's parts.
    """

    def __init__(
        self,
        log: CommitLog,
        writer: LogWriter,
        dispatcher: Dispatcher,
        checkpoints: CheckpointWriter,
    ) -> None:
        self._log = log
        self._writer = writer
        self._burst = writer.burst
        self._dispatcher = dispatcher
        self._checkpoints = checkpoints

    def begin(self, physical_offset: int) -> None:
        """Begin the log of an empty slave where its master's begins.

        Args:
          physical_offset: the start of a file.

        Raises:
          StoreIOError: there is no room for the first file, or its offset could not be recorded.
        """
        assert self._writer.committed_offset == 0, "the log has begun"
        if physical_offset > 0:
            # Recorded first: without that a log that begins after 0 has lost files.
            self._checkpoints.begin_midway(physical_offset)
            if self._log.files:
                self._log.remove_from(0)
                self._log.disk.sync_folder(self._log.folder)
            self._writer.take_file(physical_offset)
            self._writer.start_at(physical_offset)

    def append(self, data: bytes | memoryview) -> None:
        """Append bytes of a master's log.

        Args:
          data: the bytes at the log's end, within one file.

        Raises:
          StoreIOError: there is no room for a new file; all since the last commit is rolled back.
        """
        burst, file_size = self._burst, self._log.file_size
        base = burst.append_offset - burst.append_offset % file_size
        assert burst.append_offset + len(data) <= base + file_size, "two files"
        if base not in self._log.files:
            try:
                self._writer.take_file(base)
            except StoreIOError:
                self._writer.roll_back()
                raise
        if burst.pending and base > burst.pending_start:
            burst.end_file()
        if not burst.pending:
            burst.pending_start = burst.append_offset
        burst.pending.append(data)
        burst.append_offset += len(data)

    def append_record(
        self,
        queue: ConsumeQueue,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        properties: bytes,
    ) -> None:
        """Append unit and index item of a copied record: the usual case, next of a plain queue."""
        if queue.append_units(_pack_unit(physical_offset, size, tags_code), 1):
            self._burst.touched.append(queue)
        self._burst.index_items.append(
            (queue.topic_hash, properties, physical_offset, store_timestamp_ms)
        )

    def append_unit(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        properties: bytes,
    ) -> None:
        """Append the unit of a copied record to its queue; the next `commit` makes it visible.

        The record's bytes are appended by `append`, before that commit.

        Args:
          queue_offset: the queue's next one; a queue of batches may skip some.
          size: of the record, bytes.
          tags_code: of its tags; in a delay queue the delivery time, ms.
          properties: of the record, encoded.
        """
        if queue.next_offset == queue.committed_offset:
            self._burst.touched.append(queue)
        queue.next_offset = queue_offset
        queue.append_put(physical_offset, size, tags_code, store_timestamp_ms, properties)

    def append_blanks(self, queue: ConsumeQueue, count: int) -> None:
        """As `append_unit`, for `count` messages that are not in the log."""
        if queue.append_units(PRE_BLANK * count, count):
            self._burst.touched.append(queue)

    def append_index_item(
        self, topic_hash: int, properties: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        """Index a copied record once the next `commit` has made it visible."""
        self._burst.index_items.append(
            (topic_hash, properties, physical_offset, store_timestamp_ms)
        )

    def cut_queue(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Remove units that contradict the copied records. Nothing may be pending.

        Args:
          queue_offset: of the first unit to remove; 0: all.

        Raises:
          StoreIOError: a file could not be changed.
        """
        visible = queue.max_offset
        if queue_offset == 0:
            queue.remove()
        else:
            queue.cut_at(queue_offset)
        queue.max_offset = min(visible, queue.next_offset)
        queue.note_change()
        self._dispatcher.cut(queue)

    def empty_queue(self, queue: ConsumeQueue) -> None:
        """Remove all units of a queue whose topic was deleted and created again.

        Raises:
          StoreIOError: a file could not be removed.
        """
        self._checkpoints.forget_queue(queue.key)
        self.cut_queue(queue, 0)
