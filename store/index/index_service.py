"""The hash index over all messages: by KEYS and by UNIQ_KEY.

Java counterpart: store/index/IndexService.java of 5.3.3. The store hands over what each commit
appended (`add`), which costs it nothing; entries are built in bounded slices (`work`) between the
broker's other work, or read from the log where there is a backlog too large to keep.

With each checkpoint the store notes how far the index is on the device (`state`). After an unclean
exit the file that was being filled goes on from there: its slot table is made again from its
entries, then the log is indexed from where they end, both in slices. Until `is_behind` is false a
look-up may miss messages; it never answers wrong ones. What cannot be believed is removed and built
again from the log (`index_loading.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from ...common.java_hash import (
    hash_continue,
    hash_prefix,
    index_key_hash,
    index_key_hash_after,
)
from ...common.message_properties import KEYS_HEAD, UNIQUE_KEY_HEAD, find_property
from ...remoting.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from ..clock import Clock
from ..disk.os_disk import Disk
from ..errors import StoreError, StoreIOError
from ..format import FILE_MARKS_COUNT_MAX
from ..recovery.checkpoint import Checkpoint, IndexProgress
from .index_file import IndexFile
from .index_loading import IndexLoader, LogSpan

logger = logging.getLogger(__name__)

BACKLOG_COUNT_MAX = 200_000
"""Messages waiting for their entries in memory (some 100 MB at the very worst); beyond, they are
read again from the log. Apache's dispatch is slowed down instead."""

SLICE_S = 0.001
"""How long one slice of work may keep the broker waiting."""

SLICE_COUNT = 128
"""Messages between two looks at the clock."""


RETRY_S = 5.0
"""How long the index rests when a file could not be made or written. Sends come back by themselves
when a full disk has room again, and so does the index."""

CLOSE_WORK_S = 10.0
"""How long a stop may take to build what is left; the next start builds the rest."""


IndexItem: TypeAlias = tuple[int, bytes, int, int]
"""(hash of "topic#", properties, physical offset, store timestamp ms) of one message. A plain
tuple: each put makes one, and a NamedTuple takes four times as long."""


class IndexedRecord(NamedTuple):
    """A record of the log, read again for the index.

    Attributes:
      next_offset: physical offset at which it ends.
    """

    topic: str
    sys_flag: int
    properties: bytes
    physical_offset: int
    store_timestamp_ms: int
    next_offset: int


class QueryOffsets(NamedTuple):
    """Physical offsets found by key, and how far the index reaches."""

    physical_offsets: list[int]
    last_update_timestamp_ms: int
    last_update_physical_offset: int


class IndexState(NamedTuple):
    """What a checkpoint says of the index.

    Attributes:
      progress: None when nothing can be said.
      finished_timestamp_ms: store time of the newest entry of the newest finished file, 0: none.
      file: whose entries must be synced before the checkpoint is written; None: none.
    """

    progress: IndexProgress | None
    finished_timestamp_ms: int
    file: IndexFile | None

    def unfinished_since_ms(self, dispatched_offset: int, timestamp_ms: int) -> int:
        """No message that a finished file lacks was stored before this time, ms.

        Args:
          dispatched_offset: of the checkpoint; `timestamp_ms` is its time, the answer when there is
            no such message before that offset.
        """
        progress = self.progress
        if progress is None:
            return timestamp_ms
        if progress.file_name:
            return progress.begin_timestamp_ms
        behind = progress.indexed_offset < dispatched_offset
        return self.finished_timestamp_ms if behind else timestamp_ms


RecordsFrom = Callable[[int], Iterator[IndexedRecord]]
"""From a physical offset on: each visible record, up to the end there is when it is reached."""


