"""The cut of a stopped store: messages that a new master does not have are removed.

A slave of controller mode cuts its log at the end of the part that it has in common with its
master. Everything after it was never confirmed. The cut is a part of opening the store:

1. Recovery runs first, so that log, queues and checkpoint agree and are on the device.
2. `log_cut.trocket` is written: the offset of the cut, and the end of the log. From then on a start
   that finds the file does the rest again, from whatever a crash has left.
3. The log: later files are removed, the rest is overwritten with zeros and synced. Otherwise the
   old bytes would be records again after the next crash, at offsets that then hold others.
4. Queues, index files, the record of deleted topics, queue_ends.trocket and the checkpoint are cut
   to the same offset and synced.
5. The file is removed, and recovery runs again, as after a crash.

Nothing is served or appended before the end of that, so no reader sees other bytes at an offset.

Java counterpart: DefaultMessageStore.truncateFiles of 5.5.0, which moves positions in memory: the
bytes stay on disk.
"""

from __future__ import annotations

import logging
import re
import zlib
from dataclasses import replace
from typing import Final, NamedTuple

from ...common.java_integers import INT64_MAX
from ...disk.errors import CorruptRecordError
from ...disk.json_config import read_bytes, write_copy
from ...disk.os_disk import Disk
from ...disk.position import START
from ..config import MessageStoreConfig
from ..format import INDEX_HEAD, INDEX_HEADER_SIZE, Key
from ..log.commit_log import CommitLog
from ..log.log_reader import LogReader, record_at
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.deleted_topics import DeletedTopics
from ..queues.queue_ends import REBUILD, QueueEnds, read_queue_ends, write_queue_ends
from .checkpoint import Checkpoint, IndexProgress, read_checkpoint, write_checkpoint

logger = logging.getLogger(__name__)

FILE_NAME: Final = "log_cut.trocket"

_WRITTEN: Final = re.compile(rb"(\d{1,19}) (\d{1,19})")

_NEEDS_A_HAND: Final = (
    "this needs a hand, and nothing was changed. Stop this broker, empty its store (or copy its "
    "master's there), and start it again; save the folder first if its other messages matter"
)


class LogCut(NamedTuple):
    """One cut.

    Attributes:
      offset: physical offset at which the log ends from now on.
      log_end: at which it ended.
    """

    offset: int
    log_end: int


def read_cut(disk: Disk, root: str) -> LogCut | None:
    """The cut that a crash has interrupted; None: there is none.

    Raises:
      CorruptRecordError: the file is damaged.
      StoreIOError: it could not be read.
    """
    path = f"{root}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    crc, _, text = read_bytes(disk, path).partition(b"\n")
    written = _WRITTEN.fullmatch(text)
    if written is not None and crc == b"%08x" % zlib.crc32(text):
        cut = LogCut(*map(int, written.groups()))
        if cut.offset <= cut.log_end <= INT64_MAX:
            return cut
    raise CorruptRecordError(
        path,
        0,
        "it is damaged. It says that the log was being cut. Remove it: the store is then recovered "
        "as after a crash, and the log is cut again when this broker follows its master",
    )


def write_cut(disk: Disk, root: str, cut: LogCut) -> None:
    """Record a cut before it begins.

    Raises:
      StoreIOError: it could not be written; nothing has begun.
    """
    text = b"%d %d" % cut
    sealed = b"%08x\n%s" % (zlib.crc32(text), text)
    write_copy(disk, f"{root}/{FILE_NAME}", sealed, private=False)
    disk.sync_folder(root)


def clear_cut(disk: Disk, root: str) -> None:
    """Record that the cut is on the device.

    Raises:
      StoreIOError: the file could not be removed.
    """
    disk.unlink(f"{root}/{FILE_NAME}")
    disk.sync_folder(root)


def boundary(log: CommitLog, queues: ConsumeQueueStore, cut_at: int, end: int) -> int:
    """The offset at which a recovered log can be cut.

    Args:
      cut_at: the wanted offset, any number.
      end: of the log.

    Returns: `cut_at`; inside of a record or a blank, where that begins. The bytes before are the
      same on both sides, but a part of a record is no message.

    Raises:
      CorruptRecordError: the log cannot be cut there; the message says what to do.
      StoreIOError: a file could not be read.
    """
    if cut_at == end:
        return end
    if not log.min_offset <= cut_at < end:
        reason = f"the log cannot be cut here, as it has the bytes from {log.min_offset} to {end}"
        raise CorruptRecordError(log.folder, cut_at, f"{reason}: {_NEEDS_A_HAND}")
    if cut_at % log.file_size == 0 or _has_unit(log, queues, cut_at):
        return cut_at
    # A body may hold the bytes of a record, so only what was read from a file's start counts.
    found = cut_at - cut_at % log.file_size
    for record in LogReader(log, found, check_crc=False, stop=lambda: end).scan():
        if record[0] + record[1] > cut_at or record[0] >= cut_at:
            break
        found = record[0] + record[1]
    return min(found, cut_at)


