"""The end of the log while it is written: one commit per burst, rolls, roll back, what is shown.

Java counterpart: the append half of store/CommitLog.java and MappedFileQueue.java of 5.3.3. The
puts themselves are in `message_appender`; they fill what `commit` writes.

Invariants: nothing is visible before `commit` (under SYNC_FLUSH: before the fsync) has returned; a
failed commit leaves the log, the queues' next offsets and the files as they were at the commit
before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import trio

from .clock import Clock
from .commit_log import CommitLog, blank
from .config import FlushDiskType, MessageStoreConfig
from .consume_queue import ConsumeQueue
from .consume_queue_store import ConsumeQueueStore
from .errors import StoreIOError
from .flush import FlushService
from .index_service import IndexService
from .status import PutMessageStatus

logger = logging.getLogger(__name__)

IndexItems = list[tuple[int, bytes, int, int]]

_PUT_OK = PutMessageStatus.PUT_OK


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
        self._pending: list[bytes] = []
        self._pending_start = 0
        self._segments: list[tuple[int, list[bytes]]] = []
        self._touched: list[ConsumeQueue] = []
        self._index_items: IndexItems = []
        # Committed, waiting for fsync (SYNC_FLUSH): end, (queue, its end), index items.
        self._hidden: list[tuple[int, list[tuple[ConsumeQueue, int]], IndexItems]] = []
        self._failed_create_ms = -1
        self._burst_error: StoreIOError | None = None

    def _start_at(self, end: int) -> None:
        base = end - end % self._file_size
        self._append_offset = self._committed_offset = self._dispatched_offset = end
        self._pending_start = end
        self._file_end = base + self._file_size if base in self.log.files else end
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
            self.log.write(self._pending_start, b"".join(pending))
        except StoreIOError as error:
            self._roll_back(error)
            raise
        if self._segments:
            self._segments = []
        self._pending = []
        self._pending_start = self._committed_offset = self.flusher.committed_offset = end
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
            self.flusher.want()
            return ()
        for queue in touched:
            queue.max_offset = queue.committed_offset = queue.next_offset
        self._dispatched_offset = end
        if self.config.message_index_enable:
            self.index.add(items)
        return [queue.key for queue in touched]

    def when_flushed(self, physical_offset: int, callback: Callable[[bool], None]) -> None:
        """Call back once a committed record is on the device, or will not be.

        Args:
          physical_offset: what the put returned.
          callback: called with True after the fsync, with False when fsync failed or took longer
            than syncFlushTimeout; maybe at once. Called in the store's task; must not raise.
        """
        self.flusher.when_flushed(physical_offset, callback)

    def flush(self) -> None:
        """fsync the log now, in this thread (tests, tools; `run` does it otherwise)."""
        self.flusher.flush()

    def _roll(self, size: int) -> PutMessageStatus:
        """Go to the next file, when a record of `size` bytes does not fit into this one."""
        if not self._is_open or self.read_only or self.disk_full:
            self.refusal = self.read_only_reason or self.disk_full or "the store is not open"
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if size > self._file_size - 8:
            self.refusal = f"a record of {size} bytes does not fit into a commit log file"
            return PutMessageStatus.MESSAGE_ILLEGAL
        base = -(-self._append_offset // self._file_size) * self._file_size
        if base not in self.log.files:
            if self._failed_create_ms == self.now_ms:
                return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            try:
                if self.log.prepared_base != base:
                    self.log.create(base)
                self.log.adopt(base)
            except StoreIOError as error:
                self._failed_create_ms = self.now_ms
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
        start = self._append_offset
        if not self.read_only and not self.disk_full:
            base = start - start % self._file_size
            self._file_end = base + self._file_size if base in self.log.files else start

    def _turn_read_only(self, error: StoreIOError) -> None:
        self.read_only = True
        self.refusal = f"the store is read-only until restart: {error}"
        self.read_only_reason = self.refusal
        self._file_end = -1
        logger.critical("%s", self.refusal)
        self.on_read_only()

    @property
    def max_physical_offset(self) -> int:
        """Where the commit log ends, bytes."""
        return self._committed_offset

    @property
    def room_in_file(self) -> int:
        """Bytes left in the current commit log file."""
        return max(self._file_end - self._append_offset, 0)

    @property
    def next_file_base(self) -> int:
        """Physical offset at which the next commit log file will begin."""
        return self._file_end if self._file_end > 0 else 0

    def _used_files_end(self) -> int:
        return -(-self._committed_offset // self._file_size) * self._file_size