class IndexService:
    """All index files of a store. Owned by the store's task.

    Args:
      disk, clock: the seams.
      folder: where the files lie.
      slot_count, index_count_max: of each file (maxHashSlotNum, maxIndexNum).
      read_log: how to read records again.

    Attributes:
      folder: where the files lie.
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
        self._backlog: deque[IndexItem] = deque()
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
        """Open the files there are, and find out what must be built again; `work` builds it.

        Files that are damaged, or not vouched for after an unclean exit, are removed. When a file
        cannot be read or removed the index `is_broken`.

        Args:
          checkpoint: as it was read.
          log: what is there of the log.
          clean: there was no abort file.
          read_only: nothing may be written; look-ups then miss what is not in the files.
        """
        loader = IndexLoader(
            self._disk, self.folder, self._file, checkpoint, clean=clean, read_only=read_only
        )
        try:
            self.files, resumed, catch_up = loader.load(log)
        except StoreError:
            self.is_broken = True
            logger.exception("the index is off until the next start: it cannot be read")
            return
        self._read_only = read_only
        if resumed is not None:
            self._resumed = resumed
            self._settle_resumed()
        if catch_up is not None and read_only:
            logger.warning("look-ups by key miss what is in the log from %d on", catch_up)
        elif catch_up is not None:
            self.catch_up_from(catch_up)

    def _settle_resumed(self) -> None:
        """Once its slot table is whole, a file that goes on is like any other."""
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
        """What a checkpoint may say once `IndexState.file` is synced (`sync_entries`).

        Args:
          dispatched_offset: all records before it, and none behind it, came through `add`. The
            checkpoint may be written when the log is on the device up to there.

        Returns: None when entries could not be written; what was said before is still true then.
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
            # A full file that is not finished yet: the files after it are built again.
            indexed_offset = (
                file.end_physical_offset if full else self._indexed_offset(dispatched_offset)
            )
        finished = self.files[: self.files.index(newest)] if newest is not None else self.files
        marks = tuple((done.name, done.header_crc) for done in finished[-FILE_MARKS_COUNT_MAX:])
        progress = IndexProgress(indexed_offset=indexed_offset, files=marks)
        if newest is not None:
            progress = IndexProgress(
                newest.name,
                newest.begin_timestamp_ms,
                newest.end_timestamp_ms,
                newest.begin_physical_offset,
                newest.end_physical_offset,
                newest.hash_slot_count,
                newest.index_count,
                indexed_offset,
                marks,
            )
        return IndexState(progress, self.finished_timestamp_ms, file)

    def _indexed_offset(self, dispatched_offset: int) -> int:
        if self._catch_up is not None:
            return self._catch_up
        return self._backlog[0][2] if self._backlog else dispatched_offset

    def catch_up_from(self, physical_offset: int) -> None:
        """Index from the log, from here to its end, before what `add` brings.

        Args:
          physical_offset: where a record or a blank begins. Entries that the files have already
            are not made twice.
        """
        self._catch_up = physical_offset
        self._reader = None
        self._backlog.clear()

    def replace_missing(self) -> None:
        """Begin anew, and index the whole log again, where somebody has removed a file.

        A file that is removed can still be written to, but what it gets is lost; and nothing can be
        vouched for any more, so there would be no checkpoint.

        Raises:
          StoreIOError: the folder could not be read, or a file not be removed; the next call tries
            again.
        """
        if self._read_only or not self.files or self._is_finishing or self.has_full_files:
            return  # what a worker thread writes out, or is about to, is looked at next time
        names = set(self._disk.list(self.folder))
        missing = [file for file in self.files if file.path.rpartition("/")[2] not in names]
        if not missing:
            return
        logger.warning(
            "%s was removed while the broker runs: all index files are made again from the log; "
            "look-ups by key miss messages until that is done",
            missing[0].path if names else self.folder,
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

    def add(self, items: list[IndexItem]) -> None:
        """Take over what one commit appended, in the log's order."""
        if self._catch_up is not None or self.is_broken:
            return
        if len(self._backlog) > BACKLOG_COUNT_MAX:
            self.catch_up_from(self._backlog[0][2])
            return
        self._backlog.extend(items)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do until something is added, not even a retry."""
        return self.is_broken or not (
            self._backlog or self._catch_up is not None or self._resumed is not None or self._full
        )

    @property
    def is_behind(self) -> bool:
        """Whether there is work to do, and nothing stands against it."""
        return not (self.is_broken or self._is_paused) and bool(
            self._backlog or self._catch_up is not None or self._resumed is not None
        )

    def rest(self, duration_s: float) -> None:
        """Have who works through the backlog do something more urgent for some time from now."""
        self._rests_until_s = self._clock.monotonic_s() + duration_s

    @property
    def is_resting(self) -> bool:
        """Whether `rest` is in force; `work` does not look at it."""
        return self._clock.monotonic_s() < self._rests_until_s

    @property
    def _is_paused(self) -> bool:
        return self._paused_until_s > 0 and self._clock.monotonic_s() < self._paused_until_s

    def work(self, limit_s: float = SLICE_S) -> None:
        """Build entries for at most about `limit_s` seconds.

        A file that cannot be made or written does not stop the store: look-ups by key are then
        incomplete until that succeeds, `RETRY_S` later or more, when the log is read again.
        """
        until = self._clock.monotonic_s() + limit_s
        begin = -1
        try:
            while self.is_behind:
                if self._resumed is not None:
                    self._resumed.rebuild_slots()
                    self._settle_resumed()
                elif self._catch_up is not None:
                    begin = self._catch_up
                    self._work_from_log(SLICE_COUNT)
                else:
                    begin = self._backlog[0][2]
                    self._work_from_backlog(SLICE_COUNT)
                self._is_failing = False
                if self._clock.monotonic_s() >= until:
                    return
        except StoreIOError as error:
            self._pause(error)
            if begin >= 0:
                self.catch_up_from(begin)
        except StoreError:
            self.is_broken = True
            self._backlog.clear()
            logger.exception("the index is off until the next start: it cannot be read")

    def _pause(self, error: StoreIOError) -> None:
        if any(file.has_failed_sync for file in self.files):
            self.is_broken = True
            self._backlog.clear()
            logger.error("the index is off until the next start: %s", error)
            return
        if not self._is_failing:
            logger.error("the index is not written for a while, look-ups miss messages: %s", error)
        self._is_failing = True
        self._paused_until_s = self._clock.monotonic_s() + RETRY_S

    def finish_full_files(self) -> None:
        """Write out the files that filled up since the last call; may run in a worker thread.

        One that cannot be written is tried again later, as in `work`.
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
        """Whether `finish_full_files` has something to do."""
        return bool(self._full) and not (self.is_broken or self._is_paused)

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> QueryOffsets:
        """Physical offsets of messages with a key, newest first.

        Hashes may collide: the caller compares the messages where that matters (Apache's broker
        answers them as they are).

        Raises:
          StoreIOError: a file could not be read.

        Source: RocketMQ 5.3.3 store/index/IndexService.java queryOffset.
        """
        found: list[int] = []
        if not self.files:
            return QueryOffsets(found, 0, 0)
        key_hash = index_key_hash(f"{topic}#{key}")
        for file in reversed(self.files):
            if file.is_time_matched(begin_ms, end_ms):
                file.select(key_hash, found, count_max, begin_ms, end_ms)
            if file.begin_timestamp_ms < begin_ms or len(found) >= count_max:
                break
        newest = self.files[-1]
        return QueryOffsets(found, newest.end_timestamp_ms, newest.end_physical_offset)

    def delete_expired(self, min_physical_offset: int) -> list[IndexFile]:
        """Remove the oldest files, those that know no message at or behind an offset.

        The newest file stays, and so does one that is not finished.

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
        """Build what is left, as far as `CLOSE_WORK_S` lasts, and write all out."""
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
            logger.exception("the index could not be written; it is built again at the next start")

    def close(self) -> None:
        """Close the files; what `finish` did not write out is built again at the next start."""
        for file in self.files:
            file.close()

    def _work_from_backlog(self, count: int) -> None:
        popleft = self._backlog.popleft
        last_topic_hash, last_head, head_hash = 0, b"", 0
        batch: list[tuple[int, int, int]] = []
        for _ in range(min(count, len(self._backlog))):
            topic_hash, properties, physical_offset, timestamp_ms = popleft()
            # The usual message: one unique key, of which all but the last four digits is what the
            # message before it had, and no KEYS. Everything else takes `_index`.
            at = properties.rfind(UNIQUE_KEY_HEAD)
            end = properties.find(b"\x02", at + 9)
            key = properties[at + 9 : end if end > 0 else None]
            if (
                at < 0
                or (at and properties[at - 1] != 2)
                or len(key) < 8
                or KEYS_HEAD in properties
                or not key.isascii()
            ):
                self._put_many(batch)
                batch = []
                self._index(topic_hash, properties, physical_offset, timestamp_ms)
                continue
            head = key[:-4]
            if head != last_head or topic_hash != last_topic_hash:
                last_topic_hash, last_head = topic_hash, head
                head_hash = hash_continue(topic_hash, head.decode()) * 923521  # 31 ** 4
            a, b, c, d = key[-4:]
            code = (head_hash + a * 29791 + b * 961 + c * 31 + d) & 0xFFFFFFFF
            if code >= 0x80000000:
                code = (0x100000000 - code) & 0x7FFFFFFF
            batch.append((code, physical_offset, timestamp_ms))
        self._put_many(batch)

    def _put_many(self, batch: list[tuple[int, int, int]]) -> None:
        while batch:
            file = self._current
            if file is None or file.is_full():
                file = self._next_file()
            batch = batch[file.put_many(batch) :]
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
                entries = _entries(
                    hash_prefix(f"{topic}#"), properties, physical_offset, timestamp_ms
                )
                self._put_many(entries[self._count_at_end(physical_offset) :])

    def _count_at_end(self, physical_offset: int) -> int:
        """How many entries, the last ones of all, are of the message at this offset."""
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
        self._put_many(_entries(topic_hash, properties, physical_offset, timestamp_ms))

    def _next_file(self) -> IndexFile:
        if self._current is None and self.files and not self.files[-1].is_full():
            last = self.files[-1]
            last.reopen()  # may fail, and is then tried again
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
            # Two files in one millisecond, or the clock went back: names must rise.
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


def _entries(
    topic_hash: int, properties: bytes, physical_offset: int, timestamp_ms: int
) -> list[tuple[int, int, int]]:
    """The entries of one message: its unique key's, then one of each of its keys."""
    entries = []
    unique_key = find_property(properties, b"UNIQ_KEY")
    if unique_key is not None:
        code = index_key_hash_after(topic_hash, str(unique_key, "utf-8", "replace"))
        entries.append((code, physical_offset, timestamp_ms))
    keys = find_property(properties, b"KEYS")
    if keys is not None:
        for key in str(keys, "utf-8", "replace").split(" "):
            if key:
                code = index_key_hash_after(topic_hash, key)
                entries.append((code, physical_offset, timestamp_ms))
    return entries
