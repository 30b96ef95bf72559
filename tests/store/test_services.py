"""The background loops, in virtual time on a disk in memory."""

from __future__ import annotations

import errno
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.queues.queue_ends import read_queue_ends
from trocket.store.services import (
    QUEUE_SLICE_COUNT,
    QUEUE_SLICE_S,
    QUEUE_WRITE_COUNT_MAX,
    checkpoint_now,
    run_services,
    write_count,
)

from ..kit import TrioClock
from .support import ROOT, bodies, open_store, put, send


@asynccontextmanager
async def running(disk, **changes):
    store = open_store(disk, clock=TrioClock(), **changes)
    async with trio.open_nursery() as nursery:
        await nursery.start(run_services, store)
        yield store
        nursery.cancel_scope.cancel()
    store.close()


async def test_async_flush_has_everything_on_the_device_within_half_a_second(autojump_clock):
    disk = MemoryDisk(journalled=True)
    async with running(disk) as store:
        send(store)
        await trio.sleep(0.6)
        assert store.flusher.flushed_offset == store.max_physical_offset
        disk.power_loss()
        assert bodies(open_store(disk)) == [b"body"]


async def test_group_commit_answers_many_waiters_with_one_fsync(autojump_clock):
    disk = MemoryDisk()
    syncs = []
    async with running(disk, sync=True) as store:
        await trio.sleep(0.6)  # the first file is made and synced
        disk.fault = lambda name, path: syncs.append(path) if name == "sync" else None
        outcome = []
        for _ in range(10):
            _, physical, _ = put(store)
            store.commit()
            store.flusher.when_flushed(physical, outcome.append)
        await trio.sleep(0.001)
        assert outcome == [True] * 10
        assert len(syncs) == 1


