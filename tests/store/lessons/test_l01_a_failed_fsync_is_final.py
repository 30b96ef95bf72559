"""L1. Apache counted a log as flushed even when fsync had failed, and tried again: after a failed
fsync Linux calls the pages clean, so the second try "succeeds" and sends are answered that are on
no disk. Here a failed fsync is final: every waiter fails, the store is read-only until it is opened
again, and fsync is never repeated."""

from __future__ import annotations

import errno
import threading
from functools import partial

import pytest
import trio
import trio.testing

from trocket.common.clock import SystemClock
from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.status import PutMessageStatus
from trocket.store.writing.flush import INLINE_S, FlushService

from ..support import bodies, open_store, put, send


def test_after_one_failed_fsync_no_send_succeeds_and_it_is_never_tried_again():
    disk = MemoryDisk(journalled=True)
    store = open_store(disk, sync=True)
    send(store, b"before")
    store.flusher.flush()
    outcomes = []
    _, physical_offset, _ = put(store, b"lost")
    store.commit()
    store.flusher.when_flushed(physical_offset, outcomes.append)
    calls = []

    def fail_once(name, path):
        if name == "sync" and "commitlog" in path:
            calls.append(path)
            return OSError(errno.EIO, "") if len(calls) == 1 else None
        return None

    disk.fault = fail_once
    store.flusher.flush()
    assert outcomes == [False]
    assert store.read_only
    assert put(store)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "read-only" in store.trouble
    store.flusher.flush()
    assert bodies(store) == [b"before"]
    store.close()
    assert len(calls) == 1


def test_a_restart_reads_what_is_on_the_device_and_goes_on():
    disk = MemoryDisk(journalled=True)
    store = open_store(disk, sync=True)
    send(store, b"before")
    store.flusher.flush()
    send(store, b"lost")
    disk.fault = lambda name, path: OSError(errno.EIO, "") if name == "sync" else None
    store.flusher.flush()
    disk.fault = None
    disk.power_loss()
    again = open_store(disk, sync=True)
    assert bodies(again) == [b"before"]
    assert send(again, b"after") == 1
    again.flusher.flush()
    assert bodies(again) == [b"before", b"after"]


class OneFile:
    """A log of one file whose fsync takes as long as the test wants."""

    def __init__(self):
        self.may_end = threading.Event()
        self.began = threading.Event()
        self.dirty = True

    @property
    def unsynced(self):
        return {self} if self.dirty else set()

    def take_unsynced(self):
        dirty, self.dirty = self.dirty, False
        return [self] if dirty else []

    def put_back_unsynced(self, unsynced):
        self.dirty = bool(unsynced)

    def sync(self):
        self.began.set()
        assert self.may_end.wait(10)


async def test_a_second_flush_does_not_return_before_the_running_fsync_ends():
    log, calls = OneFile(), []
    flusher = FlushService(
        log, SystemClock(), timeout_s=5.0, on_flushed=calls.append, on_failed=calls.append
    )
    flusher.committed_offset = 100
    flusher.when_flushed(50, calls.append)
    async with trio.open_nursery() as nursery:

        async def flush():
            await flusher.flush_in_thread(threaded=True)

        nursery.start_soon(flush)
        await trio.to_thread.run_sync(log.began.wait)
        nursery.start_soon(flush)  # as the checkpoint does: nothing new to sync
        await trio.testing.wait_all_tasks_blocked()
        assert calls == []
        log.may_end.set()
    assert calls == [100, True]


async def test_the_end_of_the_service_waits_for_an_fsync_of_another_task():
    """Else the thread's descriptor was closed, and the other task waited for ever."""
    log, ends = OneFile(), []
    flusher = FlushService(
        log, SystemClock(), timeout_s=5.0, on_flushed=ends.append, on_failed=ends.append
    )
    async with trio.open_nursery() as nursery, trio.open_nursery() as services:

        async def run():
            await flusher.run(interval_s=lambda: 60.0, group_commit=False, threaded=True)

        services.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        flusher.committed_offset = 100
        nursery.start_soon(partial(flusher.flush_in_thread, threaded=True))
        await trio.to_thread.run_sync(log.began.wait)
        services.cancel_scope.cancel()
        end = threading.Timer(0.1, log.may_end.set)
        end.start()
    assert ends == [100]


@pytest.mark.parametrize("slow", [False, True])
async def test_only_a_disk_that_is_usually_fast_is_waited_for_in_the_loop(slow):
    class Clock(SystemClock):
        now_s = 0.0

        def monotonic_s(self):
            return self.now_s

    class File:
        def sync(self):
            clock.now_s += 2 * INLINE_S if slow else INLINE_S / 2

    class Log:
        def take_unsynced(self):
            return [File()]

    clock, calls = Clock(), []
    flusher = FlushService(
        Log(), clock, timeout_s=5.0, on_flushed=calls.append, on_failed=calls.append
    )
    flusher.may_wait_in_loop = True
    flusher.committed_offset = 10
    flusher.want()
    assert calls == []  # not known yet how fast it is
    flusher.flush()
    flusher.committed_offset = 20
    flusher.want()
    assert calls == ([10] if slow else [10, 20])


async def test_an_error_in_the_thread_comes_back_to_the_loop():
    class Failing(OneFile):
        def sync(self):
            raise StoreIOError("/log", "no")

    calls = []
    flusher = FlushService(
        Failing(), SystemClock(), timeout_s=5.0, on_flushed=calls.append, on_failed=calls.append
    )
    flusher.committed_offset = 100
    flusher.when_flushed(50, calls.append)
    await flusher.flush_in_thread(threaded=True)
    assert [type(one) for one in calls] == [StoreIOError, bool]
    assert calls[1] is False
