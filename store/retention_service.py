"""The retention service: deletes expired files, and refuses puts while the disk is full.

Java counterparts: DefaultMessageStore.CleanCommitLogService and CleanConsumeQueueService of 5.3.3.

Only files that the checkpoint covers are deleted: every queue's end is then on the device, and a
queue never begins again at 0.

The order of steps lets a store open after a crash at any point:

1. The log's new start is recorded (queue_ends.py); otherwise a missing file would be a hole.
2. The log file is deleted and its folder synced before the next one, so the log never has a gap.
3. The queues' minimum offsets are corrected and their files deleted, one of each queue between two
   syncs of its folder.
4. Index files are deleted.

The first pass after the next start completes what is left.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..disk.errors import StoreIOError
from ..disk.os_disk import errno_of
from .log.log_age import first_timestamp_ms, newest_timestamp_ms
from .retention.disk_space import SpaceDecision, decide, measure
from .retention.retention_rules import HOUR_MS, ClockGuard, Deletion, LogFileFacts, choose, is_due
from .store_state import StoreEvent

if TYPE_CHECKING:
    from .message_store import MessageStore
    from .queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

QUEUE_SLICE_COUNT = 32
"""Queues handled before other tasks may run."""

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
Pause = Callable[[float], Awaitable[None]]


class Retention:
    """Deletes files by age and disk use; refuses puts on a full disk. Owned by the store's task.

    Args:
      store: loaded.
    """

    def __init__(self, store: MessageStore) -> None:
        config = store.config
        self._store = store
        self._log = store.log
        self._disk = store.disk
        self._config = config
        self._guard: ClockGuard | None = None
        self._newest_ms: dict[int, int] = {}
        self._followed = -1  # the log's minimum offset that queues and index have followed
        self._must_sync = False
        self._logged = ""  # the kind of the last warning: each is logged once in a row

    def clean(self) -> None:
        """One retention pass in this thread, without pauses (tools, tests).

        Raises:
          StoreIOError: a file could not be read or removed; the next pass continues there.
        """

        async def call(function: Callable[[], Any]) -> Any:
            return function()

        async def no_pause(_: float) -> None:
            pass

        run = self.run_once(call, no_pause)
        try:
            run.send(None)
        except StopIteration:
            return
        run.close()
        raise RuntimeError("a retention pass without pauses was suspended")

    async def run_once(self, in_thread: InThread, pause: Pause) -> None:
        """One retention pass.

        Args:
          in_thread: runs slow disk calls.
          pause: sleeps for the given seconds; lets other tasks run even for 0.

        Raises:
          StoreIOError: a file could not be read or removed; the next pass continues there.
        """
        store = self._store
        if store.read_only:
            return
        space = await self._check_space(in_thread)
        try:
            if await self._delete_all(space, in_thread, pause):
                space = await self._check_space(in_thread)
        finally:
            if space.refuse:
                store.writer.enter(StoreEvent.DISK_FULL, space.refuse)
            else:
                store.writer.enter(StoreEvent.DISK_HAS_ROOM)

    async def _delete_all(self, space: SpaceDecision, in_thread: InThread, pause: Pause) -> bool:
        """Delete what may be deleted now; returns whether a commit log file was."""
        config = self._config
        interval_s = 0.0 if space.clean else config.delete_commit_log_files_interval / 1000
        deleted = False
        for deletion in await self._choose(space, in_thread):
            if deleted:
                await pause(interval_s)
            if self._store.read_only:
                return deleted
            await self._delete(deletion, in_thread)
            deleted = True
        if self._log.min_offset > self._followed:
            await self._follow(in_thread, pause, urgent=bool(space.clean))
        return deleted

    async def _check_space(self, in_thread: InThread) -> SpaceDecision:
        use = await in_thread(partial(measure, self._disk, self._config))
        made = self._log.prepared_base >= self._log.end_of_files
        return decide(
            use,
            self._config,
            next_file_bytes=0 if made else self._config.mapped_file_size_commit_log,
        )

    async def _choose(self, space: SpaceDecision, in_thread: InThread) -> list[Deletion]:
        clock, config = self._store.clock, self._config
        now_ms = clock.wall_ms()
        if self._guard is None:
            store = self._store
            known_ms = store.opened.newest_ms if store.opened.end else now_ms
            self._guard = ClockGuard(known_ms, config.file_reserved_time * HOUR_MS)
        doubt = self._guard.check(now_ms, clock.elapsed_s())
        hour = int(clock.local_time_name(now_ms)[8:10])
        by_hand = self._store.activity.cleaning.take_pass()
        if not (space.reclaim or space.clean or by_hand or is_due(hour, config)):
            return []
        vouched = self._store.checkpoints.current.dispatched_offset
        bases = list(self._log.files)
        files = []
        # In pairs, so that the newest file is never among them.
        for base, after in pairwise(bases[: config.delete_file_batch_max + 1]):
            # After a crash the queues could not be built from a file that is gone.
            if after > vouched:
                break
            files.append(LogFileFacts(base, await self._newest(base, after, in_thread)))
        chosen = partial(
            choose, files, now_ms=now_ms, hour=hour, space=space, config=config, by_hand=by_hand
        )
        if doubt and chosen(doubt="") != chosen(doubt=doubt):
            self._warn_once("doubt", f"expired commit log files are kept: {doubt}")
        elif space.clean and not chosen(doubt=doubt):
            self._warn_once("clean", f"nothing may be deleted for space: {space.clean}")
        else:
            self._logged = ""
        return chosen(doubt=doubt)

    async def _newest(self, base: int, after: int, in_thread: InThread) -> int:
        """Store timestamp of the newest message of a file that another one follows."""
        if base not in self._newest_ms:
            log, disk = self._log, self._disk
            path, path_after = log.files[base].path, log.files[after].path
            found = await in_thread(partial(newest_timestamp_ms, disk, path, base, log.file_size))
            if found < 0:  # damaged at its end: the next file's first message is not older
                found = await in_thread(
                    partial(first_timestamp_ms, disk, path_after, after, log.file_size)
                )
            self._newest_ms[base] = found
        return self._newest_ms[base]

    async def _delete(self, deletion: Deletion, in_thread: InThread) -> None:
        """Delete the oldest commit log file, and sync its folder.

        Raises:
          StoreIOError: the file could not be deleted and is still in the log, or its folder could
            not be synced; the folder is then synced before the next deletion.
        """
        log, base = self._log, deletion.base
        if self._must_sync:
            await in_thread(partial(self._disk.sync_folder, log.folder))
            self._must_sync = False
        try:
            # Before the deletion: a start that finds the first file missing must know that it was
            # meant.
            await in_thread(partial(self._store.checkpoints.note_log_start, base + log.file_size))
        except StoreIOError as error:
            if errno_of(error) not in (errno.ENOSPC, errno.EDQUOT):
                raise
            logger.warning(
                "the log's new start is recorded after a file is deleted, which makes the room: "
                "%(error)s",
                {"error": error},
            )
        # Out of the log first, so that no read opens the file again.
        path = log.detach(base)
        try:
            await in_thread(partial(self._disk.unlink, path))
        except StoreIOError:
            log.reattach(base)
            raise
        self._newest_ms.pop(base, None)
        logger.warning(
            "%(path)s is deleted, physical offsets %(first_offset)d to %(last_offset)d, newest "
            "message of %(newest)s: %(reason)s",
            {
                "path": path,
                "first_offset": base,
                "last_offset": base + log.file_size - 1,
                "newest": self._store.clock.local_time_name(deletion.newest_ms)
                if deletion.newest_ms >= 0
                else "an unknown time",
                "reason": deletion.reason,
            },
        )
        # To be synced before the next deletion: a power cut must not leave a hole in the row of
        # files.
        self._must_sync = True
        await in_thread(partial(self._disk.sync_folder, log.folder))
        self._must_sync = False

    async def _follow(self, in_thread: InThread, pause: Pause, *, urgent: bool) -> None:
        """Let queues and index begin where the log does, and delete their older files."""
        store = self._store
        min_offset = self._log.min_offset
        queues = store.queue_store.queues
        await in_thread(partial(store.checkpoints.note_log_start, min_offset))

        def follow(queue: ConsumeQueue) -> bool:
            queue.follow_log(min_offset)
            return False

        # Memory first and for all queues, as reads need the new beginnings at once; files later,
        # with pauses (deleteConsumeQueueFilesInterval).
        await self._each(list(queues.values()), pause, follow)
        interval_s = 0.0 if urgent else self._config.delete_consume_queue_files_interval / 1000
        pending = list(queues.values())
        while pending:
            pending = await self._each(
                pending, pause, lambda queue: queue.delete_expired(min_offset), interval_s
            )
            for folder in [queue.folder for queue in pending]:
                if self._disk.exists(folder):
                    await in_thread(partial(self._disk.sync_folder, folder))
        for file in store.index.delete_expired(min_offset):
            logger.info(
                "%(path)s is deleted: its last message was at %(end_physical_offset)d, the log "
                "begins at %(min_offset)d",
                {
                    "path": file.path,
                    "end_physical_offset": file.end_physical_offset,
                    "min_offset": min_offset,
                },
            )
        self._followed = min_offset

    async def _each(
        self,
        queues: list[ConsumeQueue],
        pause: Pause,
        act: Callable[[ConsumeQueue], bool],
        interval_s: float = 0.0,
    ) -> list[ConsumeQueue]:
        """Call `act` with each queue that still exists; returns those where it was true."""
        current = self._store.queue_store.queues
        acted = []
        for number, queue in enumerate(queues, start=1):
            if current.get(queue.key) is queue and act(queue):
                acted.append(queue)
                await pause(interval_s)
            elif number % QUEUE_SLICE_COUNT == 0:
                await pause(0)
        return acted

    def _warn_once(self, kind: str, text: str) -> None:
        """Log a warning unless the last one was of the same kind."""
        if kind != self._logged:
            self._logged = kind
            logger.warning("%(text)s", {"text": text})
