"""L2. Consumers of Apache's broker read messages that were not on the disk yet; after a power cut
the queue fell back, other messages took the offsets that had been consumed, and were skipped. Here,
under SYNC_FLUSH, nothing is shown by any way of reading before its fsync."""

from __future__ import annotations

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.status import GetMessageStatus

from ..support import bodies, open_store, put, send


def look_ups(store, physical_offset):
    """What each way of reading finds of the second message."""
    while store.index.is_behind:
        store.index.work(60.0)
    return (
        store.max_offset("T", 0) > 1,
        store.get_message("T", 0, 1, 32).status is GetMessageStatus.FOUND,
        store.message_at(physical_offset) is not None,
        bool(store.query_by_key("T", "new", 8, 0, 1 << 60).buffers),
        store.store_time_at("T", 0, 1) != -1,
    )


def test_no_way_of_reading_finds_a_message_before_its_fsync():
    store = open_store(sync=True)
    send(store, b"old")
    store.flusher.flush()
    refusal, physical_offset, _ = put(store, b"new", properties=b"KEYS\x01new\x02")
    assert refusal is None
    store.commit()
    assert look_ups(store, physical_offset) == (False,) * 5
    store.flusher.flush()
    assert look_ups(store, physical_offset) == (True,) * 5


def test_an_offset_that_was_read_has_the_same_message_after_a_power_cut():
    disk = MemoryDisk(journalled=True)
    store = open_store(disk, sync=True)
    send(store, b"0")
    store.flusher.flush()
    send(store, b"not on the device")
    seen = bodies(store)
    disk.power_loss()
    again = open_store(disk, sync=True)
    assert bodies(again)[: len(seen)] == seen
    assert send(again, b"another") == len(seen)
