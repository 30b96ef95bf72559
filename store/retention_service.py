"""Deleting what `retention.py` decides on, and refusing puts where the disk is full.

Java counterparts: DefaultMessageStore.CleanCommitLogService and CleanConsumeQueueService of 5.3.3.

Only what the checkpoint vouches for is deleted: every queue's end is then on the device, and a
queue never begins again at 0.

Order, so that a crash at any point leaves a store that opens: where the log will begin is noted
(queue_ends.py), else a missing file would be a hole; the log file goes, and its folder is synced
before the next one goes, so the log never has a gap; then the queues' minimum offsets are corrected
and their files go, one of each queue between two syncs of its folder; then index files. The next
start, and its first look, do what is left.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .disk.os_disk import errno_of
from .errors import StoreIOError
from .log.log_age import first_timestamp_ms, newest_timestamp_ms
from .retention.disk_space import Verdict, judge, measure
from .retention.retention_rules import HOUR_MS, ClockGuard, Deletion, LogFileFacts, choose, is_due
from .store_state import StoreEvent

if TYPE_CHECKING:
    from .message_store import MessageStore
    from .queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

QUEUE_SLICE_COUNT = 32
"""Queues looked at before other work has its turn."""

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
Pause = Callable[[float], Awaitable[None]]


class Retention:
    """Looks at age and disk use, deletes, and refuses or takes puts. Owned by the store's task.

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
        self._said = ""  # what kind of thing was logged last

    def clean(self) -> None:
        """One look, done at once and in this thread (tools, tests; `run` of the store otherwise).

        Raises:
          StoreIOError: something could not be read or removed; the next look goes on there.
        """

        async def call(function: Callable[[], Any]) -> Any:
            return function()

        async def go_on(_: float) -> None:
            """There is nobody to wait for."""

        look = self.look(call, go_on)
        try:
            look.send(None)
        except StopIteration:
            return
        look.close()
        raise RuntimeError("a look that waits for nothing has waited")

    async def look(self, in_thread: InThread, pause: Pause) -> None:
        """One look.

        Args:
          in_thread: runs slow disk calls.
          pause: waits for so many seconds; other work has its turn even for 0.

        Raises:
          StoreIOError: something could not be read or removed; the next look goes on there.
        """
        store = self._store
        if store.read_only:
            return
        verdict = await self._judge(in_thread)
        try:
            if await self._delete_all(verdict, in_thread, pause):
                verdict = await self._judge(in_thread)
        finally:
            if verdict.refuse:
                store.writer.enter(StoreEvent.DISK_FULL, verdict.refuse)
            else:
                store.writer.enter(StoreEvent.DISK_HAS_ROOM)

    async def _delete_all(self, verdict: Verdict, in_thread: InThread, pause: Pause) -> bool:
        """Delete what may go now; returns whether a commit log file went."""
        config = self._config
        interval_s = 0.0 if verdict.clean else config.delete_commit_log_files_interval / 1000
        deleted = False
        for deletion in await self._choose(verdict, in_thread):
            if deleted:
                await pause(interval_s)
            if self._store.read_only:
                return deleted
            await self._delete(deletion, in_thread)
            deleted = True
        if self._log.min_offset > self._followed:
            await self._follow(in_thread, pause, urgent=bool(verdict.clean))
        return deleted

    async def _judge(self, in_thread: InThread) -> Verdict:
        use = await in_thread(partial(measure, self._disk, self._config))
        made = self._log.prepared_base >= self._log.end_of_files
        return judge(
            use,
            self._config,
            next_file_bytes=0 if made else self._config.mapped_file_size_commit_log,
        )

    async def _choose(self, verdict: Verdict, in_thread: InThread) -> list[Deletion]:
        clock, config = self._store.clock, self._config
        now_ms = clock.wall_ms()
        if self._guard is None:
            store = self._store
            known_ms = store.opened.newest_ms if store.opened.end else now_ms
            self._guard = ClockGuard(known_ms, config.file_reserved_time * HOUR_MS)
        doubt = self._guard.check(now_ms, clock.elapsed_s())
        hour = int(clock.local_time_name(now_ms)[8:10])
        if not (verdict.reclaim or verdict.clean or is_due(hour, config)):
            return []
        vouched = self._store.checkpoints.current.dispatched_offset
        bases = list(self._log.files)
        files = []
        for base, after in pairwise(bases[: config.delete_file_batch_max + 1]):
            if after > vouched:
                break
            files.append(LogFileFacts(base, await self._newest(base, after, in_thread)))
        chosen = partial(choose, files, now_ms=now_ms, hour=hour, verdict=verdict, config=config)
        if doubt and chosen(doubt="") != chosen(doubt=doubt):
            self._say("doubt", f"expired commit log files are kept: {doubt}")
        elif verdict.clean and not chosen(doubt=doubt):
            self._say("clean", f"nothing may be deleted for space: {verdict.clean}")
        else:
            self._said = ""
        return chosen(doubt=doubt)

    async def _newest(self, base: int, after: int, in_thread: InThread) -> int:
        """Store timestamp of the newest message of a file that another one follows."""
        if base not in self._newest_ms:
            log, disk = self._log, self._disk
            path, path_after = log.files[base].path, log.files[after].path
            found = await in_thread(partial(newest_timestamp_ms, disk, path, base, log.file_size))
            if found < 0:  # damaged at its end: what follows it is not older
                found = await in_thread(
                    partial(first_timestamp_ms, disk, path_after, after, log.file_size)
                )
            self._newest_ms[base] = found
        return self._newest_ms[base]

    async def _delete(self, deletion: Deletion, in_thread: InThread) -> None:
        """Delete the oldest commit log file, for good before this returns.

        Raises:
          StoreIOError: it could not be deleted; the log has it still, or its folder is synced
            before anything else goes.
        """
        log, base = self._log, deletion.base
        if self._must_sync:
            await in_thread(partial(self._disk.sync_folder, log.folder))
            self._must_sync = False
        try:
            await in_thread(partial(self._store.checkpoints.note_log_start, base + log.file_size))
        except StoreIOError as error:
            if errno_of(error) not in (errno.ENOSPC, errno.EDQUOT):
                raise
            logger.warning("noted later, removing a file makes the room for it: %s", error)
        path = log.detach(base)
        try:
            await in_thread(partial(self._disk.unlink, path))
        except StoreIOError:
            log.reattach(base)
            raise
        self._newest_ms.pop(base, None)
        logger.warning(
            "%s is deleted, physical offsets %d to %d, newest message of %s: %s",
            path,
            base,
            base + log.file_size - 1,
            self._store.clock.local_time_name(deletion.newest_ms)
            if deletion.newest_ms >= 0
            else "an unknown time",
            deletion.reason,
        )
        self._must_sync = True
        await in_thread(partial(self._disk.sync_folder, log.folder))
        self._must_sync = False

    async def _follow(self, in_thread: InThread, pause: Pause, *, urgent: bool) -> None:
        """Let queues and index begin where the log does, and remove what they need no more."""
        store = self._store
        min_offset = self._log.min_offset
        queues = store.queue_store.queues
        await in_thread(partial(store.checkpoints.note_log_start, min_offset))

        def follow(queue: ConsumeQueue) -> bool:
            queue.follow_log(min_offset)
            return False

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
                "%s is deleted: its last message was at %d, the log begins at %d",
                file.path,
                file.end_physical_offset,
                min_offset,
            )
        self._followed = min_offset

    async def _each(
        self,
        queues: list[ConsumeQueue],
        pause: Pause,
        act: Callable[[ConsumeQueue], bool],
        interval_s: float = 0.0,
    ) -> list[ConsumeQueue]:
        """Act on the queues that are still there; returns those where `act` was true."""
        current = self._store.queue_store.queues
        acted = []
        for number, queue in enumerate(queues, start=1):
            if current.get(queue.key) is queue and act(queue):
                acted.append(queue)
                await pause(interval_s)
            elif number % QUEUE_SLICE_COUNT == 0:
                await pause(0)
        return acted

    def _say(self, kind: str, text: str) -> None:
        """Log it, once until something else is the case."""
        if kind != self._said:
            self._said = kind
            logger.warning("%s", text)
