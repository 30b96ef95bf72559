"""A bad record that good ones follow does not end the log.

Apache's recovery stops at the first bad record and deletes all that follows: one wrong bit in the
middle loses everything after it. Here the store starts read-only, changes nothing on disk, serves
what is readable on both sides, and names the place and what to do.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from trocket.disk.errors import CorruptRecordError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.queues.queue_ends import read_queue_ends, write_queue_ends

from ..damaged import (
    LOG,
    assert_read_only,
    assert_whole,
    close_unchanged,
    closed,
    crashed,
    snapshot,
)
from ..support import ROOT, bodies, open_store, put, send


def test_a_hole_under_sync_flush_is_served_on_both_sides_and_changes_nothing():
    disk, offsets, _ = crashed(sync=True)
    disk.contents[LOG][offsets[2] + 90] ^= 1
    store = assert_read_only(disk, offsets[2], sync=True)
    assert str(offsets[3]) in store.trouble
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 5)
    assert store.get_message("T", 0, 0, 32).count == 2
    with pytest.raises(CorruptRecordError, match="message 2 of queue 0 of topic T"):
        store.get_message("T", 0, 2, 32)
    assert store.get_message("T", 0, 3, 32).count == 2
    close_unchanged(disk, store)


def test_without_a_checkpoint_a_hole_is_a_hole_under_async_flush_too():
    disk, offsets, _ = crashed()
    disk.contents.pop(f"{ROOT}/checkpoint", None)
    disk.contents[LOG][offsets[1] + 90] ^= 1
    assert_read_only(disk, offsets[1])


def test_what_a_power_cut_left_out_is_a_tail_under_sync_flush_too():
    disk = MemoryDisk()
    store = open_store(disk, sync=True)
    send(store, b"first")
    store.flusher.flush()
    end = store.max_physical_offset
    for _ in range(20):
        put(store, b"x" * 300)
    store.commit()  # no fsync: no send was answered
    disk.process_death()
    disk.contents[LOG][1024:1536] = bytes(512)
    again = open_store(disk, sync=True)
    assert not again.read_only
    assert bodies(again)[0] == b"first"
    assert end <= again.max_physical_offset <= 1024
    assert not any(disk.contents[LOG][again.max_physical_offset :])


def test_several_holes_are_each_stepped_over():
    disk, offsets, _ = crashed(12, sync=True)
    for number in (2, 3, 7, 9):
        disk.contents[LOG][offsets[number] + 90] ^= 1
    store = assert_read_only(disk, offsets[2], sync=True)
    assert "2 more such places" in store.trouble
    found = []
    for number in range(12):
        try:
            found.append(store.get_message("T", 0, number, 1).count)
        except CorruptRecordError:
            found.append(0)
    assert found == [1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1]


@pytest.mark.parametrize("position", [0, 4, 21, 29, 60, 86, 90, 95, 98, 100])
def test_a_damaged_last_record_of_a_clean_exit_is_not_cut(position):
    disk, _, _ = crashed(1)
    store = open_store(disk)
    send(store, b"message 1")
    store.close()
    disk.contents[LOG][101 + position] ^= 0x40
    before = snapshot(disk)
    store = open_store(disk)
    if store.read_only:
        assert snapshot(disk) == before
    else:  # a field that no checksum covers, and the queue agrees
        assert position in (60,)
        assert store.max_offset("T", 0) == 2


def test_a_newest_log_file_that_is_missing_is_a_hole():
    disk = closed(6, body=bytes(30_000))
    del disk.contents[f"{ROOT}/commitlog/{131072:020d}"]
    store = assert_read_only(disk, 131072)
    assert store.max_offset("T", 0) == 3
    assert store.get_message("T", 0, 0, 1).count == 1
    with pytest.raises(CorruptRecordError):
        store.get_message("T", 0, 2, 1)


@pytest.mark.parametrize("size", [0, 65536])
def test_a_newest_log_file_that_was_emptied_is_a_hole(size):
    disk = closed(6, body=bytes(30_000))
    disk.contents[f"{ROOT}/commitlog/{131072:020d}"] = bytearray(size)
    store = assert_read_only(disk, 131072)
    with pytest.raises(CorruptRecordError):
        store.get_message("T", 0, 2, 1)


def test_a_log_file_missing_in_the_middle_is_a_hole():
    disk = closed(8, body=bytes(30_000))
    del disk.contents[f"{ROOT}/commitlog/{65536:020d}"]
    store = assert_read_only(disk, 65536)
    assert "missing" in store.trouble
    with pytest.raises(CorruptRecordError):
        store.get_message("T", 0, 1, 1)
    assert store.get_message("T", 0, 2, 32).count == 2
    assert store.get_message("T", 0, 0, 1).count == 1


@pytest.mark.parametrize("killed", [False, True])
def test_an_oldest_log_file_that_retention_did_not_take_is_a_hole(killed):
    disk = closed(8, body=bytes(30_000))
    if killed:
        open_store(disk)
        disk.process_death()
    del disk.contents[LOG]
    store = assert_read_only(disk, 0)
    assert "the oldest commit log files are missing" in store.trouble
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (1, 4)
    assert len(bodies(store)) == 3


def test_one_that_retention_was_about_to_take_is_none():
    disk = closed(8, body=bytes(30_000))
    store = open_store(disk)
    store.checkpoints.note_log_start(65536)
    disk.process_death()
    assert not open_store(disk).read_only
    disk.process_death()
    del disk.contents[LOG]
    store = open_store(disk)
    assert not store.read_only
    assert store.min_physical_offset == 65536


def test_what_retention_took_is_known_also_between_queue_ends_and_checkpoint():
    """A crash between the two leaves ends that do not count; where the log begins counts."""
    disk = closed(8, body=bytes(30_000))
    store = open_store(disk)
    store.checkpoints.note_log_start(65536)
    disk.process_death()
    del disk.contents[LOG]
    known = read_queue_ends(disk, ROOT)
    write_queue_ends(disk, ROOT, replace(known, dispatched_offset=known.dispatched_offset + 1))
    for _ in range(2):
        store = open_store(disk)
        assert not store.read_only, store.trouble
        assert store.min_physical_offset == 65536
        disk.process_death()


def test_no_log_file_at_all_where_there_was_one_is_a_hole():
    disk = closed()
    disk.remove_folder(f"{ROOT}/commitlog")
    store = assert_read_only(disk, 0)
    assert store.max_offset("T", 0) == 15
    with pytest.raises(CorruptRecordError):
        store.get_message("T", 0, 0, 1)


def test_queues_that_disk_lacks_are_whole_in_memory_beside_a_hole():
    disk = closed(40)
    disk.remove_folder(f"{ROOT}/consumequeue/T/1")
    disk.contents[LOG][93 * 3 + 88] ^= 1  # message 1 of queue 1
    store = assert_read_only(disk, 93 * 3)
    assert (store.min_offset("T", 1), store.max_offset("T", 1)) == (0, 20)
    assert store.get_message("T", 1, 0, 32).count == 1
    with pytest.raises(CorruptRecordError, match="part of the log that is missing"):
        store.get_message("T", 1, 1, 32)
    assert len(bodies(store, queue_id=0)) == 20
    assert not disk.exists(f"{ROOT}/consumequeue/T/1")


def test_a_missing_queue_that_ends_in_a_hole_keeps_its_end():
    disk = closed(4)
    disk.remove_folder(f"{ROOT}/consumequeue/T/1")
    disk.contents[LOG][93 * 3 + 88] ^= 1  # the last message, of queue 1
    store = assert_read_only(disk, 93 * 3)
    assert store.max_offset("T", 1) == 2
    with pytest.raises(CorruptRecordError):
        store.get_message("T", 1, 1, 1)


def test_once_the_damage_is_undone_the_store_takes_messages_again():
    disk, offsets, _ = crashed(sync=True)
    disk.contents[LOG][offsets[2] + 90] ^= 1
    open_store(disk, sync=True).close()
    disk.contents[LOG][offsets[2] + 90] ^= 1
    store = open_store(disk, sync=True)
    assert not store.read_only
    assert send(store) == 5
    store.flusher.flush()
    assert_whole(store)
