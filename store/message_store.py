"""The message store: the interface of a broker to its messages on disk.

Java counterpart: store/DefaultMessageStore.java of 5.3.3. The files are Apache's, to the byte
(docs/formats/).

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
SYNC_FLUSH nothing is readable before it is on the device. Store timestamps never decrease. A
refused put and a failed commit leave nothing behind.

One task owns a store; it is not thread-safe. Calls block only for the disk: `commit` is one pwrite,
and the next commit log file is created in advance in a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from ..common.clock import Clock, StoreTimeMs, SystemClock, WallTimeMs
from ..common.steps import at_once
from ..disk.errors import CorruptRecordError, StoreError, StoreIOError, StoreLockedError
from ..disk.os_disk import Disk, OsDisk, total_memory_bytes
from ..native import Extension, extension
from .checkpoint_writer import CheckpointWriter
from .config import BrokerRole, FlushDiskType, MessageStoreConfig
from .data_folder import hold_lock
from .format import UNIT, Key
from .index.index_service import IndexService
from .log.commit_log import CommitLog
from .offsets import PhysicalOffset, QueueOffset
from .opening import Opened, StoreOpening
from .queues.consume_queue_store import ConsumeQueueStore, offset_by_time
from .queues.deleted_topics import DeletedTopics
from .reading.message_reader import GetMessageResult, MessageReader, QueryResult
from .reading.visible_log import VisibleLog
from .recovery.doubt import note_failed_sync
from .status import (
    BatchResult,
    BoundaryType,
    GetMessageStatus,
    PutMessageStatus,
    PutRefusal,
    PutResult,
)
from .store_state import StoreEvent, StoreState
from .writing.activity import Activity
from .writing.copy_appender import CopyAppender
from .writing.dispatcher import Dispatcher
from .writing.durability import Durability
from .writing.flush import FlushService
from .writing.in_sync_acks import ConfirmedCopy, InSyncAcks
from .writing.inner_message import InnerMessage
from .writing.log_writer import LogWriter
from .writing.message_appender import MessageAppender
from .writing.run_appender import RunAppender

__all__ = [
    "BatchResult",
    "BoundaryType",
    "GetMessageResult",
    "GetMessageStatus",
    "InnerMessage",
    "MessageStore",
    "PutMessageStatus",
    "PutRefusal",
    "PutResult",
    "QueryResult",
]

logger = logging.getLogger(__name__)


def _ignore(_: int) -> None:
    pass


class MessageStore:
    """All messages of one broker: the facade of the parts that write, read and recover them.

    The hot calls are the parts' own methods: `put_message` and `put_batch` are
    `MessageAppender`'s, `begin_burst` and `commit` are `LogWriter`'s, `get_message` and `ends_at`
    are `MessageReader`'s.

    Args:
      config: sizes, paths, flush type.
      clock, disk: replaced in tests; by default the machine's.
      memory_bytes: the machine's memory, for `accessMessageInMemoryMaxRatio`.
      native: the C extension; None: pure Python.
      in_sync: of controller mode: `InSyncAcks` of a master, `ConfirmedCopy` of a slave. Messages
        are then visible only up to the confirm offset. None: not in controller mode.

    Attributes:
      is_slave: messages come from a master's log, and none are put.
      writer: the end of the log, and the state of the store.
      dispatcher: makes committed messages visible.
      copies: the appender of a slave.
      runs: the appender of runs of sends; None: each is put by `put_message`.
      reader: reads the messages.
      flusher: the fsync of the log.
      durability: callbacks for messages that are synced and replicated.
      activity: wakes idle services.
      checkpoints: writes the checkpoint.
      deleted_topics: the names of topics that were deleted.
      opened: the log as it was when the store was opened.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        memory_bytes: int | None = None,
        native: Extension | None = extension,
        in_sync: InSyncAcks | ConfirmedCopy | None = None,
    ) -> None:
        self.config = config
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.disk: Disk = disk if disk is not None else OsDisk()
        self.is_slave = config.broker_role is BrokerRole.SLAVE
        self.opened = Opened(0, 0)
        self._native = native
        self._in_sync = in_sync
        self._make_files()
        self._make_writing()
        self.deleted_topics = DeletedTopics(self.disk, config.store_path_root_dir)
        memory = memory_bytes if memory_bytes is not None else total_memory_bytes()
        self.reader = MessageReader(
            self.log, self._queues, self.index, config, memory, self.writer, native=native
        )
        self.get_message = self.reader.get_message
        self._opening = StoreOpening(
            config=config,
            clock=self.clock,
            disk=self.disk,
            log=self.log,
            queue_store=self.queue_store,
            index=self.index,
            visible_log=self._visible_log,
            checkpoints=self.checkpoints,
            deleted_topics=self.deleted_topics,
            writer=self.writer,
            dispatcher=self.dispatcher,
            reader=self.reader,
            in_sync=in_sync,
        )

    def _make_files(self) -> None:
        config, root = self.config, self.config.store_path_root_dir
        self.log = CommitLog(
            self.disk,
            config.commit_log_folder,
            config.mapped_file_size_commit_log,
            preallocates=config.preallocate_commit_log,
        )
        self._visible_log = VisibleLog(self.log, lambda: self.dispatcher.recorded_offset)
        self.index = IndexService(
            self.disk,
            self.clock,
            f"{root}/index",
            slot_count=config.max_hash_slot_num,
            index_count_max=config.max_index_num,
            read_log=self._visible_log.records,
            native=self._native,
        )
        self.queue_store = ConsumeQueueStore(
            self.disk,
            root,
            file_size=config.queue_file_size,
            batch_file_size=config.batch_queue_file_size,
            ext_file_size=config.mapped_file_size_consume_queue_ext,
            writes_ext=config.enable_consume_queue_ext,
        )
        self._queues = self.queue_store.queues
        self.checkpoints = CheckpointWriter(
            config, self.disk, self.log, self.queue_store, self.index,
            lambda: self.dispatcher.recorded_offset,
            confirm_offset=self._confirmed if self._in_sync is not None else None,
        )  # fmt: skip

    def _confirmed(self) -> int:
        return self.durability.confirm_offset

    def _make_writing(self) -> None:
        config, clock, log = self.config, self.clock, self.log
        self.activity = Activity()
        index = self.index if config.message_index_enable else None
        self.dispatcher = Dispatcher(index, self.activity, self.queue_store.changed)
        in_sync, is_sync = self._in_sync, config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        on_flushed: Callable[[int], None] = self.dispatcher.show_until
        on_committed: Callable[[int], None] | None = None
        if in_sync is not None:
            in_sync.on_confirmed = self.dispatcher.show_until
            on_flushed = partial(self._flushed, in_sync) if is_sync else _ignore
            on_committed = _ignore if is_sync else in_sync.reach
        self.flusher = FlushService(
            log,
            clock,
            timeout_s=config.sync_flush_timeout / 1000,
            on_flushed=on_flushed,
            on_failed=self._fail,
        )
        writer = self.writer = LogWriter(
            config, clock, log, self.dispatcher, self.flusher, self.activity, self._fail,
            on_committed=on_committed,
        )  # fmt: skip
        self.durability = Durability(config, clock, writer, self.flusher, in_sync)
        self.copies = CopyAppender(log, writer, self.dispatcher, self.checkpoints)
        appender = MessageAppender(config, self.queue_store, writer, self._native)
        self.runs: RunAppender | None = None
        if self._native is not None and not config.enabled_append_prop_crc:
            self.runs = RunAppender(
                self._native, config, self.queue_store, writer, appender.batches
            )
        # Bound once: these run for each message, or for each turn.
        self.begin_burst = writer.begin_burst
        self.put_message = appender.put_message
        self.put_batch = appender.put_batch
        self.put = appender.put
        self.fits = appender.fits
        self.commit = writer.commit
        self.roll_back = writer.roll_back
        self.when_replicated = self.durability.when_replicated

    def _flushed(self, in_sync: InSyncAcks | ConfirmedCopy, offset: int) -> None:
        in_sync.reach(offset)
        # A master sends its slaves what is on its device, and a slave acknowledges that; what is
        # to be confirmed first shows nothing that would wake them.
        self.activity.signal()

    # ---- opening and closing -------------------------------------------------------------

    def load(self, cut_at: int | None = None, confirmed: int | None = None) -> None:
        """Lock the data folder and recover; the store then takes puts, or is `read_only`.

        Args:
          cut_at: physical offset at which the log ends from now on, see recovery/log_cut.py. It is
            where a record or a blank begins, or the log's end. None: the log is not cut.
          confirmed: in controller mode, the physical offset up to which the log is known to be
            confirmed. Messages that end after it are hidden until they are confirmed; new queue
            offsets follow them all the same. None: the confirm offset of the checkpoint. Where that
            is unknown, all are hidden: that ends with the first offset that is confirmed, which a
            lone master does at once, whereas a message that was shown and is cut cannot be taken
            back.

        Raises:
          StoreLockedError: another process has the folder open.
          CorruptRecordError: files differ from the configured size, or the log cannot be cut there;
            nothing was changed.
          ForeignStateError: queues or tables are in RocksDB; nothing was changed.
          StoreIOError: the folder or a file could not be read or written.
        """
        self.opened = self._opening.open(cut_at, confirmed)
        self.begin_burst()

    def _fail(self, error: StoreIOError) -> None:
        """Turn read-only: the files may differ from what was written."""
        note_failed_sync(self.disk, self.config.store_path_root_dir, self.flusher.flushed_offset)
        self.writer.enter(StoreEvent.WRITE_FAILED, str(error))
        self.durability.fail()

    def close(self) -> None:
        """Commit and flush everything, remove the abort file, unlock. A second call does nothing.

        The abort file stays when a write failed: the next start then recovers.
        """
        if self.writer.mode.state is StoreState.CLOSED:
            return
        root = self.config.store_path_root_dir
        try:
            if not self.writer.burst.is_empty:
                self.commit()
            self.flusher.flush()
            self.queue_store.write()
            if not (self.read_only or self.checkpoints.queues_failed):
                self.index.finish()
                index = self.checkpoints.index_state()
                self.checkpoints.sync_queues(self.queue_store.take_unsynced())
                self.checkpoints.write(self.dispatcher.recorded_offset, self.store_time_ms, index)
                # A file that was made ahead and not used is no part of the log.
                self.log.remove_from(self.writer.used_files_end)
                # Last of all: its absence says to the next start that everything above is on the
                # device.
                self.disk.unlink(f"{root}/abort")
                self.disk.sync_folder(root)
        except StoreError:
            logger.exception("the store could not be closed cleanly; the next start recovers it")
        finally:
            self.writer.enter(StoreEvent.CLOSED)
            self.index.close()
            self.queue_store.close()
            self.log.close()
            self.disk.unlock(f"{root}/lock")

    def hold_lock(self) -> None:
        """Create a missing lock file again; turn read-only if another process holds it.

        Raises:
          StoreIOError: the file could not be created, or another process holds it.
        """
        try:
            hold_lock(self.disk, self.config.store_path_root_dir)
        except StoreLockedError as error:
            path = error.path
            reason = "another process took it when it was removed, and may write to this folder"
            lost = StoreIOError(path, reason)
            self.writer.enter(StoreEvent.LOCK_TAKEN, str(lost))
            self.durability.fail()
            raise lost from error

    # ---- state ---------------------------------------------------------------------------

    @property
    def read_only(self) -> bool:
        """Whether puts are refused until the store is opened again: an fsync or write failed, the
        lock was lost, or `load` found a hole in the log. With a hole nothing in the folder is
        changed; what is readable is served."""
        return self.writer.mode.is_read_only

    @property
    def trouble(self) -> str:
        """Why an open store takes nothing, and what to do about it; "": it takes messages."""
        return self.writer.mode.trouble

    @property
    def answers_later(self) -> bool:
        """Whether a send is answered by `when_replicated` and not when it is committed."""
        return self.durability.answers_later

    @property
    def on_visible(self) -> Callable[[Collection[Key]], None]:
        """See `Dispatcher.on_visible`."""
        return self.dispatcher.on_visible

    @on_visible.setter
    def on_visible(self, callback: Callable[[Collection[Key]], None]) -> None:
        self.dispatcher.on_visible = callback

    @property
    def store_time_ms(self) -> StoreTimeMs:
        """The store timestamp of the next puts, which never falls; see `begin_burst`."""
        return self.writer.burst.store_time_ms

    @property
    def wall_time_ms(self) -> WallTimeMs:
        """The time of day for the next puts, as of the last `begin_burst` or `read_clock`."""
        return self.writer.burst.wall_time_ms

    @property
    def max_physical_offset(self) -> int:
        """The end of the commit log, bytes."""
        return self.writer.committed_offset

    @property
    def min_physical_offset(self) -> int:
        """The start of the oldest commit log file, bytes."""
        return self.log.min_offset

    @property
    def dispatched_offset(self) -> int:
        """Physical offset up to which the log is visible in the queues."""
        return self.dispatcher.dispatched_offset

    # ---- reading -------------------------------------------------------------------------

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
        time_at = partial(self.reader.store_time_at, queue, log_end=self.max_physical_offset)
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
        return self.reader.store_time_at(queue, queue_offset, log_end=self.max_physical_offset)

    def tags_codes(
        self, topic: str, queue_id: int, queue_offset: int, count_max: int = 1
    ) -> Sequence[int]:
        """The tags codes in the queue units of a message and of some after it.

        In SCHEDULE_TOPIC_XXXX they are the delivery times, ms.

        Returns: at least one; only one where each must be checked.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: the first message is damaged, or this offset has no message.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            raise CorruptRecordError(topic, -1, f"queue {queue_id} has no message {queue_offset}")
        if count_max > 1 and queue.is_plain and queue_offset >= queue.cold_end:
            count = min(count_max, queue.max_offset - queue_offset)
            codes = [code for _, _, code in UNIT.iter_unpack(queue.read(queue_offset, count))]
            if codes:
                return codes
        code = self.reader.unit_at(queue, queue_offset, self.max_physical_offset)[2]
        real = queue.real_tags_code(code)
        return [0 if real is None else real]

    def is_in_queue(
        self,
        topic: str,
        queue_id: int,
        queue_offset: QueueOffset,
        physical_offset: PhysicalOffset,
    ) -> bool:
        """Whether a queue's message lies at a physical offset.

        `message_at` accepts any bytes that look like a record, and a body may hold such bytes.

        Raises:
          StoreIOError: a file could not be read.
          CorruptRecordError: the message is damaged.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return False
        unit = self.reader.unit_at(queue, queue_offset, self.max_physical_offset)
        return unit[0] == physical_offset

    def message_at(self, physical_offset: PhysicalOffset) -> memoryview | None:
        """The visible record at a physical offset; None when none starts there.

        The offset may come from a peer: any number is safe.
        """
        if not self.min_physical_offset <= physical_offset < self.dispatched_offset:
            return None
        return self.reader.record_at(physical_offset, self.dispatched_offset)

    def query_by_key(
        self,
        topic: str,
        key: str,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        *,
        by_tags: bool = False,
    ) -> QueryResult:
        """Messages with a key or tags, oldest first; `MessageReader.query_by_key` at once."""
        end = self.dispatched_offset
        return at_once(
            self.reader.query_by_key(topic, key, count_max, begin_ms, end_ms, end, by_tags=by_tags)
        )

    def topics(self) -> dict[str, list[int]]:
        """Queue ids of all queues, by topic."""
        return self.queue_store.topics()

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Remove the queues of these topics; their messages stay in the log until it is cleaned.

        Returns: how many of them had queues.

        Raises:
          StoreIOError: a file could not be removed.
        """
        if self.writer.burst.pending:
            # Committed now, while the queues exist; the caller's own commit will be empty.
            self.on_visible(self.writer.commit_part())
        gone = set(topics)
        self.dispatcher.forget_topics(gone)
        if not self.read_only:
            self.deleted_topics.add(gone, self.max_physical_offset)
            self.checkpoints.forget_topics(gone)
        return self.queue_store.delete_topics(gone)