async def test_queue_units_reach_their_files_and_the_checkpoint_follows(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as store:
        send(store)
        path = f"{ROOT}/consumequeue/T/0/{0:020d}"
        await trio.sleep(9)
        assert not disk.exists(path)
        await trio.sleep(2)
        assert any(disk.contents[path])
        assert store.checkpoints.current.dispatched_offset == store.max_physical_offset


class NotedQueues(dict):
    """Notes which queues are visited; a pass over all visits each of them."""

    def __init__(self, queues):
        super().__init__(queues)
        self.visits = set()

    def __iter__(self):
        self.visits.update(super().__iter__())
        return super().__iter__()

    def keys(self):
        return list(iter(self))

    def values(self):
        return [self[key] for key in self]

    def items(self):
        return [(key, self[key]) for key in self]

    def get(self, key, default=None):
        self.visits.add(key)
        return super().get(key, default)


async def test_a_checkpoint_visits_only_queues_that_changed_since_the_last_one(autojump_clock):
    async with running(MemoryDisk()) as store:
        for number in range(50):
            put(store, queue_id=number)
        store.commit()
        await trio.sleep(30)  # the checkpoint has come, and the index is done
        noted = store.queue_store.queues = NotedQueues(store.queue_store.queues)
        await trio.sleep(60)
        assert noted.visits == set()
        for number in (7, 31, 7):
            send(store, queue_id=number)
        await trio.sleep(11)
        assert store.checkpoints.current.dispatched_offset == store.max_physical_offset
        assert noted.visits == {("T", 7), ("T", 31)}
        assert ("T", 49) in set(noted.values()) | noted.visits  # a pass over all is noted


async def test_checkpoints_are_written_one_after_the_other(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as store:
        for number in range(2 * QUEUE_SLICE_COUNT):
            put(store, queue_id=number)
        store.commit()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checkpoint_now, store)
            await trio.lowlevel.checkpoint()
            send(store)
            nursery.start_soon(checkpoint_now, store)
        known = read_queue_ends(disk, ROOT)
        assert known.ends["T", 0] == 2
        assert known.dispatched_offset == store.checkpoints.current.dispatched_offset
        assert known.dispatched_offset == store.max_physical_offset


@pytest.mark.parametrize("operation", ["sync", "rename"])
async def test_a_topic_deleted_while_a_checkpoint_is_written_is_not_in_it(
    autojump_clock, operation
):
    """Otherwise the start after a crash would miss its queues, and build them again."""
    disk = MemoryDisk()
    store = open_store(disk, clock=TrioClock())
    send(store, topic="Kept")
    send(store, topic="Deleted")

    def delete(name, path):
        if name == operation and "consumequeue" in path:
            disk.fault = None
            assert store.delete_topics(["Deleted"]) == 1

    disk.fault = delete
    await checkpoint_now(store)
    if disk.fault is not None:  # no such call: the topic is deleted afterwards
        disk.fault = None
        store.delete_topics(["Deleted"])
    assert read_queue_ends(disk, ROOT).ends == {("Kept", 0): 1}
    disk.process_death()
    assert open_store(disk).topics() == {"Kept": [0]}


async def test_many_queue_units_do_not_wait_for_the_checkpoint(autojump_clock):
    disk = MemoryDisk()
    path = f"{ROOT}/consumequeue/T/0/{0:020d}"
    async with running(disk) as store:
        for _ in range(QUEUE_WRITE_COUNT_MAX - 1):
            send(store)
        await trio.sleep(0.5)
        assert not disk.exists(path)
        send(store)
        await trio.sleep(0.5)
        assert any(disk.contents[path])


@pytest.mark.parametrize(
    ("queue_count", "count"), [(0, 1_020), (500, 1_020), (1_024, 512), (2_570, 204), (10**6, 204)]
)
def test_of_many_queues_each_waits_with_fewer_units(queue_count: int, count: int) -> None:
    assert write_count(queue_count) == count


async def test_a_queue_deleted_while_others_are_written_stays_deleted(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as store:
        for number in range(3 * QUEUE_SLICE_COUNT):
            put(store, queue_id=number)
        put(store, topic="Deleted")
        store.commit()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(checkpoint_now, store)
            await trio.lowlevel.checkpoint()
            assert store.delete_topics(["Deleted"]) == 1
        assert not disk.exists(f"{ROOT}/consumequeue/Deleted/0/{0:020d}")
        assert disk.exists(f"{ROOT}/consumequeue/T/{3 * QUEUE_SLICE_COUNT - 1}/{0:020d}")


async def test_slow_writes_of_queues_let_others_run_sooner():
    clock = ManualClock()

    class SlowDisk(MemoryDisk):
        def open(self, path, **more):
            clock.advance(int(2000 * QUEUE_SLICE_S))  # a folder and a file are created
            return super().open(path, **more)

    store = open_store(SlowDisk(), clock=clock)
    for number in range(QUEUE_SLICE_COUNT - 1):
        put(store, queue_id=number)
    store.commit()
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await checkpoint_now(store)
        nursery.cancel_scope.cancel()
    assert turns >= QUEUE_SLICE_COUNT - 2  # one turn for each queue, but the first or the last


async def test_queue_units_that_cannot_be_written_stay_in_memory(autojump_clock, caplog):
    disk = MemoryDisk()
    async with running(disk) as store:
        disk.fault = lambda name, path: (
            OSError(errno.ENOSPC, "") if name == "resize" and "consumequeue" in path else None
        )
        count = QUEUE_WRITE_COUNT_MAX
        for _ in range(count):
            send(store, b"1")
        await trio.sleep(2)
        assert store.max_offset("T", 0) == count
        assert bodies(store)[0] == b"1"
        assert sum("queue units" in record.message for record in caplog.records) == 1
        disk.fault = None
        await trio.sleep(0.5)
    assert open_store(disk).max_offset("T", 0) == count


async def test_queue_files_that_could_not_be_synced_are_never_vouched_for(autojump_clock):
    disk = MemoryDisk(journalled=True)
    async with running(disk) as store:
        send(store, b"1")
        failures = [OSError(errno.EIO, "")]
        disk.fault = lambda name, path: (
            failures.pop() if name == "sync" and "consumequeue" in path and failures else None
        )
        await trio.sleep(30)
        assert not failures
        assert store.checkpoints.current.dispatched_offset < store.max_physical_offset
    assert disk.exists(f"{ROOT}/abort")
    disk.power_loss()
    assert bodies(open_store(disk)) == [b"1"]


async def test_the_next_file_is_made_before_it_is_needed(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as store:
        await trio.sleep(0.5)
        assert disk.exists(f"{ROOT}/commitlog/{0:020d}")
        send(store, bytes(60_000))
        await trio.sleep(0.5)
        assert disk.exists(f"{ROOT}/commitlog/{65536:020d}")
        disk.fault = lambda name, path: OSError(errno.ENOSPC, "") if name == "allocate" else None
        assert send(store, bytes(60_000)) == 1
        await trio.sleep(2)
        disk.fault = None
    assert len(bodies(open_store(disk))) == 2


@pytest.mark.parametrize("warm", [False, True])
async def test_the_next_file_is_warmed_if_it_shall_be(autojump_clock, warm):
    disk = MemoryDisk()
    written = []
    disk.fault = lambda name, path: written.append(path) if name == "pwrite" else None
    async with running(disk, warm_maped_file_enable=warm) as store:
        await trio.sleep(1)
        first = f"{store.log.folder}/{0:020d}"
        assert (first in written) is warm
        assert send(store, b"message") == 0
        await trio.sleep(1)
    assert bodies(open_store(disk)) == [b"message"]


async def test_a_file_made_ahead_and_not_used_goes_at_close(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as store:
        send(store, bytes(60_000))
        await trio.sleep(0.5)
    assert disk.list(f"{ROOT}/commitlog") == [f"{0:020d}"]


async def test_the_index_catches_up_by_itself(autojump_clock):
    async with running(MemoryDisk()) as store:
        for number in range(200):
            send(store, properties=b"KEYS\x01k%d\x02" % number)
        await trio.sleep(1)
        assert not store.index.is_behind
        assert len(store.query_by_key("T", "k150", 8, 0, 1 << 60).buffers) == 1


async def test_a_broker_that_was_idle_at_first_indexes_and_makes_files_ahead(autojump_clock):
    disk = MemoryDisk()
    async with running(disk) as store:
        await trio.sleep(60)
        send(store, bytes(60_000), properties=b"KEYS\x01k\x02")
        await trio.sleep(1)
        assert len(store.query_by_key("T", "k", 8, 0, 1 << 60).buffers) == 1
        assert disk.exists(f"{ROOT}/commitlog/{65536:020d}")


@pytest.mark.slow
async def test_an_index_that_cannot_be_written_rests_alone_and_goes_on(autojump_clock, caplog):
    disk = MemoryDisk()
    async with running(disk) as store:
        disk.fault = lambda name, path: (
            OSError(errno.ENOSPC, "") if "/index/" in path and name == "resize" else None
        )
        send(store, properties=b"KEYS\x01k\x02")
        await trio.sleep(20)
        assert send(store, b"2") == 1
        assert store.query_by_key("T", "k", 8, 0, 1 << 60).buffers == []
        disk.fault = None
        await trio.sleep(20)
        assert len(store.query_by_key("T", "k", 8, 0, 1 << 60).buffers) == 1
    assert caplog.text.count("the index cannot be written") == 1


@pytest.mark.parametrize("sync", [False, True])
async def test_cancelling_and_closing_keeps_everything(autojump_clock, sync):
    disk = MemoryDisk()
    async with running(disk, sync=sync) as store:
        for number in range(50):
            put(store, b"%d" % number)
    assert not disk.exists(f"{ROOT}/abort")
    assert bodies(open_store(disk, sync=sync)) == [b"%d" % n for n in range(50)]


async def test_the_checkpoint_stays_when_fsync_fails(autojump_clock):
    disk = MemoryDisk()
    async with running(disk, flush_interval_commit_log=3_600_000) as store:
        before = store.checkpoints.current.dispatched_offset
        send(store)
        disk.fault = lambda name, path: (
            OSError(errno.EIO, "") if name == "sync" and "commitlog" in path else None
        )
        await trio.sleep(30)
        disk.fault = None
        assert store.read_only
        assert store.checkpoints.current.dispatched_offset == before
