"""The message store: what brokers put messages into and get them out of.

Java counterpart: store/DefaultMessageStore.java and the append half of CommitLog.java of 5.3.3. The
files are Apache's, to the byte (docs/formats/).

Use::

    store = MessageStore(MessageStoreConfig(store_path_root_dir="…"))
    store.load()                        # lock, recover
    await nursery.start(store.run)      # the services
    store.begin_burst()                 # once per burst of requests:
    store.put_message(…)                #   any number of puts
    for topic, queue_id in store.commit(): …    # one write; wake waiting pulls, then answer
    …                                   # cancel run() and let it end, then
    store.close()

Invariants: an answer given after `commit` returned is in the file (the process may die). Under
SYNC_FLUSH nothing is readable before it is on the device. Store timestamps never go back. A put
that was refused, and a commit that failed, leave nothing behind.

One task owns a store; nothing here is for other threads. No call blocks but for the disk: `commit`
is one pwrite, a new commit log file is made ahead in a worker thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

import trio

from .checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from .clock import Clock, SystemClock
from .commit_log import CommitLog
from .config import MessageStoreConfig
from .consume_queue_store import ConsumeQueueStore, offset_by_time
from .disk import Disk, OsDisk, total_memory_bytes
from .errors import StoreError
from .index_service import IndexService
from .loader import Loader
from .log_scanner import LogScanner
from .message_appender import BatchResult, MessageAppender, PutResult
from .message_reader import GetMessageResult, MessageReader, QueryResult
from .services import run_services
from .status import BoundaryType, GetMessageStatus, PutMessageStatus

__all__ = [
    "BatchResult",
    "BoundaryType",
    "GetMessageResult",
    "GetMessageStatus",
    "MessageStore",
    "PutMessageStatus",
    "PutResult",
    "QueryResult",
]

logger = logging.getLogger(__name__)


class MessageStore(MessageAppender):
    """All messages of one broker. Puts and `commit` are inherited from `MessageAppender`.

    Args:
      config: sizes, paths, flush type.
      clock, disk: the seams; by default the machine's.
      memory_bytes: the machine's memory, for `accessMessageInMemoryMaxRatio`.

    Attributes:
      now_ms: the store timestamp of the puts to come; see `begin_burst`.
      read_only: a failed fsync or write made the store refuse every put until it is opened again.
      refusal: why the last put was refused or the last commit failed; for remarks and the log.
      on_visible: called under SYNC_FLUSH with the (topic, queue_id) that an fsync made visible
        (under ASYNC_FLUSH `commit` returns them).
      on_read_only: called once when the store turns read-only.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self.disk: Disk = disk if disk is not None else OsDisk()
        self.checkpoint = Checkpoint()
        clock = clock if clock is not None else SystemClock()
        root = config.store_path_root_dir
        log = CommitLog(self.disk, config.commit_log_folder, config.mapped_file_size_commit_log)
        index = IndexService(
            self.disk,
            clock,
            f"{root}/index",
            slot_count=config.max_hash_slot_num,
            index_count_max=config.max_index_num,
            read_log=self._read_log,
        )
        queue_store = ConsumeQueueStore(self.disk, root, file_size=config.queue_file_size)
        super().__init__(config, clock, log, queue_store, index)
        memory = memory_bytes if memory_bytes is not None else total_memory_bytes()
        self._reader = MessageReader(log, queue_store.queues, index, config, memory)

    # ---- opening and closing -------------------------------------------------------------

    def load(self) -> None:
        """Lock the data folder, recover, and be ready for puts.

        Raises:
          StoreLockedError: another process has the folder open.
          CorruptRecordError: files that must not be cut or rebuilt are damaged.
          StoreIOError: the folder or a file could not be read or written.
        """
        root, disk = self.config.store_path_root_dir, self.disk
        disk.make_folder(root)
        disk.lock(f"{root}/lock")
        try:
            abort = f"{root}/abort"
            clean = not disk.exists(abort)
            self.checkpoint = read_checkpoint(disk, f"{root}/checkpoint")
            loader = Loader(self.config, self.log, self.queue_store, self.checkpoint, clean=clean)
            end, self.now_ms = loader.recover()
            self._start_at(end)
            self._load_index(clean=clean, end=end)
            if not (clean and self.checkpoint.dispatched_offset == end):
                self._sync_recovered(end)
            file = disk.open(abort, create=True)
            file.pwrite(str(os.getpid()).encode(), 0)
            file.close()
            disk.sync_folder(root)
        except StoreError:
            self.queue_store.close()
            self.log.close()
            disk.unlock(f"{root}/lock")
            raise
        self._is_open = True
        self.begin_burst()

    def _sync_recovered(self, end: int) -> None:
        """Have on the device, and in the checkpoint, what recovery has found and built."""
        for file in self.log.files.values():
            file.sync()
        self.queue_store.write()
        self.queue_store.sync(self.queue_store.take_unsynced())
        self.note_checkpoint(end, self.now_ms)

    def _load_index(self, *, clean: bool, end: int) -> None:
        if not self.config.message_index_enable:
            return
        whole = self.index.load(
            clean=clean, index_msg_timestamp_ms=self.checkpoint.index_msg_timestamp_ms
        )
        if end > self.log.min_offset and not (clean and whole):
            self.index.catch_up_from(max(self.index.end_physical_offset, self.log.min_offset))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the services until cancelled: fsync, queue files, checkpoint, index, files ahead."""
        await run_services(self, task_status=task_status)

    def close(self) -> None:
        """Commit and flush everything, remove the abort file, unlock. Again: nothing.

        The abort file stays when something could not be written: the next start then recovers.
        """
        if not self._is_open:
            return
        self._is_open = False
        root = self.config.store_path_root_dir
        try:
            if self._pending:
                self.commit()
            self.flusher.flush()
            self.queue_store.write()
            if not self.read_only:
                self.index.close()
                self.queue_store.sync(self.queue_store.take_unsynced())
                self.note_checkpoint(self._dispatched_offset, self.now_ms)
                self.log.remove_from(self._used_files_end())
                self.disk.unlink(f"{root}/abort")
                self.disk.sync_folder(root)
        except StoreError:
            logger.exception("the store could not be closed cleanly; the next start recovers it")
        finally:
            self.queue_store.close()
            self.log.close()
            self.disk.unlock(f"{root}/lock")

    # ---- reading -------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        count_max: int,
        size_max: int = 0x7FFFFFFF,
        tags_codes: frozenset[int] | None = None,
    ) -> GetMessageResult:
        """Messages from a queue offset on; see `MessageReader.get_message`."""
        return self._reader.get_message(
            topic, queue_id, queue_offset, count_max, size_max, tags_codes, self._committed_offset
        )

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset after the newest visible message; 0 when there is no such queue."""
        queue = self._queues.get((topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The oldest queue offset whose message is still there; 0 when there is no such queue."""
        queue = self._queues.get((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The queue offset that a store timestamp (ms) stands for; 0 when there is no such queue.

        LOWER: the first message stored at or after it (the next offset to come if none); UPPER: the
        last one stored at or before it (the oldest if none).

        Raises:
          StoreIOError: a file could not be read.
        """
        queue = self._queues.get((topic, queue_id))
        return offset_by_time(self.log, queue, timestamp_ms, boundary) if queue is not None else 0

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store timestamp (ms) of the queue's oldest message; -1 if it has none."""
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store timestamp (ms) of one message; -1 if there is none.

        Raises:
          StoreIOError: a file could not be read.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return -1
        return self.log.store_timestamp_ms(queue.unit_at(queue_offset)[0])

    def physical_offset_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Physical offset of one message; -1 if there is none.

        Raises:
          StoreIOError: a file could not be read.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return -1
        return queue.unit_at(queue_offset)[0]

    def message_at(self, physical_offset: int) -> memoryview | None:
        """The record at a physical offset, which may come from a peer; None when none starts there.

        Only what is visible is found.
        """
        if not self.min_physical_offset <= physical_offset < self._dispatched_offset:
            return None
        return self._reader.record_at(physical_offset, self._dispatched_offset)

    def query_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryResult:
        """Messages with a key or unique key, oldest first; see `MessageReader.query_by_key`."""
        return self._reader.query_by_key(
            topic, key, count_max, begin_ms, end_ms, self._dispatched_offset
        )

    @property
    def min_physical_offset(self) -> int:
        """Where the oldest commit log file begins, bytes."""
        return self.log.min_offset

    @property
    def dispatched_offset(self) -> int:
        """Up to where the log is visible in the queues, bytes."""
        return self._dispatched_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes that are in the log but not visible yet: waiting for their fsync."""
        return self._committed_offset - self._dispatched_offset

    def topics(self) -> dict[str, list[int]]:
        """Queue ids by topic, of all queues there are."""
        return self.queue_store.topics()

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Remove the queues of these topics; their messages stay in the log until it is cleaned.

        Returns: how many of them had queues.

        Raises:
          StoreIOError: a file could not be removed.
        """
        if self._pending:
            self.commit()
        gone = set(topics)
        self._hidden = [
            (end, [entry for entry in ends if entry[0].key[0] not in gone], items)
            for end, ends, items in self._hidden
        ]
        return self.queue_store.delete_topics(gone)

    # ---- for the services ----------------------------------------------------------------

    def note_checkpoint(self, dispatched_offset: int, timestamp_ms: int) -> None:
        """Write the checkpoint; all before `dispatched_offset` was synced, log and queues.

        Args:
          timestamp_ms: no record before that offset has a later store timestamp.

        Raises:
          StoreIOError: it could not be written.
        """
        checkpoint = replace(
            self.checkpoint,
            physic_msg_timestamp_ms=timestamp_ms,
            logics_msg_timestamp_ms=timestamp_ms,
            dispatched_offset=dispatched_offset,
            index_msg_timestamp_ms=max(
                self.checkpoint.index_msg_timestamp_ms, self.index.finished_timestamp_ms
            ),
        )
        write_checkpoint(self.disk, f"{self.config.store_path_root_dir}/checkpoint", checkpoint)
        self.checkpoint = checkpoint

    def _read_log(self, start: int) -> Iterator[tuple[str, int, bytes, int, int, int]]:
        """Visible records from an offset on, for the index (see `index_service.LogReader`)."""
        scanner = LogScanner(self.log, start, check_crc=False, stop=lambda: self._dispatched_offset)
        for record in scanner.records():
            yield (
                record.topic,
                record.sys_flag,
                record.properties_bytes,
                record.physical_offset,
                record.store_timestamp_ms,
                record.physical_offset + record.store_size,
            )
