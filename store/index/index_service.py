"""The hash index of all messages, by KEYS, UNIQ_KEY and TAGS.

Java counterpart: store/index/IndexService.java of 5.5.0. The store passes the items of each commit
to `add`, which is cheap; entries are built in bounded slices (`work`) between the broker's other
work, or from the log where the backlog is too large to keep.

Each checkpoint records how much of the index is on the device (`state`). After an unclean exit the
file that was being filled is resumed from there: its slot table is rebuilt from its entries, then
the log is indexed from their end, both in slices. While `is_behind` is true a query may miss
messages; it never answers wrong ones. Invalid files are removed and rebuilt from the log
(`index_loading.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...common.clock import Clock
from ...common.java_hash import hash_prefix, index_key_hash
from ...common.steps import Steps
from ...disk.errors import StoreError, StoreIOError
from ...disk.os_disk import Disk
from ...native import Extension, extension
from ...remoting.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from ..format import FILE_MARKS_COUNT_MAX
from ..recovery.checkpoint import Checkpoint, IndexProgress
from .index_backlog import IndexBacklog, Indexed
from .index_entries import entries_of, entries_of_items
from .index_file import PACKED_ENTRY, IndexFile
from .index_loading import IndexLoader, LogSpan

logger = logging.getLogger(__name__)

BACKLOG_COUNT_MAX = 200_000
"""Messages that wait in memory for their entries (at most about 100 MB); beyond, they are read
again from the log. Apache's broker slows its dispatch down instead."""

SLICE_S = 0.001
"""Duration of one slice of work, for which the broker waits."""

SLICE_COUNT = 128
"""Messages between two readings of the clock."""


RETRY_S = 5.0
"""Pause after a file could not be created or written. Sends resume without an operator when a full
disk has room again, and so does the index."""

CLOSE_WORK_S = 10.0
"""Time that a stop may spend on unbuilt entries; the next start builds the rest."""


class IndexedRecord(NamedTuple):
    """A record of the log, read again for the index.

    Attributes:
      next_offset: physical offset of its end.
    """

    topic: str
    sys_flag: int
    properties: bytes
    physical_offset: int
    store_timestamp_ms: int
    next_offset: int


class QueryOffsets(NamedTuple):
    """Physical offsets found by key, and time and offset of the newest index entry."""

    physical_offsets: list[int]
    last_update_timestamp_ms: int
    last_update_physical_offset: int


class IndexState(NamedTuple):
    """The state of the index for a checkpoint.

    Attributes:
      progress: None when it is unknown.
      finished_timestamp_ms: store time of the newest entry of the newest finished file, 0: none.
      file: whose entries must be synced before the checkpoint is written; None: none.
    """

    progress: IndexProgress | None
    finished_timestamp_ms: int
    file: IndexFile | None

    def unfinished_since_ms(self, dispatched_offset: int, timestamp_ms: int) -> int:
        """A time, ms, before which all messages are in finished files.

        Args:
          dispatched_offset: of the checkpoint.
          timestamp_ms: of the checkpoint; the result when all messages before that offset are in
            finished files.
        """
        progress = self.progress
        if progress is None:
            return timestamp_ms
        if progress.file_name:
            return progress.begin_timestamp_ms
        behind = progress.indexed_offset < dispatched_offset
        return self.finished_timestamp_ms if behind else timestamp_ms


RecordsFrom = Callable[[int], Iterator[IndexedRecord]]
"""The visible records from a physical offset on, up to the end at the time it is reached."""


