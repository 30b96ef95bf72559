"""The message store: what brokers put messages into and get them out of.

Java counterpart: store/DefaultMessageStore.java and the append half of CommitLog.java of 5.3.3. The
files are Apache's, to the byte (docs/formats/).

Use::

    store = MessageStore(MessageStoreConfig(store_path_root_dir="…"))
    store.load()                        # lock, recover
    await nursery.start(run_services, store)
    store.begin_burst()                 # once per burst of requests:
    store.put_message(…)                #   any number of puts
    for topic, queue_id in store.commit(): …    # one write; wake waiting pulls, then answer
    …                                   # cancel the services and let them end, then
    store.close()

Invariants: an answer given after `commit` returned is in the file (the process may die). Under
SYNC_FLUSH nothing is readable before it is on the device. Store timestamps never go back. A put
that was refused, and a commit that failed, leave nothing behind.

One task owns a store; nothing here is for other threads. No call blocks but for the disk: `commit`
is one pwrite, a new commit log file is made ahead in a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from .clock import Clock, SystemClock
from .config import MessageStoreConfig
from .disk.data_folder import hold_lock, make_root, note_open
from .disk.os_disk import Disk, OsDisk, total_memory_bytes
from .errors import CorruptRecordError, StoreError, StoreIOError, StoreLockedError
from .index.index_loading import LogSpan
from .index.index_service import IndexService, IndexState
from .log.commit_log import CommitLog
from .log.log_reader import NOWHERE, LogReader, record_at
from .next_checkpoint import next_checkpoint
from .queues.consume_queue import ConsumeQueue
from .queues.consume_queue_store import ConsumeQueueStore, offset_by_time
from .queues.deleted_topics import DeletedTopics
from .queues.queue_ends import QueueEnds, QueueEndsFile
from .reading.message_reader import GetMessageResult, MessageReader, QueryResult
from .reading.record_filter import RecordFilter
from .recovery.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from .recovery.doubt import clear_doubt, note_doubt, read_doubt
from .recovery.loader import Loader
from .retention.disk_space import DiskUse, measure
from .status import BoundaryType, GetMessageStatus, PutMessageStatus
from .writing.message_appender import BatchResult, MessageAppender, PutResult

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
      read_only: the store refuses every put until it is opened again: a fsync or write failed, or
        `load` found a hole in the log. In the latter case nothing in the folder is changed; what
        is readable is served.
      verified_from: where the log ended when it was opened; bytes behind it this process wrote.
      newest_at_start_ms: store timestamp of the newest message when it was opened; 0: it had none.
      own_from: from this physical offset on all records are known to be written by this program.
      queues_failed: queue files could not be synced. Nothing is vouched for from then on: the next
        start makes their units again from the log.
      disk_full: why puts are refused until there is room again; "": there is.
      refusal: why the last put was refused or the last commit failed; for remarks and the log.
      deleted_topics: the names of topics that were deleted.
      on_visible: called with the (topic, queue_id) that became visible without a caller's `commit`,
        which returns them: by an fsync under SYNC_FLUSH, or before topics are deleted.
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
        queue_store = ConsumeQueueStore(
            self.disk,
            root,
            file_size=config.queue_file_size,
            batch_file_size=config.batch_queue_file_size,
            ext_file_size=config.mapped_file_size_consume_queue_ext,
            writes_ext=config.enable_consume_queue_ext,
        )
        super().__init__(config, clock, log, queue_store, index)
        self.verified_from = self.newest_at_start_ms = 0
        self.own_from = 0
        self.queues_failed = False
        known = QueueEnds(-1, config.queue_file_size)
        self._ends_file = QueueEndsFile(self.disk, root, known)
        self.deleted_topics = DeletedTopics(self.disk, root)
        memory = memory_bytes if memory_bytes is not None else total_memory_bytes()
        self._reader = MessageReader(log, queue_store.queues, index, config, memory)

    # ---- opening and closing -------------------------------------------------------------

    def load(self) -> None:
        """Lock the data folder, recover, and be ready for puts, or `read_only`.

        Raises:
          StoreLockedError: another process has the folder open.
          CorruptRecordError: files have another size than configured; nothing was changed.
          StoreIOError: the folder or a file could not be read or written.
        """
        root, disk = self.config.store_path_root_dir, self.disk
        make_root(disk, root)
        disk.lock(f"{root}/lock")
        try:
            clean = not disk.exists(f"{root}/abort")
            self.deleted_topics.load()
            self.checkpoint = read_checkpoint(disk, f"{root}/checkpoint")
            loader = Loader(
                self.config,
                self.log,
                self.queue_store,
                self.checkpoint,
                disk,
                clean=clean,
                wall_ms=self.clock.wall_ms(),
            )
            found = loader.look()
            self.now_ms, self.verified_from = found.newest_ms, found.end
            self.newest_at_start_ms = found.newest_ms
            doubt = read_doubt(disk, root, self.log.end_of_files)
            if not found.refusal:
                if not found.as_closed:
                    note_doubt(disk, root, min(found.start, doubt) if doubt >= 0 else found.start)
                loader.settle_log()
                note_open(disk, self.config)
            loader.build_queues()
            self._ends_file.known = loader.ends
            self.own_from = min(loader.own_from, found.end)
            self._start_at(found.end)
            if found.refusal:
                self._freeze(found.refusal)
            self._reader.opened(found.end, self.own_from)
            self.queue_store.files.drop_pages()  # as the files were before they were put right
            self._load_index(clean=clean, end=found.end)
            if not (found.refusal or found.as_closed):
                self.queue_store.doubt_folders(known=loader.ends.ends)
                self._sync_recovered(found.start, found.end, doubt)
        except StoreError:
            self.queue_store.close()
            self.log.close()
            disk.unlock(f"{root}/lock")
            raise
        self._is_open = True
        self.begin_burst()

    def _freeze(self, refusal: str) -> None:
        self.read_only = True
        self.refusal = self.read_only_reason = refusal
        self._file_end = -1
        logger.critical("%s", refusal)

    def _sync_recovered(self, start: int, end: int, doubt: int) -> None:
        """Have on the device, and in the checkpoint, what recovery has found and built."""
        if doubt >= 0:
            self.log.write_again(doubt)
            start = min(start, doubt)
        for base, file in self.log.files.items():
            if base + self.log.file_size > start:
                file.sync()
        self.queue_store.write()
        self.queue_store.sync(self.queue_store.take_unsynced())
        self.note_checkpoint(end, self.now_ms, self.index_state())
        clear_doubt(self.disk, self.config.store_path_root_dir)

    def _turn_read_only(self, error: StoreIOError) -> None:
        note_doubt(self.disk, self.config.store_path_root_dir, self.flusher.flushed_offset)
        super()._turn_read_only(error)

    def _load_index(self, *, clean: bool, end: int) -> None:
        if self.config.message_index_enable:
            latest_ms = max(self.now_ms, self.clock.wall_ms())
            log = LogSpan(self.log.min_offset, end, self._is_record, latest_ms)
            self.index.load(self.checkpoint, log, clean=clean, read_only=self.read_only)
        self.checkpoint.index = None  # true of the files as they were; the next one says it anew

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
            if not (self.read_only or self.queues_failed):
                self.index.finish()
                index = self.index_state()
                self.sync_queues(self.queue_store.take_unsynced())
                self.note_checkpoint(self._dispatched_offset, self.now_ms, index)
                self.log.remove_from(self._used_files_end())
                self.disk.unlink(f"{root}/abort")
                self.disk.sync_folder(root)
        except StoreError:
            logger.exception("the store could not be closed cleanly; the next start recovers it")
        finally:
            self.index.close()
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
        record_filter: RecordFilter | None = None,
    ) -> GetMessageResult:
        """Messages from a queue offset on; see `MessageReader.get_message`."""
        end = self._committed_offset
        return self._reader.get_message(
            topic, queue_id, queue_offset, count_max, size_max, tags_codes, end, record_filter
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
        if queue is None:
            return 0
        time_at = partial(self._reader.store_time_at, queue, log_end=self._committed_offset)
        return offset_by_time(queue, timestamp_ms, boundary, time_at)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store timestamp (ms) of the queue's oldest message; -1 if it has none."""
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store timestamp (ms) of one message; -1 if there is none.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: the message is damaged.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return -1
        return self._reader.store_time_at(queue, queue_offset, log_end=self._committed_offset)

    def physical_offset_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Physical offset of one message; -1 if there is none.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: the message is damaged.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return -1
        return self._reader.unit_at(queue, queue_offset, self._committed_offset)[0]

    def tags_code_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The tags code in one message's queue unit (delivery time, ms, in SCHEDULE_TOPIC_XXXX).

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: the message is damaged, or there is none at this offset.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            raise CorruptRecordError(topic, -1, f"queue {queue_id} has no message {queue_offset}")
        code = self._reader.unit_at(queue, queue_offset, self._committed_offset)[2]
        real = queue.real_tags_code(code)
        return 0 if real is None else real

    def is_in_queue(
        self, topic: str, queue_id: int, queue_offset: int, physical_offset: int
    ) -> bool:
        """Whether a queue's message lies at a physical offset.

        `message_at` takes any bytes that look like a record, a message's body may hold such bytes.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: the message is damaged.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return False
        unit = self._reader.unit_at(queue, queue_offset, self._committed_offset)
        return unit[0] == physical_offset

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
    def batch_topics(self) -> set[str]:
        """Topics whose queues are queues of batches (`queue.type=BatchCQ`).

        Those that are stored are found by `load`; the broker adds what it knows, before `load` and
        before the first message of a topic.
        """
        return self.queue_store.batch_topics

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
            # The turn that put this finds nothing new at its end.
            self.on_visible(self.commit_part())
        gone = set(topics)
        self._hidden = [
            (end, [entry for entry in ends if entry[0].key[0] not in gone], items)
            for end, ends, items in self._hidden
        ]
        if not self.read_only:
            self.deleted_topics.add(gone, self.max_physical_offset)
            # First: a start that misses queues it knows of would build them again from the log.
            self._ends_file.forget_topics(gone)
        return self.queue_store.delete_topics(gone)

    def disk_use(self) -> DiskUse:
        """How full the disk is, and what this store takes of it if that is limited.

        Raises:
          StoreIOError: the disk could not be asked.
        """
        return measure(self.disk, self.config)

    # ---- for the services ----------------------------------------------------------------

    def index_state(self) -> IndexState | None:
        """What the next checkpoint may say of the index, see `IndexService.state`."""
        if not self.config.message_index_enable:
            return IndexState(None, 0, None)
        return self.index.state(self._dispatched_offset)

    def queue_ends(self) -> QueueEnds:
        """Where log and queues begin and end as far as they are visible: see queue_ends.py."""
        queues = [(key, queue) for key, queue in self._queues.items() if queue.max_offset]
        return QueueEnds(
            self._dispatched_offset,
            self.config.queue_file_size,
            {key: queue.max_offset for key, queue in queues},
            {key: queue.min_offset for key, queue in queues},
            self.log.min_offset,
            self.log.min_offset,
            self.own_from,
        )

    def note_log_start(self, physical_offset: int) -> None:
        """Have on disk that the log will begin here: before retention removes what is older.

        May run in a worker thread.

        Raises:
          StoreIOError: it could not be written; nothing may be removed then.
        """
        self._ends_file.note_log_start(physical_offset)

    def hold_lock(self) -> None:
        """See that the lock file is still there; the store turns read-only if another has it now.

        Raises:
          StoreIOError: it could not be made again.
        """
        try:
            hold_lock(self.disk, self.config.store_path_root_dir)
        except StoreLockedError as error:
            path = error.path
            reason = "another process took it when it was removed, and may write to this folder"
            super()._turn_read_only(StoreIOError(path, reason))  # nothing is noted: it is not ours
            raise StoreIOError(path, reason) from error

    def sync_queues(self, paths: list[str]) -> None:
        """Have queue files on the device; may run in a worker thread.

        Args:
          paths: what `queue_store.take_unsynced` gave, in the store's task.

        Raises:
          StoreIOError: they are not, and a second try would not tell; see `queues_failed`.
        """
        try:
            self.queue_store.sync(paths)
        except StoreIOError:
            self.queues_failed = True
            raise

    def note_checkpoint(
        self,
        dispatched_offset: int,
        timestamp_ms: int,
        index: IndexState | None = None,
        ends: QueueEnds | None = None,
    ) -> None:
        """Write the checkpoint; all before `dispatched_offset` was synced, log and queues.

        Args:
          timestamp_ms: no record before that offset has a later store timestamp.
          index: what `index_state` gave before the log was synced, its file synced since; None:
            what the checkpoint before said.
          ends: what `queue_ends` gave together with that offset; None: the offset is of now.

        Raises:
          StoreIOError: it could not be written.
        """
        checkpoint = next_checkpoint(self.checkpoint, dispatched_offset, timestamp_ms, index)
        ends = self.queue_ends() if ends is None else ends
        self._ends_file.note(replace(ends, dispatched_offset=dispatched_offset))
        write_checkpoint(self.disk, f"{self.config.store_path_root_dir}/checkpoint", checkpoint)
        self.checkpoint = checkpoint

    # ---- for the copy of a master's log --------------------------------------------------

    def begin_copy(self, physical_offset: int) -> None:
        """Let the log of a slave that has nothing begin where its master's does.

        Args:
          physical_offset: where a file begins.

        Raises:
          StoreIOError: there is no room for the first file, or it could not be noted.
        """
        assert self._committed_offset == 0, "the log has begun"
        if physical_offset > 0:
            # Noted first: a log that begins behind 0 looks as if files were lost.
            self._ends_file.begin_midway(physical_offset)
            if self.log.files:
                self.log.remove_from(0)
                self.disk.sync_folder(self.log.folder)
            self._take_file(physical_offset)
            self._start_at(physical_offset)

    def note_foreign_records(self) -> None:
        """Say that records follow that this program may not have written; see `own_from`.

        Raises:
          StoreIOError: it could not be noted.
        """
        if self.own_from != NOWHERE:
            self._ends_file.note_foreign(NOWHERE)
            self.own_from = NOWHERE

    def empty_queue(self, queue: ConsumeQueue) -> None:
        """Remove what a queue has: its topic was deleted and made again.

        Raises:
          StoreIOError: a file could not be removed.
        """
        self._ends_file.forget_queue(queue.key)
        self.cut_queue(queue, 0)

    def _read_log(self, start: int) -> Iterator[tuple[str, int, bytes, int, int, int]]:
        """Visible records from an offset on, for the index (see `index_service.LogReader`).

        What cannot be read is left out: it cannot be served either.
        """
        while 0 <= start < self._dispatched_offset:
            start = max(start, self.log.min_offset)  # files may go meanwhile
            reader = LogReader(
                self.log, start, check_crc=False, stop=lambda: self._dispatched_offset
            )
            for at, size, topic, _, _, sys_flag, timestamp_ms, properties in reader.scan():
                yield (topic, sys_flag, properties, at, timestamp_ms, at + size)
            start, end = reader.end, self._dispatched_offset
            if self.log.min_offset <= start < end:
                reason = reader.reason or "zeros, or a missing file"
                logger.error("the index leaves out what begins at %d: %s", start, reason)
                hole = reader.skip_damage(end)
                start = hole.end if hole is not None else -1

    def _is_record(self, physical_offset: int) -> bool:
        return record_at(self.log, physical_offset, check_crc=False) is not None
