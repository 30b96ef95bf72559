"""The hash index over all messages: by KEYS and by UNIQ_KEY.

Java counterpart: store/index/IndexService.java of 5.3.3. The store hands over what each commit
appended (`add`), which costs it nothing; entries are built in bounded slices (`work`) between the
broker's other work, or read from the log where there is a backlog too large to keep.

The index is disposable: what an abnormal exit leaves in doubt is removed and built again from the
log (`catch_up_from`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..remoting.java_hash import (
    hash_continue,
    hash_prefix,
    index_key_hash,
    index_key_hash_after,
)
from ..remoting.message_properties import find_property
from ..remoting.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from .clock import Clock
from .disk import Disk
from .errors import StoreError, StoreIOError
from .index_file import IndexFile

logger = logging.getLogger(__name__)

BACKLOG_COUNT_MAX = 200_000
"""Messages waiting for their entries in memory (some 100 MB at the very worst); beyond, they are
read again from the log. Apache's dispatch is slowed down instead."""

SLICE_S = 0.001
"""How long one slice of work may keep the broker waiting."""

SLICE_COUNT = 128
"""Messages between two looks at the clock."""


class IndexItem(NamedTuple):
    """What the index needs of one message; the store appends plain tuples of this shape."""

    topic_hash: int  # hash_prefix("topic#")
    properties: bytes
    physical_offset: int
    store_timestamp_ms: int


class QueryOffsets(NamedTuple):
    """Physical offsets found by key, and how far the index reaches."""

    physical_offsets: list[int]
    last_update_timestamp_ms: int
    last_update_physical_offset: int


LogReader = Callable[[int], Iterator[tuple[str, int, bytes, int, int, int]]]
"""From a physical offset on: (topic, sys_flag, properties, physical_offset, store timestamp ms,
next physical offset) of each visible record, up to the end there is when it is reached."""