class IndexService:
    """All index files of a store. Owned by the store's task.

    Args:
      disk, clock: replaced in tests.
      slot_count, index_count_max: of each file (maxHashSlotNum, maxIndexNum).
      read_log: reads records again.
      native: the C extension, which packs the usual entries; None: pure Python.

    Attributes:
      files: oldest first; the last one is being filled, or will be.
      is_broken: a file could not be read or synced; the index is off until the next start.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        folder: str,
        *,
        slot_count: int,
        index_count_max: int,
        read_log: RecordsFrom,
        native: Extension | None = extension,
    ) -> None:
        self.files: list[IndexFile] = []
        self.is_broken = False
        self.finished_timestamp_ms = 0
        self._disk = disk
        self._clock = clock
        self.folder = folder
        self._slot_count = slot_count
        self._index_count_max = index_count_max
        self._read_log = read_log
        self._backlog = IndexBacklog(has_runs=native is not None)
        self._native = native
        self._catch_up: int | None = None
        self._reader: Iterator[IndexedRecord] | None = None
        self._current: IndexFile | None = None
        self._full: list[IndexFile] = []
        self._resumed: IndexFile | None = None
        self._read_only = False
        self._paused_until_s = 0.0
        self._rests_until_s = 0.0
        self._is_failing = False
        self._is_finishing = False

    def load(
        self, checkpoint: Checkpoint, log: LogSpan, *, clean: bool, read_only: bool = False
    ) -> None:
        """Open the files, and find the missing entries, which `work` builds.

        Files that are damaged, or not covered by the checkpoint after an unclean exit, are removed.
        When a file cannot be read or removed the index `is_broken`.

        Args:
          checkpoint: as it was read.
          log: the extent of the log.
          clean: there was no abort file.
          read_only: nothing may be written; queries then miss messages without entries.
        """
        loader = IndexLoader(
            self._disk, self.folder, self._file, checkpoint, clean=clean, read_only=read_only
        )
        try:
            self.files, resumed, catch_up = loader.load(log)
        except StoreError:
            self.is_broken = True
            logger.exception("queries by key fail until restart: the index cannot be read")
            return
        self._read_only = read_only
        if resumed is not None:
            self._resumed = resumed
            self._finish_resuming()
        if catch_up is not None and read_only:
            logger.warning(
                "queries by key miss messages from offset %(log_offset)d of the log on",
                {"log_offset": catch_up},
            )
        elif catch_up is not None:
            self.catch_up_from(catch_up)

    def _finish_resuming(self) -> None:
        """Fill the resumed file further, once its slot table is rebuilt."""
        file = self._resumed
        if file is not None and not file.is_rebuilding:
            self._resumed = None
            if self._read_only:
                return
            if file.is_full():
                self._full.append(file)
            else:
                self._current = file

    def state(self, dispatched_offset: int) -> IndexState | None:
        """The state for a checkpoint, valid once `IndexState.file` is synced (`sync_entries`).

        Args:
          dispatched_offset: all records before it, and none after it, came through `add`. The
            checkpoint may be written when the log is on the device up to there.

        Returns: None when entries could not be written; the previous state is still valid then.
        """
        self.is_broken |= any(file.has_failed_sync for file in self.files)
        if self.is_broken:
            return IndexState(None, 0, None)
        full = list(self._full)
        file = full[0] if full else self._resumed or self._current
        if file is None:
            indexed_offset = self._indexed_offset(dispatched_offset)
            newest = self.files[-1] if self.files and not self.files[-1].is_full() else None
        else:
            try:
                file.write_entries()
            except StoreIOError as error:
                self._pause(error)
                return None
            newest = file
            # A full file that is not finished yet: a start would rebuild the files after it.
            indexed_offset = (
                file.end_physical_offset if full else self._indexed_offset(dispatched_offset)
            )
        finished = self.files[: self.files.index(newest)] if newest is not None else self.files
        marks = tuple((done.name, done.header_crc) for done in finished[-FILE_MARKS_COUNT_MAX:])
        progress = IndexProgress(indexed_offset=indexed_offset, files=marks)
        if newest is not None:
            progress = IndexProgress(
                file_name=newest.name,
                begin_timestamp_ms=newest.begin_timestamp_ms,
                end_timestamp_ms=newest.end_timestamp_ms,
                begin_physical_offset=newest.begin_physical_offset,
                end_physical_offset=newest.end_physical_offset,
                hash_slot_count=newest.hash_slot_count,
                index_count=newest.index_count,
                indexed_offset=indexed_offset,
                files=marks,
            )
        return IndexState(progress, self.finished_timestamp_ms, file)

    def _indexed_offset(self, dispatched_offset: int) -> int:
        if self._catch_up is not None:
            return self._catch_up
        return self._backlog.first_offset if self._backlog else dispatched_offset

    def catch_up_from(self, physical_offset: int) -> None:
        """Index the log from an offset to its end, before the items of `add`.

        Args:
          physical_offset: of a record or a blank. Entries that the files already have are not added
            twice.
        """
        self._catch_up = physical_offset
        self._reader = None
        self._backlog.clear()

    def replace_missing(self) -> None:
        """Index the whole log again if an index file was removed from outside.

        A removed file can still be written to, but its entries are lost, and without them no
        checkpoint could be written any more.

        Raises:
          StoreIOError: the folder could not be read, or a file could not be removed; the next call
            tries again.
        """
        if self._read_only or not self.files or self._is_finishing or self.has_full_files:
            return  # a worker thread writes, or is about to write, a file: check it next time
        names = set(self._disk.list(self.folder))
        missing = [file for file in self.files if file.path.rpartition("/")[2] not in names]
        if not missing:
            return
        logger.warning(
            "%(path)s was removed while the broker runs: all index files are rebuilt from the "
            "log; queries by key miss messages until that is done",
            {"path": missing[0].path if names else self.folder},
        )
        for file in self.files:
            self._disk.unlink(file.path)
        self.close()
        self.files = []
        self._full = []
        self._current = self._resumed = None
        self.finished_timestamp_ms = 0
        self.is_broken = False
        self.catch_up_from(0)

    def add(self, items: list[Indexed]) -> None:
        """Add the items of one commit, in the log's order."""
        if self._catch_up is not None or self.is_broken:
            return
        if self._backlog.count > BACKLOG_COUNT_MAX:
            self.catch_up_from(self._backlog.first_offset)
            return
        self._backlog.add(items)

    @property
    def is_idle(self) -> bool:
        """Whether there is no work until the next `add`, not even a retry."""
        return self.is_broken or not (
            self._backlog or self._catch_up is not None or self._resumed is not None or self._full
        )

    @property
    def is_behind(self) -> bool:
        """Whether there is work to do now: the index is neither broken nor paused."""
        return not (self.is_broken or self._is_paused) and bool(
            self._backlog or self._catch_up is not None or self._resumed is not None
        )

    def rest(self, duration_s: float) -> None:
        """Ask the task that calls `work` to leave time for other work from now on."""
        self._rests_until_s = self._clock.monotonic_s() + duration_s

    @property
    def is_resting(self) -> bool:
        """Whether `rest` is in force; the caller of `work` has to check it."""
        return self._clock.monotonic_s() < self._rests_until_s

    @property
    def _is_paused(self) -> bool:
        return self._paused_until_s > 0 and self._clock.monotonic_s() < self._paused_until_s

    def work(self, limit_s: float = SLICE_S) -> None:
        """Build entries for at most about `limit_s` seconds.

        A file that cannot be created or written does not stop the store: queries by key are then
        incomplete until a retry succeeds, `RETRY_S` later or more, which reads the log again.
        """
        until = self._clock.monotonic_s() + limit_s
        begin = -1
        try:
            while self.is_behind:
                if self._resumed is not None:
                    self._resumed.rebuild_slots()
                    self._finish_resuming()
                elif self._catch_up is not None:
                    begin = self._catch_up
                    self._work_from_log(SLICE_COUNT)
                else:
                    begin = self._backlog.first_offset
                    self._work_from_backlog(SLICE_COUNT)
                # A whole slice worked, so the next failure is logged again.
                self._is_failing = False
                if self._clock.monotonic_s() >= until:
                    return
        except StoreIOError as error:
            self._pause(error)
            # What was taken from the backlog is gone; the log has it.
            if begin >= 0:
                self.catch_up_from(begin)
        except StoreError:
            self.is_broken = True
            self._backlog.clear()
            logger.exception("queries by key fail until restart: the index cannot be read")

    def _pause(self, error: StoreIOError) -> None:
        if any(file.has_failed_sync for file in self.files):
            # After a failed fsync the kernel may drop the pages and report success next time: no
            # retry.
            self.is_broken = True
            self._backlog.clear()
            logger.error(
                "the index is not extended until restart, as an fsync failed: %(error)s",
                {"error": error},
            )
            return
        if not self._is_failing:
            logger.error(
                "the index cannot be written, queries by key miss new messages until it can: "
                "%(error)s",
                {"error": error},
            )
        self._is_failing = True
        self._paused_until_s = self._clock.monotonic_s() + RETRY_S

    def finish_full_files(self) -> None:
        """Finish the files that became full; may run in a worker thread.

        A file that cannot be written is tried again later, as in `work`.
        """
        self._is_finishing = True
        try:
            while self._full:
                file = self._full[0]
                file.finish()
                self.finished_timestamp_ms = file.end_timestamp_ms
                self._full.pop(0)
        except StoreIOError as error:
            self._pause(error)
        finally:
            self._is_finishing = False

    @property
    def has_full_files(self) -> bool:
        """Whether there are files for `finish_full_files`."""
        return bool(self._full) and not (self.is_broken or self._is_paused)

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Steps[QueryOffsets]:
        """Steps that find the physical offsets of messages with a key, each once, newest first.

        A message has several entries with one hash if a key occurs twice in it. RocketMQ answers
        with it as often, and leaves out as many others.

        Hashes may collide: the caller has to compare the messages (Apache's broker does not).

        Raises:
          StoreIOError: a file could not be read.

        Source: RocketMQ 5.3.3 store/index/IndexService.java queryOffset.
        """
        found: dict[int, None] = {}
        if not self.files:
            return QueryOffsets([], 0, 0)
        key_hash = index_key_hash(f"{topic}#{key}")
        newest = self.files[-1]
        for file in reversed(list(self.files)):
            if file.is_time_matched(begin_ms, end_ms):
                yield from file.select(key_hash, found, count_max, begin_ms, end_ms)
            if file.begin_timestamp_ms < begin_ms or len(found) >= count_max:
                break
        return QueryOffsets(list(found), newest.end_timestamp_ms, newest.end_physical_offset)

    def delete_expired(self, min_physical_offset: int) -> list[IndexFile]:
        """Remove the oldest files, whose messages are all before an offset.

        The newest file and unfinished files stay.

        Returns: the removed files, oldest first; they are closed.

        Raises:
          StoreIOError: one could not be removed; those before it are.

        Source: RocketMQ 5.3.3 store/index/IndexService.java deleteExpiredFile.
        """
        removed: list[IndexFile] = []
        while len(self.files) > 1:
            file = self.files[0]
            if file.end_physical_offset >= min_physical_offset or not file.is_finished:
                break
            self._disk.unlink(file.path)
            file.close()
            removed.append(self.files.pop(0))
        return removed

    def finish(self) -> None:
        """Build missing entries for at most `CLOSE_WORK_S`, and write all files."""
        self.work(CLOSE_WORK_S)
        if self.is_broken:
            return
        try:
            self.finish_full_files()
            if self._current is not None:
                self._current.finish()
                self.finished_timestamp_ms = self._current.end_timestamp_ms
                self._current = None
        except StoreIOError:
            self.is_broken = True
            logger.exception("the index could not be written; the next start rebuilds it")

    def close(self) -> None:
        """Close the files; the next start rebuilds entries that `finish` did not write."""
        for file in self.files:
            file.close()

    def _work_from_backlog(self, count: int) -> None:
        if self._native is not None and (packed := self._backlog.take_runs(count)):
            self._put_packed(packed)
            return
        items = self._backlog.take(count)
        if self._native is None:
            self._put_many(entries_of_items(items))
            return
        while items:
            entries, done = self._native.index_entries(items)
            self._put_packed(entries)
            if done < len(items):  # an unusual one, such as one with keys that are not ASCII
                self._index(*items[done])
            items = items[done + 1 :]

    def _put_many(self, batch: list[tuple[int, int, int]]) -> None:
        while batch:
            file = self._current
            if file is None or file.is_full():
                file = self._next_file()
            batch = batch[file.put_many(batch) :]
            if file.has_much_pending:
                file.write_entries()

    def _put_packed(self, entries: bytes) -> None:
        """`_put_many` of entries that the C extension packed."""
        assert self._native is not None
        done, count = 0, len(entries) // PACKED_ENTRY.size
        while done < count:
            file = self._current
            if file is None or file.is_full():
                file = self._next_file()
            done += file.put_packed(self._native, entries, done)
            if file.has_much_pending:
                file.write_entries()

    def _work_from_log(self, count: int) -> None:
        assert self._catch_up is not None
        if self._reader is None:
            self._reader = self._read_log(self._catch_up)
        newest = self.files[-1].end_physical_offset if self.files else -1
        for _ in range(count):
            record = next(self._reader, None)
            if record is None:
                self._catch_up = self._reader = None
                return
            topic, sys_flag, properties, physical_offset, timestamp_ms, self._catch_up = record
            if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK_TYPE:
                continue
            if physical_offset > newest:
                self._index(hash_prefix(f"{topic}#"), properties, physical_offset, timestamp_ms)
            elif physical_offset == newest:
                # A file may have become full between two keys of one message.
                entries = entries_of(
                    hash_prefix(f"{topic}#"), properties, physical_offset, timestamp_ms
                )
                self._put_many(entries[self._count_at_end(physical_offset) :])

    def _count_at_end(self, physical_offset: int) -> int:
        """The number of entries at the end of all files that are of the message at this offset."""
        count = 0
        for file in reversed(self.files):
            here = file.count_at_end(physical_offset)
            count += here
            if here < file.index_count - 1:
                break
        return count

    def _index(
        self, topic_hash: int, properties: bytes, physical_offset: int, timestamp_ms: int
    ) -> None:
        self._put_many(entries_of(topic_hash, properties, physical_offset, timestamp_ms))

    def _next_file(self) -> IndexFile:
        if self._current is None and self.files and not self.files[-1].is_full():
            last = self.files[-1]
            last.reopen()  # if it fails, the next call tries again
            self._current = last
            return last
        if self._current is not None:
            self._current.write_entries()  # here: `finish` may run in a thread
            self._full.append(self._current)
            self._current = None
        self._disk.make_folder(self.folder)
        moment = self._clock.wall_ms()
        name = self._clock.local_time_name(moment)
        while self.files and f"{self.folder}/{name}" <= self.files[-1].path:
            # Two files in one millisecond, or a clock set back: names must ascend.
            name = f"{int(self.files[-1].path.rpartition('/')[2]) + 1:017d}"
        file = self._file(f"{self.folder}/{name}")
        previous = self.files[-1] if self.files else None
        file.create(
            end_physical_offset=previous.end_physical_offset if previous else 0,
            end_timestamp_ms=previous.end_timestamp_ms if previous else 0,
        )
        self.files.append(file)
        self._current = file
        return file

    def _file(self, path: str) -> IndexFile:
        return IndexFile(
            self._disk, path, slot_count=self._slot_count, index_count_max=self._index_count_max
        )
