"""The end of the log while it is written: one commit per burst, rolls, roll back, what is shown.

Java counterpart: the append half of store/CommitLog.java and MappedFileQueue.java of 5.3.3. The
puts themselves are in `message_appender`; they fill what `commit` writes.

Invariants: nothing is visible before `commit` (under SYNC_FLUSH: before the fsync) has returned; a
failed commit leaves the log, the queues' next offsets and the files as they were at the commit
before. A slave's log ends where a record of its master's ends; nothing is put into it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import trio

from ..clock import Clock
from ..config import BrokerRole, FlushDiskType, MessageStoreConfig
from ..errors import StoreIOError
from ..format import UNIT
from ..index.index_service import IndexService
from ..log.commit_log import CommitLog, blank, zeros_left
from ..queues.consume_queue import PRE_BLANK, ConsumeQueue
from ..queues.consume_queue_store import ConsumeQueueStore
from ..status import PutMessageStatus
from .acks import Replicated, SlaveAcks
from .flush import FlushService

logger = logging.getLogger(__name__)

IndexItems = list[tuple[int, bytes, int, int]]

_PUT_OK = PutMessageStatus.PUT_OK
_pack_unit = UNIT.pack

CREATE_RETRY_S = 0.01
"""Before a commit log file that could not be made is tried again: each message of a burst may ask
for it. By the clock that never goes back: store timestamps stand still for years where the wall
clock was years ahead."""

_IS_SLAVE = "this broker is a slave: messages are put to its master"


def _nobody(_: Collection[tuple[str, int]]) -> None:
    """Nobody waits for messages."""


def _no_listener() -> None:
    """Nobody wants to know."""


class LogWriter:
    """Writes what was put to a log that is loaded.

    Args:
      config, clock: the store's.
      log, queue_store, index: the store's.

    Attributes:
      activity: set by a commit; the services, which rest while nothing comes, make a new one.
      is_slave: messages come from a master's log, and none are put.
      slaves: how far the slaves of a master are.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        clock: Clock,
        log: CommitLog,
        queue_store: ConsumeQueueStore,
        index: IndexService,
    ) -> None:
        self.config = config
        self.clock = clock
        self.log = log
        self.queue_store = queue_store
        self.index = index
        self.now_ms = 0
        self.read_only = False
        self.read_only_reason = ""
        self.disk_full = ""
        self.refusal = ""
        self.on_visible: Callable[[Collection[tuple[str, int]]], None] = _nobody
        self.on_read_only: Callable[[], None] = _no_listener
        self.sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.is_slave = config.broker_role is BrokerRole.SLAVE
        self.slaves = SlaveAcks(config, clock)
        self._waits_for_slaves = config.broker_role is BrokerRole.SYNC_MASTER
        self.flusher = FlushService(
            log,
            clock,
            timeout_s=config.sync_flush_timeout / 1000,
            on_flushed=self._show_flushed,
            on_failed=self._turn_read_only,
        )
        self.activity = trio.Event()
        self._queues = queue_store.queues
        self._file_size = config.mapped_file_size_commit_log
        self._is_open = False
        # What was put since the last commit:
        self._append_offset = 0
        self._file_end = 0
        self._committed_offset = 0
        self._dispatched_offset = 0
        self._pending: list[bytes | memoryview] = []
        self._pending_start = 0
        self._segments: list[tuple[int, list[bytes | memoryview]]] = []
        self._touched: list[ConsumeQueue] = []
        self._index_items: IndexItems = []
        # Committed, waiting for fsync (SYNC_FLUSH): end, (queue, its end), index items.
        self._hidden: list[tuple[int, list[tuple[ConsumeQueue, int]], IndexItems]] = []
        # A warmed file has its zeros.
        warmed = config.warm_maped_file_enable
        self._zero_ahead_size = 0 if warmed or not self.sync_flush else config.zero_ahead_size
        self._create_again_s = 0.0
        self._burst_error: StoreIOError | None = None

    def _start_at(self, end: int) -> None:
        self._append_offset = self._committed_offset = self._dispatched_offset = end
        self._pending_start = end
        self._open_file_end()
        self.flusher.flushed_offset = self.flusher.committed_offset = end

    def begin_burst(self, now_ms: int | None = None) -> None:
        """Begin with puts: set their store timestamp, which never goes back.

        Args:
          now_ms: wall clock, ms since 1970; None: read the clock.
        """
        self._burst_error = None
        if now_ms is None:
            now_ms = self.clock.wall_ms()
        if now_ms > self.now_ms:
            self.now_ms = now_ms

    def read_clock(self) -> None:
        """Let the puts to come count from now on, not from when their burst began."""
        self.now_ms = max(self.now_ms, self.clock.wall_ms())

    def commit(self) -> Collection[tuple[str, int]]:
        """Write everything put since the last commit: one pwrite per commit log file.

        Returns: the (topic, queue_id) with new visible messages; none under SYNC_FLUSH, where
          `on_visible` is called after the fsync.

        Raises:
          StoreIOError: it could not be written, or a `commit_part` before could not. None of the
            puts since the last commit is stored:
            answer them with SERVICE_NOT_AVAILABLE; `refusal` says why. Later puts may succeed.
        """
        pending = self._pending
        lost = self._burst_error
        if lost is not None:
            self._burst_error = None
            if pending:
                self._roll_back(lost)
            raise lost
        if not pending:
            return ()
        end = self._append_offset
        try:
            for start, pieces in self._segments:
                self.log.write(start, b"".join(pieces))
            self.log.write(
                self._pending_start, pending[0] if len(pending) == 1 else b"".join(pending)
            )
        except StoreIOError as error:
            self._roll_back(error)
            raise
        except Exception as error:
            unexpected = StoreIOError(self.log.folder, f"{type(error).__name__}: {error}")
            self._roll_back(unexpected)
            raise unexpected from error
        if self._segments:
            self._segments = []
        self._pending = []
        size, self._pending_start = end - self._committed_offset, end
        self._committed_offset = self.flusher.committed_offset = end
        if not self.activity.is_set():
            self.activity.set()
        touched = self._touched
        items = self._index_items
        self._touched = []
        self._index_items = []
        if self.sync_flush:
            ends = []
            for queue in touched:
                queue.committed_offset = queue.next_offset
                ends.append((queue, queue.next_offset))
            self._hidden.append((end, ends, items))
            if size < zeros_left(self._zero_ahead_size):  # else the disk has enough to write
                self._zero_ahead(end)
            self.flusher.want()
            return ()
        for queue in touched:
            queue.max_offset = queue.committed_offset = queue.next_offset
        self._dispatched_offset = end
        if self.config.message_index_enable:
            self.index.add(items)
        return [queue.key for queue in touched]

    def _zero_ahead(self, end: int) -> None:
        try:
            self.log.zero_ahead(end, self._zero_ahead_size)
        except StoreIOError as error:
            self._zero_ahead_size = 0
            logger.warning("fsyncs will take longer, no zeros can be written ahead: %s", error)

    def when_flushed(self, physical_offset: int, callback: Callable[[bool], None]) -> None:
        """Call back once a committed record is on the device, or will not be.

        Args:
          physical_offset: what the put returned.
          callback: called with True after the fsync, with False when fsync failed or took longer
            than syncFlushTimeout; maybe at once. Called in the store's task; must not raise.
        """
        self.flusher.when_flushed(physical_offset, callback)

    @property
    def answers_later(self) -> bool:
        """Whether a send is answered by `when_replicated` and not when it is committed."""
        return self.sync_flush or self._waits_for_slaves

    def when_replicated(self, physical_offset: int, callback: Replicated) -> None:
        """Call back once a committed record is as safe as flushDiskType and brokerRole promise.

        The record is stored whatever the callback is told. A slave is sent only what its master has
        on the device under SYNC_FLUSH, so its report says that, too.

        Args:
          physical_offset: what the put returned.
          callback: told PUT_OK, FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE;
            maybe at once. Called in the store's task; must not raise.

        Source: RocketMQ 4.9.7 CommitLog.submitReplicaRequest: without a slave nobody waits.
        """
        status = _PUT_OK
        if self._waits_for_slaves:
            if self.slaves.are_enough(self._committed_offset):
                if self.sync_flush:
                    callback = self._told_when_flushed(physical_offset, callback)
                self.slaves.wait(physical_offset, callback)
                return
            status = PutMessageStatus.SLAVE_NOT_AVAILABLE
        if self.sync_flush:
            self.flusher.when_flushed(
                physical_offset,
                lambda ok: callback(status if ok else PutMessageStatus.FLUSH_DISK_TIMEOUT),
            )
        else:
            callback(status)

    def _told_when_flushed(self, physical_offset: int, callback: Replicated) -> Replicated:
        """Have FLUSH_SLAVE_TIMEOUT mean under SYNC_FLUSH, too, that the record is stored: a slave
        may be late because this machine's device is."""

        def told(status: PutMessageStatus) -> None:
            if status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT:
                self.flusher.when_flushed(
                    physical_offset,
                    lambda ok: callback(status if ok else PutMessageStatus.FLUSH_DISK_TIMEOUT),
                )
            else:
                callback(status)

        return told

    def flush(self) -> None:
        """fsync the log now, in this thread (tests, tools; `run` does it otherwise)."""
        self.flusher.flush()

    def _roll(self, size: int) -> PutMessageStatus:
        """Go to the next file, when a record of `size` bytes does not fit into this one."""
        if not self._is_open or self.read_only or self.disk_full or self.is_slave:
            reason = self.read_only_reason or self.disk_full
            self.refusal = reason or (_IS_SLAVE if self.is_slave else "the store is not open")
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if size > self._file_size - 8:
            self.refusal = f"a record of {size} bytes does not fit into a commit log file"
            return PutMessageStatus.MESSAGE_ILLEGAL
        base = -(-self._append_offset // self._file_size) * self._file_size
        if base not in self.log.files:
            if self.clock.monotonic_s() < self._create_again_s:
                return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            try:
                self._take_file(base)
            except StoreIOError as error:
                self._create_again_s = self.clock.monotonic_s() + CREATE_RETRY_S
                self.refusal = str(error)
                logger.error("no new commit log file: %s", error)
                return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        if self._append_offset < base:
            self._pending.append(blank(base - self._append_offset))
            self._segments.append((self._pending_start, self._pending))
            self._pending = []
        self._append_offset = self._pending_start = base
        self._file_end = base + self._file_size
        return _PUT_OK

    def _take_file(self, base: int) -> None:
        if self.log.prepared_base != base:
            self.log.create(base)
        self.log.adopt(base)

    def append_copied(self, data: bytes | memoryview) -> None:
        """Append bytes of a master's log to what the next `commit` writes.

        Args:
          data: what follows there; of one file.

        Raises:
          StoreIOError: there is no room for a new file; all since the last commit is undone.
        """
        base = self._append_offset - self._append_offset % self._file_size
        assert self._append_offset + len(data) <= base + self._file_size, "two files"
        if base not in self.log.files:
            try:
                self._take_file(base)
            except StoreIOError as error:
                self._roll_back(error)
                raise
        if self._pending and base > self._pending_start:
            self._segments.append((self._pending_start, self._pending))
            self._pending = []
        if not self._pending:
            self._pending_start = self._append_offset
        self._pending.append(data)
        self._append_offset += len(data)

    def append_copied_record(
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
            self._touched.append(queue)
        queue.tail += _pack_unit(physical_offset, size, tags_code)
        queue.next_offset += 1
        self._index_items.append(
            (queue.topic_hash, properties, physical_offset, store_timestamp_ms)
        )

    def append_copied_unit(
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

        The bytes of the record follow by `append_copied`, before that commit.

        Args:
          queue_offset: the queue's next one; a queue of batches may leave some out.
          others: of the record.
        """
        if queue.next_offset == queue.committed_offset:
            self._touched.append(queue)
        queue.next_offset = queue_offset
        queue.append_put(physical_offset, size, tags_code, store_timestamp_ms, properties)

    def append_blanks(self, queue: ConsumeQueue, count: int) -> None:
        """As `append_copied_unit`, for so many messages that are not in the log."""
        if queue.next_offset == queue.committed_offset:
            self._touched.append(queue)
        queue.tail += PRE_BLANK * count
        queue.next_offset += count

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
        for _, ends, _ in self._hidden:
            ends[:] = [(q, min(end, q.next_offset) if q is queue else end) for q, end in ends]

    def index_copied(
        self, topic_hash: int, properties: bytes, physical_offset: int, store_timestamp_ms: int
    ) -> None:
        """Have a copied record indexed once the next `commit` shows it."""
        self._index_items.append((topic_hash, properties, physical_offset, store_timestamp_ms))

    async def wait_for_more(self) -> None:
        """Wait for the next commit, or the next fsync under SYNC_FLUSH.

        It costs a commit nothing: who waits makes the event anew that the services rest on.
        """
        if self.activity.is_set():
            self.activity = trio.Event()
        await self.activity.wait()

    def commit_part(self) -> Collection[tuple[str, int]]:
        """`commit` in the middle of somebody else's burst.

        When it fails, so does the next commit: whoever began the burst must learn that some of its
        puts are gone.

        Raises: StoreIOError: as `commit`.
        """
        try:
            return self.commit()
        except StoreIOError as error:
            self._burst_error = error
            raise

    def roll_back(self, error: Exception) -> None:
        """Undo everything put since the last commit, after an error that is not expected.

        Whoever put them, such as all senders of a turn, must learn that they are not stored.
        """
        if self._pending or self._segments or self._touched:
            self._roll_back(StoreIOError(self.log.folder, f"{type(error).__name__}: {error}"))

    def _roll_back(self, error: StoreIOError) -> None:
        """Undo everything put since the last commit: in memory, and in the files as zeros."""
        self.refusal = str(error)
        start = self._committed_offset
        try:
            self.log.zero(start, min(self._append_offset, self.log.end_of_files))
        except StoreIOError as second:
            self._turn_read_only(second)
        for queue in self._touched:
            queue.roll_back()
        self._touched = []
        self._pending = []
        self._segments = []
        self._index_items = []
        self._append_offset = self._pending_start = start
        self._open_file_end()

    def _show_flushed(self, flushed_offset: int) -> None:
        """Make visible what an fsync has covered."""
        hidden = self._hidden
        if not hidden:
            return
        visible: dict[tuple[str, int], None] = {}
        while hidden and hidden[0][0] <= flushed_offset:
            self._dispatched_offset, ends, items = hidden.pop(0)
            for queue, queue_end in ends:
                queue.max_offset = queue_end
                visible[queue.key] = None
            if self.config.message_index_enable:
                self.index.add(items)
        self.activity.set()  # the index has something to do
        if visible:
            self.on_visible(visible.keys())

    def refuse_puts(self, reason: str) -> None:
        """Refuse what is put from now on, until `accept_puts`; what was put before is stored.

        Args:
          reason: why, and what to do about it; for remarks.
        """
        if not self.disk_full:
            logger.error("sends are refused: %s", reason)
        self.disk_full = reason
        self._file_end = -1

    def accept_puts(self) -> None:
        """Take puts again after `refuse_puts`."""
        if self.disk_full:
            logger.warning("sends are taken again")
            self.disk_full = ""
            self._open_file_end()

    def _open_file_end(self) -> None:
        """Have puts end where the current file ends, or go to `_roll` where none is wanted."""
        if self.is_slave:
            self._file_end = -1
        elif not self.read_only and not self.disk_full:
            self._file_end = self._current_file_end

    @property
    def _current_file_end(self) -> int:
        """Where the file ends that is appended to; without such a file, where the log ends."""
        start = self._append_offset
        base = start - start % self._file_size
        return base + self._file_size if base in self.log.files else start

    def _turn_read_only(self, error: StoreIOError) -> None:
        self.read_only = True
        self.refusal = f"the store is read-only until restart: {error}"
        self.read_only_reason = self.refusal
        self._file_end = -1
        if self.sync_flush:  # else the slaves can have what is not on the device
            self.slaves.fail(PutMessageStatus.FLUSH_DISK_TIMEOUT)
        logger.critical("%s", self.refusal)
        self.on_read_only()

    @property
    def max_physical_offset(self) -> int:
        """Where the commit log ends, bytes."""
        return self._committed_offset

    @property
    def sendable_offset(self) -> int:
        """Up to where slaves are sent the log, bytes: what this machine will still have when it
        comes back after what its flushDiskType protects from."""
        return self.flusher.flushed_offset if self.sync_flush else self._committed_offset

    @property
    def room_in_file(self) -> int:
        """Bytes left in the current commit log file."""
        return self._current_file_end - self._append_offset

    @property
    def next_file_base(self) -> int:
        """Physical offset at which the next commit log file will begin."""
        return self._current_file_end

    def _used_files_end(self) -> int:
        """Where the last file ends that has bytes of the log, or tells where it begins."""
        end = -(-self._committed_offset // self._file_size) * self._file_size
        return end + self._file_size if end == self.log.min_offset > 0 else end
