"""The writer of the log's end: one commit per burst, new files, roll back.

Java counterpart: the append half of store/CommitLog.java and MappedFileQueue.java of 5.3.3. The
appenders fill a `Burst`, which `commit` writes.

Invariants: nothing is visible before `commit` (under SYNC_FLUSH: before the fsync) has returned; a
failed commit leaves the log, the queues' next offsets and the files as they were after the previous
commit. A slave's log ends where a record of its master's ends; nothing is put into it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from ...common.clock import Clock, StoreTimeMs, WallTimeMs
from ...disk.errors import StoreIOError
from ..config import FlushDiskType, MessageStoreConfig
from ..format import Key
from ..index.index_backlog import Indexed
from ..log.commit_log import CommitLog, blank, zeros_left
from ..queues.consume_queue import ConsumeQueue
from ..status import PutMessageStatus, PutRefusal
from ..store_state import StoreEvent, StoreMode
from .activity import Activity
from .dispatcher import Dispatcher
from .flush import FlushService

# The buffer of one burst: messages that were put and not yet committed.

NO_PUTS: Final = -1
"""A `file_end` that no record fits before: every put asks `LogWriter.roll`, which refuses it."""


class Burst:
    """Bytes for the log, units for queues and items for the index, since the last commit.

    A put is cheap because it only appends to these lists. The appenders fill them; `LogWriter`
    writes them and makes them visible, or rolls them back.

    Args:
      body_size_max: see below.

    Attributes:
      body_size_max: bytes of a message's body, at most: the largest maxMessageSize since the start.
        Here, because each put reads it.
      wall_time_ms: the time of day when the burst began, or when the clock was read since.
      store_time_ms: store timestamp of the next puts.
      append_offset: physical offset of the next record.
      file_end: physical offset at which the current file ends, or `NO_PUTS`.
      pending: pieces of the current file's bytes, in order; they begin at `pending_start`.
      segments: (physical offset, pieces) of the files before it.
      touched: queues whose newest units are not committed, each once.
      index_items: the records that the index takes.
    """

    __slots__ = (
        "append_offset",
        "body_size_max",
        "file_end",
        "index_items",
        "pending",
        "pending_start",
        "segments",
        "store_time_ms",
        "touched",
        "wall_time_ms",
    )

    def __init__(self, body_size_max: int) -> None:
        self.body_size_max = body_size_max
        self.wall_time_ms = WallTimeMs(0)
        self.store_time_ms = StoreTimeMs(0)
        self.append_offset = 0
        self.file_end = NO_PUTS
        self.pending: list[bytes | memoryview] = []
        self.pending_start = 0
        self.segments: list[tuple[int, list[bytes | memoryview]]] = []
        self.touched: list[ConsumeQueue] = []
        self.index_items: list[Indexed] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write or to roll back."""
        return not (self.pending or self.segments or self.touched or self.index_items)

    def end_file(self) -> None:
        """Set the pending pieces aside: the next ones belong to the next file."""
        self.segments.append((self.pending_start, self.pending))
        self.pending = []

    def clear_from(self, physical_offset: int) -> None:
        """Drop everything; the next record will lie at this offset."""
        self.pending = []
        self.segments = []
        self.touched = []
        self.index_items = []
        self.append_offset = self.pending_start = physical_offset


logger = logging.getLogger(__name__)

CREATE_RETRY_S = 0.01
"""Between two attempts to create a commit log file: each message of a burst may need it. Measured
by the monotonic clock: store timestamps stand still for years where the wall clock was years ahead.
"""


