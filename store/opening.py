"""The opening of a store: its recovery, the cut of its log, and what it shows at first.

Java counterpart: DefaultMessageStore.load of 5.3.3, and truncateFiles of 5.5.0.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

from ..common.clock import Clock, StoreTimeMs
from ..disk.errors import CorruptRecordError, StoreError, StoreIOError
from ..disk.os_disk import FULL, NOT_WRITABLE, TO_WRITE, Disk, errno_of
from .checkpoint_writer import CheckpointWriter
from .config import BrokerRole, MessageStoreConfig
from .data_folder import make_root, note_open
from .index.index_loading import LogSpan
from .index.index_service import IndexService
from .log.commit_log import CommitLog
from .queues.consume_queue_store import ConsumeQueueStore
from .queues.deleted_topics import DeletedTopics, topic_check
from .reading.message_reader import MessageReader
from .reading.visible_log import VisibleLog
from .recovery.doubt import clear_doubt, note_doubt, read_doubt
from .recovery.log_cut import LogCut, StoreCut, boundary, read_cut, write_cut
from .recovery.rocksdb import refuse_rocksdb
from .recovery.store_recovery import StoreRecovery
from .store_state import StoreEvent
from .writing.dispatcher import Dispatcher
from .writing.in_sync_acks import ConfirmedCopy, InSyncAcks
from .writing.log_writer import LogWriter

logger = logging.getLogger(__name__)


class Opened(NamedTuple):
    """The log as it was when the store was opened.

    Attributes:
      end: physical offset of its end; this process wrote the bytes after it.
      newest_ms: store timestamp of the newest message; 0 if there was none.
      is_ours: this program wrote the checkpoint.
      event: the event that ends the opening, and its reason.
    """

    end: int
    newest_ms: int
    is_ours: bool = True
    event: tuple[StoreEvent, str] = (StoreEvent.LOADED, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOpening:
    """Opens the files of one store. Its attributes are the store's parts, not loaded yet."""

    config: MessageStoreConfig
    clock: Clock
    disk: Disk
    log: CommitLog
    queue_store: ConsumeQueueStore
    index: IndexService
    visible_log: VisibleLog
    checkpoints: CheckpointWriter
    deleted_topics: DeletedTopics
    writer: LogWriter
    dispatcher: Dispatcher
    reader: MessageReader
    in_sync: InSyncAcks | ConfirmedCopy | None

    def open(self, cut_at: int | None, confirmed: int | None) -> Opened:
        """Lock the data folder, recover, cut, and hide what is not confirmed.

        Args, Raises: see `MessageStore.load`.
        """
        root, disk = self.config.store_path_root_dir, self.disk
        make_root(disk, root)
        disk.lock(f"{root}/lock")
        try:
            begun = read_cut(disk, root)
            if begun is not None:  # the last start did not end it
                self._cut(begun)
            opened = self._recover_as_far_as_it_can_be_written(loads_index=cut_at is None)
            if cut_at is not None:
                opened = self._cut_at(cut_at, opened)
            self._hide_unconfirmed(confirmed)
        except StoreError:
            self._close_files()
            disk.unlock(f"{root}/lock")
            raise
        self.writer.enter(*opened.event)
        return opened

    def _close_files(self) -> None:
        self.queue_store.close()
        self.log.close()

    # ---- cutting ---------------------------------------------------------------------------

    def _cut_at(self, cut_at: int, opened: Opened) -> Opened:
        """Cut a recovered log, and open it again."""
        event, reason = opened.event
        if event not in (StoreEvent.LOADED, StoreEvent.LOADED_AS_SLAVE):
            raise CorruptRecordError(
                self.log.folder, cut_at, f"the log cannot be cut here, as nothing may be "
                f"written: {reason}"
            )  # fmt: skip
        offset = boundary(self.log, self.queue_store, cut_at, opened.end)
        if offset < opened.end:
            cut = LogCut(offset, opened.end)
            write_cut(self.disk, self.config.store_path_root_dir, cut)
            self._close_files()
            self._cut(cut)
        else:
            self._close_files()
        return self._recover(loads_index=True)._replace(is_ours=opened.is_ours)

    def _cut(self, cut: LogCut) -> None:
        refuse_rocksdb(self.disk, self.config.store_path_root_dir)
        note_open(self.disk, self.config)
        StoreCut(self.config, self.log, self.queue_store, self.disk).apply(cut)
        self._close_files()

    # ---- recovery --------------------------------------------------------------------------

    def _recover_as_far_as_it_can_be_written(self, *, loads_index: bool) -> Opened:
        """Recover; without writing where the disk is full or read-only: what is stored is read."""
        try:
            return self._recover(loads_index=loads_index)
        except StoreIOError as error:
            if errno_of(error) not in FULL | NOT_WRITABLE:
                raise
            self._close_files()
            opened = self._recover(loads_index=loads_index, unwritable=error)
            logger.error(
                "the store could not be opened for writing: %(error)s. Messages can be read "
                "and not stored: %(what_to_do)s and restart the broker",
                {"error": error, "what_to_do": TO_WRITE[errno_of(error)]},
            )
            return opened

    def _recover(self, *, loads_index: bool, unwritable: StoreIOError | None = None) -> Opened:
        """Find the log's end, and correct the files.

        Args:
          loads_index: False: the store is about to be cut; the checkpoint keeps what it says of
            the index.
          unwritable: why nothing can be written; None: the files may be corrected. It is raised if
            there is nothing to read, either.
        """
        root, disk = self.config.store_path_root_dir, self.disk
        refuse_rocksdb(disk, root)
        clean = not disk.exists(f"{root}/abort")
        self.deleted_topics.load()
        recovery = StoreRecovery(
            self.config,
            self.log,
            self.queue_store,
            self.checkpoints.load(),
            disk,
            clean=clean,
            wall_ms=self.clock.wall_ms(),
            is_topic=topic_check(disk, root, self.deleted_topics.names),
            is_frozen=unwritable is not None,
        )
        found = recovery.scan()
        if unwritable is not None and not found.refusal and found.end <= self.log.min_offset:
            raise unwritable
        is_ours = self.checkpoints.current.dispatched_offset >= 0
        if self.in_sync is not None:  # before the next checkpoint is written
            self.in_sync.start_at(self.checkpoints.current.confirm_physical_offset)
        self.writer.reach(StoreTimeMs(found.newest_ms))
        doubt = read_doubt(disk, root, self.log.end_of_files)
        is_frozen = bool(found.refusal) or unwritable is not None
        if not is_frozen:
            for folder in (root, self.config.commit_log_folder):
                error = disk.unwritable_below(folder)
                if error is not None:
                    raise error
            # Noted before the log is changed: a crash from here on leaves pages in the cache that
            # may not be on the device, and the next start must write them again.
            if not found.as_closed:
                note_doubt(disk, root, min(found.start, doubt) if doubt >= 0 else found.start)
            recovery.truncate_log()
            note_open(disk, self.config)
        recovery.build_queues()
        self.checkpoints.loaded(recovery.ends, min(recovery.own_from, found.end))
        self.writer.start_at(found.end)
        self.reader.opened(found.end, self.checkpoints.own_from)
        self.queue_store.files.drop_pages()  # read before the files were corrected
        if loads_index:
            self._load_index(clean=clean, end=found.end, read_only=is_frozen)
        if not (is_frozen or found.as_closed):
            self.queue_store.mark_folders_unsynced(known=recovery.ends.ends)
            self._sync_recovered(found.start, found.end, doubt, has_index=loads_index)
        is_slave = self.config.broker_role is BrokerRole.SLAVE
        event = (StoreEvent.LOADED_AS_SLAVE if is_slave else StoreEvent.LOADED, "")
        if found.refusal:
            event = (StoreEvent.HOLE_FOUND, found.refusal)
        elif unwritable is not None:
            event = (StoreEvent.CANNOT_WRITE, str(unwritable))
        return Opened(found.end, found.newest_ms, is_ours, event)

    def _sync_recovered(self, start: int, end: int, doubt: int, *, has_index: bool) -> None:
        """Sync what recovery has found and built, and write the checkpoint."""
        if doubt >= 0:
            self.log.write_again(doubt)
            start = min(start, doubt)
        for base, file in self.log.files.items():
            if base + self.log.file_size > start:
                file.sync()
        self.queue_store.write()
        self.queue_store.sync(self.queue_store.take_unsynced())
        index = self.checkpoints.index_state() if has_index else None
        self.checkpoints.write(end, self.writer.burst.store_time_ms, index)
        clear_doubt(self.disk, self.config.store_path_root_dir)

    def _load_index(self, *, clean: bool, end: int, read_only: bool) -> None:
        if self.config.message_index_enable:
            latest_ms = max(self.writer.burst.store_time_ms, self.clock.wall_ms())
            log = LogSpan(self.log.min_offset, end, self.visible_log.is_record, latest_ms)
            self.index.load(self.checkpoints.current, log, clean=clean, read_only=read_only)
        # It described the files before loading; the next checkpoint describes them anew.
        self.checkpoints.current.index = None

    # ---- controller mode -------------------------------------------------------------------

    def _hide_unconfirmed(self, confirmed: int | None) -> None:
        """Hide the messages that are not confirmed, in controller mode."""
        in_sync, end = self.in_sync, self.writer.committed_offset
        if in_sync is None:
            return
        if confirmed is None:
            confirmed = in_sync.confirm_offset
        confirmed = min(max(confirmed, self.log.min_offset), end)
        in_sync.start_at(confirmed)
        self.dispatcher.hide(confirmed, self.queue_store.queues.values())
        in_sync.reach(end)
