"""One index file: its bytes, its slot table made again, and what a damaged one can do."""

from __future__ import annotations

import struct
from random import Random

import pytest

from trocket.common.steps import at_once
from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.format import ENTRY_SIZE, INDEX_HEAD, INDEX_HEADER_SIZE
from trocket.store.index.index_file import REBUILD_COUNT, IndexFile
from trocket.store.recovery.checkpoint import IndexProgress

PATH = "/s/i/20261103000000001"


def new_file(disk=None, *, slot_count=7, index_count_max=50):
    disk = disk or MemoryDisk()
    disk.make_folder("/s/i")
    return IndexFile(disk, PATH, slot_count=slot_count, index_count_max=index_count_max)


def filled(count, *, disk=None, **sizes):
    """A file with entries of a few hashes, written but not finished."""
    file = new_file(disk, **sizes)
    file.create(end_physical_offset=0, end_timestamp_ms=0)
    random = Random(count)
    entries = [(random.randrange(20), 100 * n, 1000 * n) for n in range(1, count + 1)]
    assert file.put_many(entries) == count
    file.write_entries()
    return file, entries


def progress_of(file):
    return IndexProgress(
        file.name,
        file.begin_timestamp_ms,
        file.end_timestamp_ms,
        file.begin_physical_offset,
        file.end_physical_offset,
        file.hash_slot_count,
        file.index_count,
    )


def selected(file, key_hash, count_max=1000, begin_ms=0, end_ms=1 << 60):
    found: dict[int, None] = {}
    at_once(file.select(key_hash, found, count_max, begin_ms, end_ms))
    return list(found)


def test_the_bytes_of_a_finished_file_are_apaches():
    disk = MemoryDisk()
    file = new_file(disk, slot_count=3, index_count_max=4)
    file.create(end_physical_offset=0, end_timestamp_ms=0)
    assert file.put_many([(4, 100, 5000), (7, 200, 9000), (5, 300, 9999), (6, 1, 1)]) == 3
    assert file.is_full()
    file.finish()
    assert disk.contents[PATH] == b"".join(
        (
            struct.pack(">qqqqii", 5000, 9999, 100, 300, 2, 4),
            struct.pack(">iii", 0, 2, 3),
            bytes(ENTRY_SIZE),
            struct.pack(">iqii", 4, 100, 0, 0),
            struct.pack(">iqii", 7, 200, 4, 1),
            struct.pack(">iqii", 5, 300, 4, 0),
        )
    )


