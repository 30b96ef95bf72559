"""After an abnormal exit every queue is what the log says, and goes on where the log ends.

At Apache messages stayed out of their queues after a crash: the checkpoint's time moves when a
message is put and is flushed before the queue files are, and the file to start from is chosen by
that time. Here the checkpoint names an offset, and only what a fsync has confirmed; `differences`
proves the outcome.
"""

from __future__ import annotations

import errno

import pytest
import trio

from trocket.common.java_hash import tags_code
from trocket.common.topic_names import SCHEDULE_TOPIC
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.services import checkpoint_now

from ..damaged import assert_whole
from ..support import ROOT, open_store, put, send


def work(store, start, stop):
    """Some of everything that goes into queues, or does not."""
    for number in range(start, stop):
        store.clock.advance(10)
        store.begin_burst()
        tag = f"t{number}"
        properties = b"TAGS\x01%s\x02" % tag.encode()
        body = b"%d" % number
        send(store, body, queue_id=number % 3, properties=properties, tags_code=tags_code(tag))
        put(store, b"half", sys_flag=4)
        due_ms = store.store_time_ms + 10_000
        put(store, topic=SCHEDULE_TOPIC, queue_id=2, properties=b"DELAY\x013", tags_code=due_ms)
        put(store, b"long" * 300, topic="U" * 200)
        store.commit()


@pytest.mark.parametrize("kept", [0, 1, 7, 30, 100])
@pytest.mark.parametrize("queues_written", [False, True])
async def test_after_a_power_cut_queues_are_what_is_left_of_the_log(kept, queues_written):
    disk = MemoryDisk(journalled=True)
    store = open_store(disk)
    work(store, 0, 30)
    await checkpoint_now(store)
    work(store, 30, 60)
    if queues_written:
        store.queue_store.write()
    disk.power_loss(kept)
    again = open_store(disk, clock=store.clock)
    assert not again.read_only
    assert_whole(again)
    for queue_id in range(3):
        end = again.max_offset("T", queue_id)
        assert end >= 10
        assert send(again, b"next", queue_id=queue_id) == end
    assert_whole(again)


async def test_a_clock_that_went_back_does_not_move_the_start():
    disk = MemoryDisk()
    store = open_store(disk)
    store.clock.advance(3_600_000)
    work(store, 0, 10)
    await checkpoint_now(store)
    work(store, 10, 20)
    disk.process_death()
    again = open_store(disk)  # a new clock, an hour earlier
    assert_whole(again)
    assert sum(again.max_offset("T", queue_id) for queue_id in range(3)) == 20


async def test_a_queue_file_whose_fsync_failed_is_never_vouched_for():
    """The kernel may have dropped the pages: a second fsync would succeed and prove nothing."""
    disk = MemoryDisk()
    store = open_store(disk)
    work(store, 0, 10)
    before = store.checkpoints.current.dispatched_offset

    def fail(name, path):
        return OSError(errno.EIO, "") if name == "sync" and "consumequeue" in path else None

    disk.fault = fail
    await checkpoint_now(store)
    disk.fault = None
    work(store, 10, 12)
    await checkpoint_now(store)
    assert store.checkpoints.current.dispatched_offset == before
    store.close()
    assert disk.exists(f"{ROOT}/abort")  # so the next start reads the log
    again = open_store(disk)
    await checkpoint_now(again)
    assert again.checkpoints.current.dispatched_offset == again.dispatched_offset > before


async def test_queue_files_are_synced_though_the_round_that_wrote_them_came_to_nothing():
    disk = MemoryDisk(journalled=True)
    store = open_store(disk)
    send(store, b"first")
    flush = store.flusher.flush_in_thread

    async def too_late(**_):
        await trio.lowlevel.checkpoint()

    store.flusher.flush_in_thread = too_late
    await checkpoint_now(store)  # writes the unit; the log does not reach the device in time
    assert store.checkpoints.current.dispatched_offset == 0
    store.flusher.flush_in_thread = flush
    await checkpoint_now(store)
    assert store.checkpoints.current.dispatched_offset == store.dispatched_offset
    assert not [path for path, _, _ in disk.journal if "consumequeue" in path]
