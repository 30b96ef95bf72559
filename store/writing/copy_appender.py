"""The appender of a slave: a master's bytes at the same offsets, and the queues that they make.

Java counterpart: CommitLog.appendData of 5.3.3. `ha/copier.py` decides what is appended.
"""

from __future__ import annotations

from ..checkpoint_writer import CheckpointWriter
from ..errors import StoreIOError
from ..format import UNIT
from ..log.commit_log import CommitLog
from ..queues.consume_queue import PRE_BLANK, ConsumeQueue
from .dispatcher import Dispatcher
from .log_writer import LogWriter

_pack_unit = UNIT.pack


class CopyAppender:
    """Appends what a slave's copier has checked to what the next `LogWriter.commit` writes.

    Args:
      log: the store's.
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
        """Let the log of a slave that has nothing begin where its master's does.

        Args:
          physical_offset: where a file begins.

        Raises:
          StoreIOError: there is no room for the first file, or it could not be noted.
        """
        assert self._writer.committed_offset == 0, "the log has begun"
        if physical_offset > 0:
            # Noted first: a log that begins behind 0 looks as if files were lost.
            self._checkpoints.begin_midway(physical_offset)
            if self._log.files:
                self._log.remove_from(0)
                self._log.disk.sync_folder(self._log.folder)
            self._writer.take_file(physical_offset)
            self._writer.start_at(physical_offset)

    def append(self, data: bytes | memoryview) -> None:
        """Append bytes of a master's log.

        Args:
          data: what follows there; of one file.

        Raises:
          StoreIOError: there is no room for a new file; all since the last commit is undone.
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
        """Append what a copied record makes that is just the next one of a plain queue."""
        if queue.next_offset == queue.committed_offset:
            self._burst.touched.append(queue)
        queue.tail += _pack_unit(physical_offset, size, tags_code)
        queue.next_offset += 1
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
        """Append the unit of a copied record to its queue, to be shown by the next `commit`.

        The bytes of the record follow by `append`, before that commit.

        Args:
          queue_offset: the queue's next one; a queue of batches may leave some out.
          others: of the record.
        """
        if queue.next_offset == queue.committed_offset:
            self._burst.touched.append(queue)
        queue.next_offset = queue_offset
        queue.append_put(physical_offset, size, tags_code, store_timestamp_ms, properties)

    def append_blanks(self, queue: ConsumeQueue, count: int) -> None:
        """As `append_unit`, for `count` messages that are not in the log."""
        if queue.next_offset == queue.committed_offset:
            self._burst.touched.append(queue)
        queue.tail += PRE_BLANK * count
        queue.next_offset += count

    def append_index_item(
        self, topic_hash: int, properties: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        """Have a copied record indexed once the next `commit` shows it."""
        self._burst.index_items.append(
            (topic_hash, properties, physical_offset, store_timestamp_ms)
        )

    def cut_queue(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Take units back that copied records overrule; nothing is shown by that.

        Nothing is pending.

        Args:
          queue_offset: of the first unit to go; 0: all go.

        Raises:
          StoreIOError: a file could not be changed.
        """
        visible = queue.max_offset
        if queue_offset == 0:
            queue.remove()
        else:
            queue.cut_at(queue_offset)
        queue.max_offset = min(visible, queue.next_offset)
        self._dispatcher.cut(queue)

    def empty_queue(self, queue: ConsumeQueue) -> None:
        """Remove what a queue has: its topic was deleted and made again.

        Raises:
          StoreIOError: a file could not be removed.
        """
        self._checkpoints.forget_queue(queue.key)
        self.cut_queue(queue, 0)
