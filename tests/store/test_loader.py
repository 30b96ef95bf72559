"""Damaged stores: what is cut, what is rebuilt, what is refused."""

from __future__ import annotations

import pytest

from trocket.store.errors import CorruptRecordError
from trocket.store.loader import delay_levels_ms
from trocket.store.memory_disk import MemoryDisk

from .support import ROOT, bodies, open_store, put, send

LOG = f"{ROOT}/commitlog/{0:020d}"


def crashed(count=5, *, sync=False):
    """A disk with `count` messages of one queue, as kill -9 leaves it; and their offsets."""
    disk = MemoryDisk()
    store = open_store(disk, sync=sync)
    offsets = []
    for number in range(count):
        offsets.append(store.max_physical_offset)
        send(store, b"message %d" % number)
        store.flush()
    disk.process_death()
    return disk, offsets, store.max_physical_offset


def test_a_torn_last_record_is_cut_and_its_bytes_never_come_back():
    disk, offsets, end = crashed()
    log = disk.contents[LOG]
    log[end - 3 : end] = b"\0\0\0"
    store = open_store(disk)
    assert store.max_offset("T", 0) == 4
    assert store.max_physical_offset == offsets[4]
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


def test_a_hole_under_sync_flush_refuses_to_start_and_changes_nothing():
    disk, offsets, _ = crashed(sync=True)
    disk.contents[LOG][offsets[2] + 90] ^= 1
    before = bytes(disk.contents[LOG])
    with pytest.raises(CorruptRecordError) as caught:
        open_store(disk, sync=True)
    assert caught.value.physical_offset == offsets[2]
    assert str(offsets[3]) in caught.value.reason
    assert disk.contents[LOG] == before
    # The lock was given back: the next try fails for the same reason, not for the lock.
    with pytest.raises(CorruptRecordError):
        open_store(disk, sync=True)


def test_without_a_checkpoint_a_hole_is_refused_under_async_flush_too():
    disk, offsets, _ = crashed()
    disk.contents.pop(f"{ROOT}/checkpoint", None)
    disk.contents[LOG][offsets[1] + 90] ^= 1
    with pytest.raises(CorruptRecordError):
        open_store(disk)


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


def test_lost_queue_files_are_built_again_after_a_crash():
    disk, _, _ = crashed()
    disk.remove_folder(f"{ROOT}/consumequeue")
    disk.contents.pop(f"{ROOT}/checkpoint", None)
    assert bodies(open_store(disk)) == [b"message %d" % n for n in range(5)]


def test_units_beyond_the_log_are_cut_from_the_queue():
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(30):
        send(store, b"%d" % number)
    store.close()
    log = disk.contents[LOG]
    first_lost = bytes(log).rfind(b"25") - 88
    log[first_lost:] = bytes(len(log) - first_lost)
    disk.contents[f"{ROOT}/abort"] = bytearray()
    del disk.contents[f"{ROOT}/checkpoint"]
    again = open_store(disk)
    assert again.max_offset("T", 0) == 25
    assert send(again, b"new") == 25
    again.close()
    assert bodies(open_store(disk)) == [b"%d" % n for n in range(25)] + [b"new"]


def test_a_topic_deleted_and_made_again_begins_at_0_after_recovery():
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(3):
        send(store, b"old %d" % number)
    assert store.delete_topics(["T", "unknown"]) == 1
    assert store.max_offset("T", 0) == 0
    assert send(store, b"new") == 0
    disk.process_death()
    again = open_store(disk)
    assert bodies(again) == [b"new"]


def test_a_file_half_made_when_the_process_died_is_removed():
    disk, _, _ = crashed()
    disk.contents[f"{ROOT}/commitlog/{65536:020d}"] = bytearray(100)
    store = open_store(disk)
    assert store.max_offset("T", 0) == 5
    assert f"{ROOT}/commitlog/{65536:020d}" not in disk.contents


def test_a_log_of_another_file_size_is_refused_by_name():
    disk, _, _ = crashed()
    with pytest.raises(CorruptRecordError, match="mappedFileSizeCommitLog"):
        open_store(disk, mapped_file_size_commit_log=32 * 1024)


def test_a_missing_log_file_is_refused():
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(5):
        send(store, bytes(40_000))
    store.close()
    del disk.contents[f"{ROOT}/commitlog/{65536:020d}"]
    with pytest.raises(CorruptRecordError, match="missing"):
        open_store(disk)


def test_queues_without_a_log_are_removed():
    disk, _, _ = crashed()
    disk.remove_folder(f"{ROOT}/commitlog")
    store = open_store(disk)
    assert store.topics() == {}
    assert send(store) == 0


def test_delayed_messages_get_their_delivery_time_back_as_tags_code():
    disk = MemoryDisk()
    store = open_store(disk)
    put(store, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=b"DELAY\x013\x02", tags_code=1)
    store.commit()
    disk.process_death()
    again = open_store(disk)
    unit = again.queue_store.queues[("SCHEDULE_TOPIC_XXXX", 2)].unit_at(0)
    assert unit[2] == store.now_ms + 10_000


def test_delay_levels_are_read_as_durations():
    assert delay_levels_ms("1s 2m 3h 1d") == [1_000, 120_000, 10_800_000, 86_400_000]


def test_holes_and_garbage_in_queue_files_behind_the_checkpoint_are_made_again():
    """A power cut may keep a later page of a queue file and lose an earlier one."""
    disk = MemoryDisk()
    store = open_store(disk, mapped_file_size_consume_queue=2000)
    for number in range(40):
        send(store, b"%d" % number)
        if number == 9:
            store.flush()
            store.queue_store.write()
            store.note_checkpoint(store.dispatched_offset, store.now_ms)
    store.queue_store.write()
    disk.process_death()
    units = disk.contents[f"{ROOT}/consumequeue/T/0/{0:020d}"]
    units[15 * 20 : 16 * 20] = bytes(20)
    units[25 * 20 : 26 * 20] = bytes(7) + b"\5" + bytes(3) + b"\5" + bytes(8)
    again = open_store(disk, mapped_file_size_consume_queue=2000)
    assert bodies(again) == [b"%d" % number for number in range(40)]


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


def test_a_record_with_an_impossible_topic_ends_the_log():
    disk, offsets, end = crashed()
    disk.contents[LOG][end - 3] = 0
    assert open_store(disk).max_physical_offset == offsets[4]