def _has_unit(log: CommitLog, queues: ConsumeQueueStore, physical_offset: int) -> bool:
    """Whether the queue of the record that seems to lie here says that it does."""
    record = record_at(log, physical_offset)
    queue = record and queues.queues.get((record.topic, record.queue_id))
    if not record or not queue or queue.is_batch:
        return False
    if not queue.lowest_offset <= record.queue_offset < queue.max_offset:
        return False
    return queue.unit_at(record.queue_offset)[0] == physical_offset


class StoreCut:
    """Cuts the files of a store that is locked and not loaded. It may be repeated.

    Args:
      config, log, queue_store, disk: the store's; log and queues are loaded here, and left open.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        log: CommitLog,
        queue_store: ConsumeQueueStore,
        disk: Disk,
    ) -> None:
        self._config = config
        self._root = config.store_path_root_dir
        self._log = log
        self._queue_store = queue_store
        self._disk = disk

    def apply(self, cut: LogCut) -> None:
        """Cut everything, and record that it is done.

        Raises:
          CorruptRecordError: a log file differs from the configured size.
          StoreIOError: a file could not be read, written or removed; repeat it.
        """
        logger.warning(
            "%(folder)s: the log is cut at %(offset)d: %(size)d bytes after it are removed, which "
            "the master of this broker set does not have",
            {"folder": self._log.folder, "offset": cut.offset, "size": cut.log_end - cut.offset},
        )
        disk, root = self._disk, self._root
        self._log.load()
        self._cut_log(cut)
        ends = self._cut_queues(cut.offset)
        known = read_checkpoint(disk, f"{root}/checkpoint")
        progress = self._cut_index(cut.offset, known.index)
        deleted = DeletedTopics(disk, root)
        deleted.load()
        deleted.cut(cut.offset)
        # The ends first: they count only with the checkpoint that they name.
        write_queue_ends(disk, root, ends)
        write_checkpoint(disk, f"{root}/checkpoint", _checkpoint(known, cut.offset, progress))
        clear_cut(disk, root)

    def _cut_log(self, cut: LogCut) -> None:
        log, offset = self._log, cut.offset
        log.remove_unfinished()
        # The file that begins with the log stays: it says where.
        log.remove_from(max(offset, log.min_offset + 1))
        self._disk.sync_folder(log.folder)
        # Also where they are zeros already: those may be in the cache only.
        log.zero(offset, min(cut.log_end, log.end_of_files))

    def _cut_queues(self, offset: int) -> QueueEnds:
        """Cut each queue; returns their ends, of the next checkpoint."""
        store, log = self._queue_store, self._log
        store.load()
        known = read_queue_ends(self._disk, self._root)
        if known is None:
            known = QueueEnds(-1, self._config.queue_file_size, log_start=log.min_offset)
        ends: dict[Key, int] = {}
        begins: dict[Key, int] = {}
        for key, queue in store.queues.items():
            if key in store.damaged or known.ends.get(key) == REBUILD:
                ends[key] = REBUILD
                continue
            queue.cut(offset)
            if queue.max_offset == 0:
                queue.remove()
                continue
            queue.correct_min_offset(log.min_offset)
            ends[key], begins[key] = queue.max_offset, queue.min_offset
        store.sync(store.take_unsynced())
        return replace(
            known, dispatched_offset=offset, ends=ends, begins=begins, begins_at=log.min_offset
        )

    def _cut_index(self, offset: int, progress: IndexProgress | None) -> IndexProgress | None:
        """Remove the index files with a message after the cut; returns the progress that is
        left, None: unknown."""
        disk, folder = self._disk, f"{self._root}/index"
        kept = progress
        is_beyond = progress is not None and (
            progress.index_count > 1 and progress.end_physical_offset >= offset
        )
        current = progress.file_name if progress is not None and not is_beyond else -1
        gone = False
        names = [name for name in disk.list(folder) if name.isascii() and name.isdigit()]
        for name in names:
            # The header of the file that is being filled is that of the checkpoint.
            if gone or (int(name) != current and self._ends_after(f"{folder}/{name}", offset)):
                disk.unlink(f"{folder}/{name}")
                gone = True
        if gone or is_beyond:
            kept = None
        elif progress is not None:
            kept = replace(progress, indexed_offset=min(progress.indexed_offset, offset))
        if names:
            disk.sync_folder(folder)
        return kept

    def _ends_after(self, path: str, offset: int) -> bool:
        file = self._disk.open(path)
        try:
            header = file.pread(INDEX_HEADER_SIZE, START)
        finally:
            file.close()
        if len(header) < INDEX_HEADER_SIZE:
            return True
        _, _, _, end_physical_offset, _, _ = INDEX_HEAD.unpack(header)
        return bool(end_physical_offset >= offset)


def _checkpoint(known: Checkpoint, offset: int, progress: IndexProgress | None) -> Checkpoint:
    """The checkpoint of a store that ends at an offset. Its times stay: no record is newer."""
    return replace(
        known,
        master_flushed_offset=min(known.master_flushed_offset, offset),
        confirm_physical_offset=min(known.confirm_physical_offset, offset),
        dispatched_offset=offset,
        index=progress,
    )