class IndexService:
    """All index files of a store. Owned by the store's task.

    Args:
      disk, clock: the seams.
      folder: where the files lie.
      slot_count, index_count_max: of each file (maxHashSlotNum, maxIndexNum).
      read_log: how to read records again.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        folder: str,
        *,
        slot_count: int,
        index_count_max: int,
        read_log: LogReader,
    ) -> None:
        self.files: list[IndexFile] = []
        self.is_broken = False
        self.finished_timestamp_ms = 0
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._slot_count = slot_count
        self._index_count_max = index_count_max
        self._read_log = read_log
        self._backlog: deque[tuple[int, bytes, int, int]] = deque()
        self._catch_up: int | None = None
        self._reader: Iterator[tuple[str, int, bytes, int, int, int]] | None = None
        self._current: IndexFile | None = None
        self._full: list[IndexFile] = []

    def load(self, *, clean: bool, index_msg_timestamp_ms: int) -> bool:
        """Open the files there are.

        Args:
          clean: the last exit was one; otherwise files with entries behind the checkpoint's time
            are removed, as Apache does.
          index_msg_timestamp_ms: the checkpoint's.

        Returns: False when a file was removed: the log must be read again from where the others
          end.

        Raises:
          StoreIOError: a file could not be read or removed.
        """
        whole = True
        for name in self._disk.list(self._folder):
            path = f"{self._folder}/{name}"
            if not (name.isascii() and name.isdigit()):
                continue
            file = self._file(path)
            fits = file.load()
            # A header of zeros: the file was being filled when the process died.
            unfinished = file.index_count <= 1 and file.end_timestamp_ms == 0
            if (
                not fits
                or unfinished
                or (not clean and file.end_timestamp_ms > index_msg_timestamp_ms)
            ):
                logger.info("index file %s is removed and built again from the log", path)
                file.close()
                self._disk.unlink(path)
                whole = False
                continue
            self.files.append(file)
        return whole

    @property
    def end_physical_offset(self) -> int:
        """The last indexed message's physical offset; -1 when there is no file."""
        return self.files[-1].end_physical_offset if self.files else -1

    def catch_up_from(self, physical_offset: int) -> None:
        """Index from the log, from here to its end, before what `add` brings."""
        self._catch_up = physical_offset
        self._reader = None
        self._backlog.clear()

    def add(self, items: list[tuple[int, bytes, int, int]]) -> None:
        """Take over what one commit appended: `IndexItem` tuples in the log's order."""
        if self._catch_up is not None or self.is_broken:
            return
        if len(self._backlog) > BACKLOG_COUNT_MAX:
            self.catch_up_from(self._backlog[0][2])
            return
        self._backlog.extend(items)

    @property
    def is_behind(self) -> bool:
        """Whether there is work to do."""
        return not self.is_broken and bool(self._backlog or self._catch_up is not None)

    def work(self, limit_s: float = SLICE_S) -> None:
        """Build entries for at most about `limit_s` seconds.

        A file that cannot be written stops the index (`is_broken`), not the store: messages are
        kept, only look-ups by key are then incomplete until the next start.
        """
        until = self._clock.monotonic_s() + limit_s
        try:
            while self.is_behind:
                if self._catch_up is not None:
                    self._work_from_log(SLICE_COUNT)
                else:
                    self._work_from_backlog(SLICE_COUNT)
                if self._clock.monotonic_s() >= until:
                    return
        except StoreError:
            self.is_broken = True
            self._backlog.clear()
            logger.exception("the index is off until the next start: its file cannot be written")

    def finish_full_files(self) -> None:
        """Write out the files that filled up since the last call; may run in a worker thread.

        Raises:
          StoreIOError: one could not be written or synced.
        """
        while self._full:
            file = self._full[0]
            file.finish()
            self.finished_timestamp_ms = file.end_timestamp_ms
            self._full.pop(0)

    @property
    def has_full_files(self) -> bool:
        """Whether `finish_full_files` has something to do."""
        return bool(self._full)

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

    def close(self) -> None:
        """Build what is left, write all out, close."""
        while self.is_behind:
            self.work(3600.0)
        try:
            if not self.is_broken:
                self.finish_full_files()
                if self._current is not None:
                    self._current.finish()
                    self.finished_timestamp_ms = self._current.end_timestamp_ms
        except StoreIOError:
            self.is_broken = True
            logger.exception("the index could not be written; it is built again at the next start")
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
            at = properties.rfind(b"UNIQ_KEY\x01")
            end = properties.find(b"\x02", at + 9)
            key = properties[at + 9 : end if end > 0 else None]
            if (
                at < 0
                or (at and properties[at - 1] != 2)
                or len(key) < 8
                or b"KEYS\x01" in properties
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

    def _work_from_log(self, count: int) -> None:
        assert self._catch_up is not None
        if self._reader is None:
            self._reader = self._read_log(self._catch_up)
        for _ in range(count):
            record = next(self._reader, None)
            if record is None:
                self._catch_up = self._reader = None
                return
            topic, sys_flag, properties, physical_offset, timestamp_ms, self._catch_up = record
            if sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE:
                self._index(hash_prefix(f"{topic}#"), properties, physical_offset, timestamp_ms)

    def _index(
        self, topic_hash: int, properties: bytes, physical_offset: int, timestamp_ms: int
    ) -> None:
        unique_key = find_property(properties, b"UNIQ_KEY")
        if unique_key is not None:
            text = str(unique_key, "utf-8", "replace")
            code = index_key_hash_after(topic_hash, text)
            self._put_many([(code, physical_offset, timestamp_ms)])
        keys = find_property(properties, b"KEYS")
        if keys is not None:
            for key in str(keys, "utf-8", "replace").split(" "):
                if key:
                    code = index_key_hash_after(topic_hash, key)
                    self._put_many([(code, physical_offset, timestamp_ms)])

    def _next_file(self) -> IndexFile:
        if self._current is None and self.files and not self.files[-1].is_full():
            self._current = self.files[-1]
            self._current.reopen()
            return self._current
        if self._current is not None:
            self._full.append(self._current)
        self._disk.make_folder(self._folder)
        moment = self._clock.wall_ms()
        name = self._clock.local_time_name(moment)
        while self.files and f"{self._folder}/{name}" <= self.files[-1].path:
            # Two files in one millisecond, or the clock went back: names must rise.
            name = f"{int(self.files[-1].path.rpartition('/')[2]) + 1:017d}"
        file = self._file(f"{self._folder}/{name}")
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
