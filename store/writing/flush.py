"""fsync of the commit log: every 500 ms, or group commit under SYNC_FLUSH.

Java counterparts: CommitLog.FlushRealTimeService and GroupCommitService of 5.3.3. Many sends wait
for one fsync, which runs in its own thread. A failed fsync is final: the kernel may have dropped
the pages and would report success to a second try, so it is never repeated; all waiting sends fail
and the store becomes read-only (Apache 5.3.3 answers PUT_OK in that case).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import trio

from ...common.clock import Clock
from ...common.histogram import Histogram
from ...disk.errors import StoreIOError
from ...disk.os_disk import DiskFile
from ..log.commit_log import CommitLog
from ..offsets import PhysicalOffset
from .waiters import OffsetWaiters

# A thread for fsync that starts a call within about 30 µs.
#
# `trio.to_thread` costs about 170 µs for each call on a virtual machine, which is half of an fsync
# there; under group commit every send waits for that. A lock wakes the thread, an eventfd (a pipe
# where there is none) wakes the event loop.


class SyncThread:
    """Runs one slow disk call at a time beside the event loop.

    Call `start` early: a thread takes 8 MiB of address space, and a broker that has run out of
    memory must still be able to sync. Otherwise the first `run` starts it. `close` ends it. Owned
    by one task at a time.
    """

    def __init__(self) -> None:
        self._go = threading.Lock()
        self._go.acquire()
        self._thread: threading.Thread | None = None
        self._call: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._read_fd = self._write_fd = -1

    async def run(self, call: Callable[[], None]) -> None:
        """Run `call` in the thread and wait for its end, even when cancelled meanwhile.

        Raises: the exception of `call`.
        """
        self.start()
        self._call = call
        self._go.release()
        with trio.CancelScope(shield=True):
            await trio.lowlevel.wait_readable(self._read_fd)
        os.read(self._read_fd, 8)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """End the thread; never while a task waits in `run`."""
        if self._thread is None:
            return
        self._call = None
        self._go.release()
        self._thread.join()
        self._thread = None
        os.close(self._read_fd)
        if self._write_fd != self._read_fd:
            os.close(self._write_fd)
        self._read_fd = self._write_fd = -1

    def start(self) -> None:
        """Start the thread, unless it runs.

        Raises:
          RuntimeError: the system cannot start another thread.
          OSError: it has no descriptor left.
        """
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._work, name="trocket-fsync", daemon=True)
        if self._read_fd < 0:
            if hasattr(os, "eventfd"):
                self._read_fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            else:
                self._read_fd, self._write_fd = os.pipe()
        thread.start()
        self._thread = thread

    def _work(self) -> None:
        while True:
            self._go.acquire()
            call = self._call
            if call is None:
                return
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised again in the waiting task
                self._error = error
            os.write(self._write_fd, b"\1\0\0\0\0\0\0\0")  # 1 for an eventfd, bytes for a pipe


INLINE_S = 0.001
"""A disk whose fsync takes less than this on average is synced in the event loop itself: handing
the call to a thread and back costs half as much again, for every waiting send. One slow fsync is
enough to return to the thread."""

_SMOOTHING = 8


class FlushService:
    """Syncs the log and calls back the waiting sends. Owned by the store's task.

    Args:
      clock: for timeouts.
      timeout_s: the longest wait of a callback (syncFlushTimeout).
      on_flushed: called after each fsync with the physical offset that is now on the device.
      on_failed: called once, with the failed fsync's error.

    Attributes:
      flushed_offset, committed_offset: physical offsets up to which the log is on the device, and
        in the files.
      failure: the error of the fsync that failed; None: none has.
      may_wait_in_loop: a fast disk may be synced in the event loop; set while `run` runs.
      times: of the fsyncs, seconds; those that failed included.
    """

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        *,
        timeout_s: float,
        on_flushed: Callable[[int], None],
        on_failed: Callable[[StoreIOError], None],
    ) -> None:
        self.flushed_offset = 0
        self.committed_offset = 0
        self.failure: StoreIOError | None = None
        self.times = Histogram()
        self._log = log
        self._clock = clock
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._waiters: OffsetWaiters[bool] = OffsetWaiters(timeout_s)
        self._wanted = trio.Event()
        self._thread = SyncThread()
        self._turn = trio.Lock()
        self.may_wait_in_loop = False
        self._usual_s = INLINE_S

    @property
    def is_waited_for(self) -> bool:
        """Whether a callback waits for an fsync."""
        return bool(self._waiters)

    def want(self) -> None:
        """Request an fsync of what is committed: at once on a fast disk, otherwise by `run`."""
        if self.may_wait_in_loop and self._usual_s < INLINE_S and not self._turn.locked():
            self.flush()
        else:
            self._wanted.set()

    def when_flushed(
        self, physical_offset: PhysicalOffset, callback: Callable[[bool], None]
    ) -> None:
        """Call back once a committed record is on the device; possibly at once.

        Args:
          physical_offset: where the record begins.
          callback: called with False when the fsync failed or took longer than the timeout.
        """
        if physical_offset < self.flushed_offset:
            callback(True)
        elif self.failure is not None:
            callback(False)
        else:
            self._waiters.add(physical_offset, callback, now_s=self._clock.monotonic_s())

    def expire(self) -> None:
        """Call back with False where the timeout has passed."""
        self._waiters.expire(self._clock.monotonic_s(), False)

    def flush(self) -> None:
        """fsync now, in this thread; a failure goes to `on_failed`."""
        target = self.committed_offset
        if target > self.flushed_offset and self.failure is None:
            try:
                self._sync(self._log.take_unsynced())
            except StoreIOError as error:
                self._fail(error)
            else:
                self._flushed(target)

    async def flush_in_thread(self, *, threaded: bool) -> None:
        """fsync now, in the thread if `threaded`.

        One at a time: a second caller waits, and syncs only what the first fsync did not cover.
        """
        async with self._turn:
            if not threaded:
                self.flush()
                return
            target = self.committed_offset
            if target <= self.flushed_offset or self.failure is not None:
                return
            unsynced = frozenset(self._log.unsynced)
            files = self._log.take_unsynced()
            try:
                await self._thread.run(lambda: self._sync(files))
            except StoreIOError as error:
                self._fail(error)
            except BaseException:  # no fsync has failed, so the next one may be trusted
                self._log.put_back_unsynced(unsynced)
                raise
            else:
                self._flushed(target)

    async def run(
        self, *, interval_s: Callable[[], float], group_commit: bool, threaded: bool
    ) -> None:
        """Sync until cancelled: at intervals, and under group commit on each request.

        Args:
          interval_s: gives the seconds of the next interval.
          group_commit: whether requests end an interval early.
          threaded: whether another thread syncs.
        """
        self.may_wait_in_loop = threaded
        try:
            if threaded:
                self._thread.start()
            while True:
                # Commits made during the last fsync are synced without waiting for a request.
                has_unsynced = self.committed_offset > self.flushed_offset
                if not (group_commit and has_unsynced and self.failure is None):
                    with trio.move_on_after(interval_s()):
                        await self._wanted.wait()
                self._wanted = trio.Event()
                await self.flush_in_thread(threaded=threaded)
        finally:
            self.may_wait_in_loop = False
            # Another task may wait for its fsync, and would wait for ever without the descriptor.
            with trio.CancelScope(shield=True):
                async with self._turn:
                    self._thread.close()

    def _sync(self, files: list[DiskFile]) -> None:
        start_s = self._clock.monotonic_s()
        try:
            sync_all(files)
        finally:
            took_s = self._clock.monotonic_s() - start_s
            self.times.add(took_s)
        if took_s < INLINE_S:
            self._usual_s += (took_s - self._usual_s) / _SMOOTHING
        else:
            self._usual_s = max(self._usual_s, took_s)

    def _flushed(self, target: int) -> None:
        self.flushed_offset = target
        self._on_flushed(target)
        self._waiters.release(target, True)

    def _fail(self, error: StoreIOError) -> None:
        self.failure = error
        self._on_failed(error)
        self._waiters.fail(False)


def sync_all(files: list[DiskFile]) -> None:
    """Sync files, oldest first: the durable part is then always a prefix of the log.

    Raises:
      StoreIOError: the first failure; later files were not synced. Any other exception of fsync
        becomes one as well: the state of the device is then unknown.
    """
    for file in files:
        try:
            file.sync()
        except StoreIOError:
            raise
        except Exception as error:
            reason = f"fsync failed: {type(error).__name__}: {error}"
            raise StoreIOError("the commit log", reason) from error
