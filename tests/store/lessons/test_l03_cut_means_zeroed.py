"""What is cut off the log never comes back.

Apache's broker truncates by moving positions in memory; the bytes stay on disk with a right magic,
CRC and offset, and are messages again after the next crash. Here zeros are written over them and
synced before anything is appended.
"""

from __future__ import annotations

from trocket.disk.memory_disk import MemoryDisk

from ..damaged import LOG, QUEUE, crashed
from ..support import ROOT, bodies, open_store, put, send


def test_a_torn_last_record_is_cut_and_its_bytes_never_come_back():
    disk, offsets, end = crashed()
    log = disk.contents[LOG]
    log[end - 3 : end] = b"\0\0\0"
    store = open_store(disk)
    assert store.max_offset("T", 0) == 4
    assert store.max_physical_offset == store.opened.end == offsets[4]
    assert not any(disk.contents[LOG][offsets[4] :])
    # Its offset is given out again; the new message is shorter, so old bytes would show behind it.
    assert send(store, b"new") == 4
    disk.process_death()
    again = open_store(disk)
    assert bodies(again) == [b"message %d" % n for n in range(4)] + [b"new"]


def test_a_record_that_follows_a_torn_one_is_zeroed_too_under_async_flush():
    disk, offsets, _ = crashed()
    disk.contents[LOG][offsets[2] + 5] ^= 1
    store = open_store(disk)
    assert bodies(store) == [b"message 0", b"message 1"]
    assert not any(disk.contents[LOG][offsets[2] :])


def test_leftovers_of_an_older_time_line_are_no_hole():
    """Apache truncates by moving a position only: whole old records stay behind the log's end."""
    disk = MemoryDisk()
    store = open_store(disk)
    store.clock.advance(60_000)
    store.begin_burst()
    for number in range(3):
        send(store, b"%d" % number)
    store.close()
    end = store.max_physical_offset
    old = open_store(MemoryDisk())
    put(old, bytes(end - 91 - 1 + 16))
    old.commit()
    leftover_at = old.max_physical_offset
    send(old, b"zombie")
    disk.contents[LOG][leftover_at : leftover_at + 200] = old.log.read(leftover_at, 200)
    disk.contents[f"{ROOT}/abort"] = bytearray()
    del disk.contents[f"{ROOT}/checkpoint"]
    disk.contents[LOG][end] = 0xFF
    again = open_store(disk, clock=store.clock)
    assert bodies(again) == [b"0", b"1", b"2"]
    assert not any(disk.contents[LOG][end:])


def test_files_behind_the_cut_are_removed():
    disk = MemoryDisk()
    store = open_store(disk)
    offsets = []
    for number in range(4):
        offsets.append(store.max_physical_offset)
        send(store, b"%d" % number + bytes(30_000))
    disk.process_death()
    assert len(disk.list(f"{ROOT}/commitlog")) == 2
    disk.contents[LOG][offsets[1] + 100] ^= 1
    again = open_store(disk)
    assert disk.list(f"{ROOT}/commitlog") == [f"{0:020d}"]
    assert again.max_physical_offset == offsets[1]
    for _ in range(3):
        send(again, bytes(30_000))
    assert len(bodies(again)) == 4


def test_stale_units_behind_a_gap_in_a_queue_file_never_come_back():
    """A power cut kept a later page of the queue file, lost an earlier one and the log's end."""
    disk = MemoryDisk()
    store = open_store(disk, mapped_file_size_consume_queue=2000)
    for number in range(10):
        send(store, b"%d" % number)
    store.flusher.flush()
    store.queue_store.write()
    store.checkpoints.write(store.dispatched_offset, store.store_time_ms)
    end = store.max_physical_offset
    for number in range(10, 40):
        send(store, b"%d" % number)
    store.queue_store.write()
    disk.process_death()
    disk.contents[LOG][end:] = bytes(65536 - end)
    units = disk.contents[f"{QUEUE}/{0:020d}"]
    units[10 * 20 : 30 * 20] = bytes(20 * 20)
    again = open_store(disk, mapped_file_size_consume_queue=2000)
    assert again.max_offset("T", 0) == 10
    assert not any(units[10 * 20 :])
