"""The store's background services: fsync, queue files, checkpoint, index, files made ahead.

Java counterparts: FlushConsumeQueueService, AllocateMappedFileService and ReputMessageService of
5.3.3. Each is a separate loop; slow disk calls run in worker threads (not on a disk in memory).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ..common.steps import in_steps
from ..common.supervision import Supervisor
from ..disk.errors import StoreIOError
from .retention_service import Retention

if TYPE_CHECKING:
    from .index.index_service import IndexState
    from .message_store import MessageStore

logger = logging.getLogger(__name__)

QUEUE_WRITE_INTERVAL_S = 0.2
"""Between scans for queues with many units in memory."""

QUEUE_WRITE_COUNT = 204
"""Units, 4 KiB of them, with which a queue may be written before the checkpoint. A write costs the
same for one unit as for a page of them, and there are topics of a thousand queues."""

QUEUE_WRITE_COUNT_MAX = 1_020
"""Units, 20 KiB of them, with which a queue never waits for the checkpoint."""

UNWRITTEN_COUNT = 512 * 1024
"""Units of all queues together, 10 MiB of them, that may wait for the checkpoint: 1,000 busy queues
are written twice a second instead of five times, and each write opens and closes a file."""

QUEUE_SLICE_COUNT = 32
QUEUE_SLICE_S = 0.002
"""Queues written, or seconds passed, before other tasks may run. A write takes 0.1 ms, but 0.6 ms
and more where it creates a folder and a file."""

QUEUE_SCAN_COUNT = 5_000
"""Queues that changed which are visited before other tasks may run: less than 1 ms."""

CHECKPOINT_INTERVAL_S = 10.0
"""Queue units are in memory only for at most this long. Recovery after a crash reads the log from
the last checkpoint on, so about this much of it."""

PREPARE_INTERVAL_S = 0.1
PREPARE_RETRY_S = 1.0
INDEX_IDLE_S = 0.02
IDLE_ROUNDS = 10
"""Scans for full queues without a commit between them, 2 s, after which the services rest until the
next commit: an idle broker costs nothing, and in a test two hours pass in a moment."""


async def run_services(store: MessageStore, *, task_status: trio.TaskStatus[None]) -> None:
    """Run all loops until cancelled."""
    config = store.config
    async with trio.open_nursery() as nursery:

        async def flush() -> None:
            await store.flusher.run(
                interval_s=lambda: config.flush_interval_commit_log / 1000,
                group_commit=store.writer.sync_flush,
                threaded=store.disk.threaded,
            )

        services = Supervisor(nursery, logger)
        services.start_soon("the fsync of the commit log", flush)
        services.start_soon("the writing of queue files", _queue_files, store)
        services.start_soon("the checkpoint", _checkpoint, store)
        services.start_soon("the making of commit log files ahead", _prepare_files, store)
        services.start_soon("retention", _retention, store)
        if config.message_index_enable:
            services.start_soon("the index", _index, store)
        task_status.started()


async def _in_thread(store: MessageStore, function: Callable[..., Any], *args: Any) -> None:
    if store.disk.threaded:
        await trio.to_thread.run_sync(function, *args)
    else:
        function(*args)


async def _queue_files(store: MessageStore) -> None:
    """Write queues with many units to their files; expire callbacks that wait for an fsync."""
    failing = False
    seen, idle_rounds = -1, 0
    while True:
        interval_ms = store.config.flush_interval_consume_queue
        await trio.sleep(min(interval_ms / 1000, QUEUE_WRITE_INTERVAL_S))
        end = store.flusher.committed_offset
        idle_rounds = idle_rounds + 1 if end == seen and not store.flusher.is_waited_for else 0
        seen = end
        if idle_rounds >= IDLE_ROUNDS:
            await store.activity.wait_for_more()
        store.begin_burst()
        store.flusher.expire()
        try:
            await _write_queues(store, write_count(len(store.queue_store.queues)))
            failing = False
        except StoreIOError as error:
            # Nothing is lost: the units stay in memory, and can be rebuilt from the log.
            if not failing:
                logger.error(
                    "queue units cannot be written; they are kept in memory: %(error)s",
                    {"error": error},
                )
            failing = True


def write_count(queue_count: int) -> int:
    """The units with which one of `queue_count` queues does not wait for the checkpoint."""
    share = UNWRITTEN_COUNT // max(queue_count, 1)
    return min(max(share, QUEUE_WRITE_COUNT), QUEUE_WRITE_COUNT_MAX)


async def _write_queues(store: MessageStore, count_min: int) -> None:
    queue_store = store.queue_store
    current, queues = queue_store.queues, queue_store.recent()
    monotonic_s = store.clock.monotonic_s
    for start in range(0, len(queues), QUEUE_SCAN_COUNT):
        if start:
            await trio.lowlevel.checkpoint()
        part = queues[start : start + QUEUE_SCAN_COUNT]
        found = [q for q in part if q.max_offset - q.tail_offset >= count_min]
        left, end_s = QUEUE_SLICE_COUNT, monotonic_s() + QUEUE_SLICE_S
        for queue in found:
            if current.get(queue.key) is queue:  # otherwise it was deleted meanwhile
                queue.write()
            queue_store.written(queue)
            left -= 1
            if not left or queue is found[-1] or monotonic_s() >= end_s:
                await trio.lowlevel.checkpoint()
                left, end_s = QUEUE_SLICE_COUNT, monotonic_s() + QUEUE_SLICE_S


async def _checkpoint(store: MessageStore) -> None:
    """Sync log and queue files, then record the synced offset in the checkpoint."""
    while True:
        thorough_s = store.config.flush_consume_queue_thorough_interval / 1000
        await store.activity.checkpoints.wait(min(CHECKPOINT_INTERVAL_S, thorough_s))
        await checkpoint_now(store)


async def checkpoint_now(store: MessageStore) -> None:
    """Write a checkpoint, unless nothing is new; an error of the disk is logged."""
    turn = store.checkpoints.turn
    try:
        turn.acquire_nowait()
    except trio.WouldBlock:
        await turn.acquire()
    try:
        await _write_checkpoint(store)
    except StoreIOError as error:
        logger.error(
            "no checkpoint could be written; recovery would take longer: %(error)s",
            {"error": error},
        )
    finally:
        turn.release()


async def _write_checkpoint(store: MessageStore) -> None:
    checkpoints = store.checkpoints
    if store.read_only or checkpoints.queues_failed:
        return
    store.hold_lock()
    store.index.replace_missing()
    if not _is_new(store, store.dispatcher.recorded_offset, checkpoints.index_state()):
        return
    # Most queues before, in steps. What follows is of one moment, and visits the rest.
    await in_steps(checkpoints.visit_changed())
    target, timestamp_ms = store.dispatcher.recorded_offset, store.store_time_ms
    index = checkpoints.index_state()
    head = checkpoints.take_ends()
    # Not in a thread: it would hold the interpreter.
    ends = await in_steps(checkpoints.encoded(head))
    await _write_queues(store, 1)
    await store.flusher.flush_in_thread(threaded=store.disk.threaded)
    if store.flusher.flushed_offset < target:
        return
    paths = store.queue_store.take_unsynced()
    try:
        await _in_thread(store, checkpoints.sync_queues, paths)
    except StoreIOError:
        raise
    except BaseException:  # the thread was not started
        store.queue_store.put_back_unsynced(paths)
        raise
    if index is not None and index.file is not None:
        await _in_thread(store, index.file.sync_entries)
    await _in_thread(store, checkpoints.write, target, timestamp_ms, index, ends)


def _is_new(store: MessageStore, target: int, index: IndexState | None) -> bool:
    """Whether a checkpoint would differ from the newest one."""
    known = store.checkpoints.current
    return (
        target != known.dispatched_offset
        or (index is not None and index.progress != known.index)
        or store.checkpoints.has_new_confirm_offset
    )


async def _prepare_files(store: MessageStore) -> None:
    """Create the next commit log file before it is needed."""
    log = store.log
    while True:
        base = store.writer.next_file_base
        nearly_full = store.writer.room_in_file <= log.file_size // 4
        # The master decides where a slave's first file begins.
        refusing = store.trouble or (store.is_slave and not log.files)
        if nearly_full and not refusing and base not in log.files | {log.prepared_base: 0}:
            try:
                await _in_thread(store, log.create, base)
                log.prepared_base = base
                if store.config.warm_maped_file_enable:
                    await _in_thread(store, log.warm, base)
            except StoreIOError as error:
                logger.error("the next commit log file cannot be made: %(error)s", {"error": error})
                await trio.sleep(PREPARE_RETRY_S)
                continue
        await trio.sleep(PREPARE_INTERVAL_S)
        await store.activity.wait()


async def _index(store: MessageStore) -> None:
    """Build index entries between other work."""
    index = store.index
    while True:
        if index.is_resting:
            await trio.sleep(INDEX_IDLE_S)
            continue
        index.work()
        if index.has_full_files:
            await _in_thread(store, index.finish_full_files)
        await trio.sleep(0 if index.is_behind else INDEX_IDLE_S)
        if index.is_idle:
            await store.activity.wait()


async def _retention(store: MessageStore) -> None:
    """Run a retention pass at intervals."""

    async def in_thread(function: Callable[[], Any]) -> Any:
        return await trio.to_thread.run_sync(function) if store.disk.threaded else function()

    async def pause(seconds: float) -> None:
        await trio.sleep(0 if store.activity.cleaning.is_hurried else seconds)

    retention = Retention(store)
    failing = ""
    while True:
        try:
            await retention.run_once(in_thread, pause)
            failing = ""
        except StoreIOError as error:
            # A full disk fails at each pass: one line is enough.
            if str(error) != failing:
                logger.error(
                    "retention failed and is tried again at its next pass: %(error)s",
                    {"error": error},
                )
            failing = str(error)
        await store.activity.cleaning.wait(store.config.clean_resource_interval / 1000)