class LogWriter:
    """Writes bursts to a loaded log. Owned by the store's task.

    Args:
      dispatcher: makes commits visible.
      activity: signalled by each commit.
      on_failed: called when the files may differ from what was written; it makes the store
        read-only.
      on_committed: in controller mode, called with the log's end after each commit, which others
        may then see; None: not in that mode.

    Attributes:
      mode: the state of the store.
      burst: the puts since the last commit.
      committed_offset: physical offset at which the log ends.
      sync_flush: commits are visible only after an fsync.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        clock: Clock,
        log: CommitLog,
        dispatcher: Dispatcher,
        flusher: FlushService,
        activity: Activity,
        on_failed: Callable[[StoreIOError], None],
        *,
        on_committed: Callable[[int], None] | None = None,
    ) -> None:
        self.mode = StoreMode()
        self.burst = Burst(config.max_message_size)
        self.committed_offset = 0
        self.sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._on_committed = on_committed
        self._holds = self.sync_flush or on_committed is not None
        self._clock = clock
        self._log = log
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._activity = activity
        self._on_failed = on_failed
        self._file_size = config.mapped_file_size_commit_log
        # A warmed file consists of zeros already.
        warmed = config.warm_maped_file_enable
        self._zero_ahead_size = 0 if warmed or not self.sync_flush else config.zero_ahead_size
        self._create_again_s = 0.0
        self._no_file = PutRefusal(PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
        self._burst_error: StoreIOError | None = None

    def start_at(self, end: int) -> None:
        """Set the end of the log to a physical offset up to which it is on the device, and visible
        unless the dispatcher hides a part."""
        self.burst.clear_from(end)
        self.committed_offset = end
        self._dispatcher.start_at(end)
        self._flusher.flushed_offset = self._flusher.committed_offset = end
        self._set_file_end()

    def enter(self, event: StoreEvent, reason: str = "") -> None:
        """Let an event change the state of the store; earlier puts are still committed.

        Args:
          reason: see `StoreMode.apply`.
        """
        mode = self.mode
        if mode.apply(event, reason):
            if mode.is_read_only:
                logger.critical("%(reason)s", {"reason": mode.remark})
            elif mode.trouble:
                logger.error("sends are refused: %(reason)s", {"reason": mode.remark})
            elif event is StoreEvent.DISK_HAS_ROOM:
                logger.warning("sends are accepted again")
        self._set_file_end()

    def begin_burst(self) -> None:
        """Begin a burst: read the clock for the times of its puts."""
        self._burst_error = None
        self.read_clock()

    def read_clock(self) -> None:
        """Set the times of the next puts to now, within a burst; see `clock.py` for the two."""
        burst = self.burst
        now_ms = burst.wall_time_ms = self._clock.wall_ms()
        if now_ms > burst.store_time_ms:
            burst.store_time_ms = StoreTimeMs(now_ms)

    def reach(self, store_time_ms: StoreTimeMs) -> None:
        """Let the store timestamps of the next puts be at least that of a record of the log."""
        if store_time_ms > self.burst.store_time_ms:
            self.burst.store_time_ms = store_time_ms

    def commit(self) -> Collection[Key]:
        """Write all puts since the last commit: one pwrite per commit log file.

        Returns: the (topic, queue_id) with new visible messages; none under SYNC_FLUSH, and in
          controller mode, where `Dispatcher.on_visible` is called once they are visible.

        Raises:
          StoreIOError: this write failed, or that of an earlier `commit_part`. None of the puts
            since the last commit is stored: answer them with SERVICE_NOT_AVAILABLE. Later puts may
            succeed.
        """
        burst = self.burst
        pending = burst.pending
        lost = self._burst_error
        if lost is not None:
            self._burst_error = None
            if pending:
                self.roll_back()
            raise lost
        if not pending:
            return ()
        end = burst.append_offset
        try:
            for start, pieces in burst.segments:
                self._log.write(start, b"".join(pieces))
            self._log.write(
                burst.pending_start, pending[0] if len(pending) == 1 else b"".join(pending)
            )
        except StoreIOError:
            self.roll_back()
            raise
        except Exception as error:
            unexpected = StoreIOError(self._log.folder, f"{type(error).__name__}: {error}")
            self.roll_back()
            raise unexpected from error
        size = end - self.committed_offset
        touched, items = burst.touched, burst.index_items
        # `Burst.clear_from` inlined: most bursts of a busy broker are short.
        burst.pending, burst.pending_start = [], end
        burst.touched, burst.index_items = [], []
        if burst.segments:
            burst.segments = []
        self.committed_offset = self._flusher.committed_offset = end
        self._activity.signal()
        if not self._holds:
            return self._dispatcher.show(end, touched, items)
        self._dispatcher.hold(end, touched, items)
        if self._on_committed is not None:
            self._on_committed(end)
        if not self.sync_flush:
            return ()
        if size < zeros_left(self._zero_ahead_size):  # large bursts gain nothing from zeros
            self._zero_ahead(end)
        self._flusher.want()
        return ()

    def commit_part(self) -> Collection[Key]:
        """`commit` in the middle of another caller's burst.

        When it fails, so does the next commit: the caller that began the burst has to answer that
        some of its puts are not stored.

        Raises: StoreIOError: as `commit`.
        """
        try:
            return self.commit()
        except StoreIOError as error:
            self._burst_error = error
            raise

    def _zero_ahead(self, end: int) -> None:
        try:
            self._log.zero_ahead(end, self._zero_ahead_size)
        except StoreIOError as error:
            self._zero_ahead_size = 0
            logger.warning(
                "no zeros can be written ahead; fsyncs will take longer: %(error)s",
                {"error": error},
            )

    def roll(self, size: int) -> PutRefusal | None:
        """Begin the next file, because a record of `size` bytes does not fit into this one.

        Returns: the refusal of the put; None: the record fits into the new file.
        """
        burst = self.burst
        if not self.mode.takes_puts:
            return PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE, self.mode.remark)
        if size > self._file_size - 8:
            remark = f"a record of {size} bytes does not fit into a commit log file"
            return PutRefusal(PutMessageStatus.MESSAGE_ILLEGAL, remark)
        base = -(-burst.append_offset // self._file_size) * self._file_size
        if base not in self._log.files:
            # A full disk is not asked again for every send.
            if self._clock.monotonic_s() < self._create_again_s:
                return self._no_file
            try:
                self.take_file(base)
            except StoreIOError as error:
                self._create_again_s = self._clock.monotonic_s() + CREATE_RETRY_S
                self._no_file = self._no_file._replace(remark=str(error))
                logger.error(
                    "sends are refused, as no commit log file can be created: %(error)s",
                    {"error": error},
                )
                return self._no_file
        if burst.append_offset < base:
            burst.pending.append(blank(base - burst.append_offset))
            burst.end_file()
        burst.append_offset = burst.pending_start = base
        burst.file_end = base + self._file_size
        return None

    def take_file(self, base: int) -> None:
        """Add the file that begins at a physical offset to the log; create it unless it exists.

        Raises:
          StoreIOError: there is no room for it.
        """
        if self._log.prepared_base != base:
            self._log.create(base)
        self._log.adopt(base)

    def roll_back(self) -> None:
        """Undo all puts since the last commit: in memory, and in the files with zeros.

        None of these puts may be answered with success.
        """
        burst = self.burst
        if burst.is_empty:
            return
        start = self.committed_offset
        try:
            self._log.zero(start, min(burst.append_offset, self._log.end_of_files))
        except StoreIOError as second:
            self._on_failed(second)
        for queue in burst.touched:
            queue.roll_back()
        burst.clear_from(start)
        self._set_file_end()

    def _set_file_end(self) -> None:
        """Let puts fill the current file, or all call `roll`, which refuses them."""
        self.burst.file_end = self.next_file_base if self.mode.takes_puts else NO_PUTS

    @property
    def visible_offset(self) -> int:
        """Physical offset up to which the log is visible."""
        return self._dispatcher.dispatched_offset

    @property
    def next_file_base(self) -> int:
        """Physical offset at which the next file begins: the end of the current file, or of the log
        where there is no current file."""
        start = self.burst.append_offset
        base = start - start % self._file_size
        return base + self._file_size if base in self._log.files else start

    @property
    def room_in_file(self) -> int:
        """Bytes left in the current commit log file."""
        return self.next_file_base - self.burst.append_offset

    @property
    def used_files_end(self) -> int:
        """Physical offset at which the last needed file ends: the one with the log's last bytes, or
        an empty one that marks where the log begins."""
        end = -(-self.committed_offset // self._file_size) * self._file_size
        return end + self._file_size if end == self._log.min_offset > 0 else end
