"""L18: a clock that goes back, or was ahead, confuses nothing.

At Apache a record gets the time of day whatever the record before it has: searches by time halve
what is not sorted, delayed messages come early, an index hides keys. Time-outs taken from the time
of day fire at once, or never, when it is set.

Ours: a store timestamp is never below the one before it, across restarts and kills too, and waiting
is measured with a clock that is never set.
"""

from __future__ import annotations

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages
from trocket.store.message_store import MessageStore

from ..support import open_store, put, send

HOUR_MS = 3_600_000


def timestamps(store):
    """Store timestamps of all messages of T."""
    count = store.max_offset("T", 0)
    found = [store.store_time_at("T", 0, offset) for offset in range(count)]
    (record,) = store.get_message("T", 0, 0, 1).buffers
    (message,) = decode_messages(record, check_crc=True)
    assert message.store_timestamp_ms == found[0]
    return found


def send_now(store):
    store.begin_burst()
    send(store)


def test_store_timestamps_never_fall():
    store = open_store(clock=ManualClock(1_000_000))
    for jump in (0, 5, -300, 10, HOUR_MS, -HOUR_MS, 1):
        store.clock.jump(jump)
        send_now(store)
    found = timestamps(store)
    assert found == sorted(found)
    assert found[:3] == [1_000_000, 1_000_005, 1_000_005]
    assert found[-1] == found[-2] == found[-3]


@pytest.mark.parametrize("stop", ["clean", "kill", "power"])
def test_after_a_restart_they_go_on_from_the_newest_record(stop):
    disk = MemoryDisk(journalled=True)
    clock = ManualClock(2_000_000)
    store = open_store(disk, clock=clock)
    send_now(store)
    clock.jump(HOUR_MS)
    send_now(store)
    store.flusher.flush()
    clock.jump(-HOUR_MS)
    if stop == "clean":
        store.close()
    if stop == "power":
        disk.power_loss()
    disk.process_death()
    again = open_store(disk, clock=clock)
    send_now(again)
    assert timestamps(again) == [2_000_000, 2_000_000 + HOUR_MS, 2_000_000 + HOUR_MS]


def test_a_search_by_time_works_though_the_clock_went_back():
    store = open_store(clock=ManualClock(3_000_000))
    for jump in (0, 1000, -5000, -5000, 20_000):
        store.clock.jump(jump)
        send_now(store)
    assert [store.offset_by_time("T", 0, at) for at in (0, 3_000_000, 3_000_001, 3_001_001)] == [
        0,
        0,
        1,
        4,
    ]


def waiting(store: MessageStore) -> list[bool]:
    """The outcome of a send under SYNC_FLUSH, once there is one."""
    outcomes: list[bool] = []
    _, physical_offset, _ = put(store)
    store.commit()
    store.flusher.when_flushed(physical_offset, outcomes.append)
    return outcomes


def test_setting_the_clock_does_not_change_the_wait_for_an_fsync():
    store = open_store(clock=ManualClock(), sync=True)
    outcomes = waiting(store)
    store.clock.jump(HOUR_MS)
    store.flusher.expire()
    assert outcomes == []
    store.clock.jump(-2 * HOUR_MS)
    store.clock.advance(store.config.sync_flush_timeout)
    store.flusher.expire()
    assert outcomes == [False]