@pytest.mark.parametrize("count", [1, 2, 49, REBUILD_COUNT - 1, REBUILD_COUNT, REBUILD_COUNT + 1])
def test_slots_made_again_are_those_that_were_lost(count):
    disk = MemoryDisk()
    file, entries = filled(count, disk=disk, index_count_max=2 * REBUILD_COUNT)
    again = new_file(disk, index_count_max=2 * REBUILD_COUNT)
    assert again.load()  # it has no header
    assert again.resume(progress_of(file), clean=False, read_only=False) == ""
    steps = 0
    while again.is_rebuilding:
        again.rebuild_slots()
        steps += 1
    assert steps == -(-count // REBUILD_COUNT)
    for key_hash in range(20):
        wanted = [offset for code, offset, _ in reversed(entries) if code == key_hash]
        assert selected(again, key_hash, count) == wanted
    assert again.put_many([(3, 10**6, 10**9)]) == 1
    again.finish()
    assert file.put_many([(3, 10**6, 10**9)]) == 1
    lost = bytes(disk.contents[PATH])
    file.finish()
    assert disk.contents[PATH] == lost


def test_what_is_found_while_slots_are_made_again_is_right():
    disk = MemoryDisk()
    file, entries = filled(2 * REBUILD_COUNT, disk=disk, index_count_max=3 * REBUILD_COUNT)
    again = new_file(disk, index_count_max=3 * REBUILD_COUNT)
    again.load()
    again.resume(progress_of(file), clean=False, read_only=False)
    assert selected(again, 3) == []
    again.rebuild_slots()
    half = [offset for code, offset, _ in entries[:REBUILD_COUNT] if code == 3]
    assert selected(again, 3) == list(reversed(half))


def test_a_stale_header_is_taken_out_of_the_file_unless_nothing_may_be_written():
    disk = MemoryDisk()
    file, _ = filled(9, disk=disk)
    early = progress_of(file)
    file.put_many([(1, 5000, 90_000)])
    file.finish()
    for read_only in (True, False):
        again = new_file(disk)
        assert again.load() == ""
        assert again.resume(early, clean=False, read_only=read_only) == ""
        *_, slot_count, index_count = INDEX_HEAD.unpack_from(disk.contents[PATH])
        assert ((slot_count, index_count) == (0, 0)) is not read_only
    assert again.index_count == 10


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_clean_exit_the_slots_on_disk_count(clean):
    disk = MemoryDisk()
    file, _ = filled(9, disk=disk)
    file.finish()
    again = new_file(disk)
    assert again.load() == ""
    assert again.resume(progress_of(file), clean=clean, read_only=False) == ""
    assert again.is_rebuilding is not clean


def test_a_full_file_whose_header_is_there_needs_no_new_slots():
    disk = MemoryDisk()
    file, _ = filled(49, disk=disk)
    file.finish()
    again = new_file(disk)
    again.load()
    assert again.resume(progress_of(file), clean=False, read_only=False) == ""
    assert again.is_finished


@pytest.mark.parametrize("count", [0, -1, 51])
def test_a_count_that_no_file_has_is_not_resumed(count):
    disk = MemoryDisk()
    file, _ = filled(9, disk=disk)
    again = new_file(disk)
    again.load()
    impossible = IndexProgress(file.name, index_count=count)
    assert "entries" in again.resume(impossible, clean=False, read_only=False)


def test_the_last_entries_of_one_message_are_counted():
    file = new_file()
    file.create(end_physical_offset=0, end_timestamp_ms=0)
    file.put_many([(1, 100, 1), (2, 200, 1), (3, 200, 1), (4, 200, 1)])
    assert [file.count_at_end(offset) for offset in (100, 200, 300)] == [0, 3, 0]
    only = new_file()
    only.create(end_physical_offset=0, end_timestamp_ms=0)
    assert only.count_at_end(0) == 0
    only.put_many([(1, 100, 1), (2, 100, 1)])
    assert only.count_at_end(100) == 2


def test_a_file_cut_while_it_is_open_is_an_error_and_not_a_crash():
    disk = MemoryDisk()
    file, _ = filled(30, disk=disk)
    file.finish()
    del disk.contents[PATH][file.entries_position + 100 :]
    with pytest.raises(CorruptRecordError, match="cut while it was open"):
        assert [selected(file, key_hash) for key_hash in range(20)]
    del disk.contents[PATH][INDEX_HEADER_SIZE:]
    with pytest.raises(CorruptRecordError, match="cut while it was open"):
        selected(file, 3)


def test_a_search_looks_at_a_bounded_number_of_entries(monkeypatch):
    monkeypatch.setattr("trocket.store.index.index_file.CHAIN_LENGTH_MAX", 5)
    file = new_file(slot_count=1)
    file.create(end_physical_offset=0, end_timestamp_ms=0)
    file.put_many([(1, 100, 1)] + [(2, 200 + n, 1) for n in range(5)])
    assert selected(file, 1) == []
    assert len(selected(file, 2)) == 5


def test_a_long_search_has_steps_between_which_the_file_may_go(monkeypatch):
    monkeypatch.setattr("trocket.store.index.index_file.CHAIN_STEP_COUNT", 2)
    file = new_file(slot_count=1)
    file.create(end_physical_offset=0, end_timestamp_ms=0)
    file.put_many([(1, 100 + n, 1) for n in range(6)])
    found: dict[int, None] = {}
    steps = file.select(1, found, 10, 0, 10)
    next(steps)
    assert list(found) == [105]
    next(steps)
    assert list(found) == [105, 104, 103]
    file.close()
    assert list(steps) == []
    assert list(found) == [105, 104, 103]
    assert selected(file, 1) == []


def test_a_file_that_there_is_no_room_for_leaves_nothing_behind():
    disk = MemoryDisk()
    disk.fault = lambda name, path: OSError(28, "") if name == "resize" else None
    with pytest.raises(StoreIOError, match="No space"):
        new_file(disk).create(end_physical_offset=0, end_timestamp_ms=0)
    assert disk.list("/s/i") == []


@pytest.mark.parametrize("how", ["sync_entries", "finish"])
def test_the_name_of_a_new_file_is_on_the_device_before_it_is_vouched_for(how, monkeypatch):
    disk = MemoryDisk()
    file, _ = filled(5, disk=disk)
    synced = []
    monkeypatch.setattr(disk, "sync_folder", synced.append)
    getattr(file, how)()
    assert synced == ["/s/i", "/s"]
    getattr(file, how)()
    assert synced == ["/s/i", "/s"]
