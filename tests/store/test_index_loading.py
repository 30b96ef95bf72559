"""Index files that are damaged, missing or not vouched for: found out, and built again."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from trocket.common.steps import at_once
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_record
from trocket.store.format import INDEX_HEADER_SIZE
from trocket.store.index.index_loading import LogSpan
from trocket.store.recovery.checkpoint import read_checkpoint, write_checkpoint
from trocket.store.services import checkpoint_now

from .support import ROOT, open_store, send

INDEX = f"{ROOT}/index"
COUNT = 180
"""Messages of one key each: three full files of 49 entries and one with the rest."""


def filled(disk, count=COUNT):
    store = open_store(disk)
    for number in range(count):
        send(store, b"%d" % number, properties=b"KEYS\x01k%d\x02" % number)
    while store.index.is_behind:
        store.index.work(1.0)
    store.index.finish_full_files()
    return store


def assert_whole(store, count=COUNT):
    while store.index.is_behind:
        store.index.work(1.0)
    assert not store.index.is_broken
    for number in range(count):
        (record,) = store.query_by_key("T", f"k{number}", 32, 0, 1 << 60).buffers
        assert decode_record(record).body == b"%d" % number


def paths(disk):
    return [f"{INDEX}/{name}" for name in disk.list(INDEX)]


def swap(disk, one, other):
    disk.contents[one], disk.contents[other] = disk.contents[other], disk.contents[one]


def put(disk, path, position, data):
    disk.contents[path][position : position + len(data)] = data


DAMAGES = {
    "cut": lambda disk, files: disk.contents[files[1]].__delitem__(slice(100, None)),
    "longer": lambda disk, files: disk.contents[files[1]].extend(b"\0"),
    "empty": lambda disk, files: disk.contents[files[1]].clear(),
    "the first is missing": lambda disk, files: disk.unlink(files[0]),
    "one between is missing": lambda disk, files: disk.unlink(files[1]),
    "the newest is missing": lambda disk, files: disk.unlink(files[3]),
    "all are missing": lambda disk, files: disk.remove_folder(INDEX),
    "two swapped": lambda disk, files: swap(disk, files[1], files[2]),
    "newest and oldest swapped": lambda disk, files: swap(disk, files[0], files[3]),
    "a copy of one": lambda disk, files: disk.contents.update(
        {f"{files[1][:-1]}9": disk.contents[files[1]][:]}
    ),
    "a newer copy": lambda disk, files: disk.contents.update(
        {f"{INDEX}/99991231235959999": disk.contents[files[1]][:]}
    ),
    "only an older one, long removed, came back": lambda disk, files: (
        disk.contents.update({f"{INDEX}/20000101000000000": disk.contents[files[1]][:]}),
        [disk.unlink(path) for path in files],
    ),
    "no header": lambda disk, files: put(disk, files[1], 0, bytes(INDEX_HEADER_SIZE)),
    "header of another": lambda disk, files: put(disk, files[2], 0, disk.contents[files[1]][:40]),
    "negative begin": lambda disk, files: put(disk, files[0], 0, b"\xff"),
    "a later begin": lambda disk, files: put(disk, files[0], 5, b"\xff"),
    "an earlier end": lambda disk, files: put(disk, files[0], 12, b"\0"),
    "ends elsewhere": lambda disk, files: put(disk, files[0], 31, b"\x07"),
    "negative count": lambda disk, files: put(disk, files[0], 36, b"\x80"),
    "too high a count": lambda disk, files: put(disk, files[0], 36, struct.pack(">i", 51)),
    "a lower count": lambda disk, files: put(disk, files[0], 36, struct.pack(">i", 9)),
    "newest: a lower count": lambda disk, files: put(disk, files[3], 36, struct.pack(">i", 9)),
    "newest: no header": lambda disk, files: put(disk, files[3], 0, bytes(INDEX_HEADER_SIZE)),
    "newest: cut": lambda disk, files: disk.contents[files[3]].__delitem__(slice(100, None)),
    "newest: another begin": lambda disk, files: put(disk, files[3], 20, b"\xff"),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_index_is_built_again_where_it_is_damaged(damage, clean):
    disk = MemoryDisk()
    store = filled(disk)
    if clean:
        store.close()
    else:
        await checkpoint_now(store)
        disk.process_death()
    files = paths(disk)
    assert len(files) == 4
    DAMAGES[damage](disk, files)
    store = open_store(disk)
    assert_whole(store)
    store.close()
    assert len(paths(disk)) == 4
    store = open_store(disk)
    assert not store.index.is_behind
    assert_whole(store)


async def test_the_files_before_a_damaged_one_stay():
    disk = MemoryDisk()
    store = filled(disk)
    store.close()
    files = paths(disk)
    kept = bytes(disk.contents[files[0]])
    put(disk, files[1], 36, b"\x80")
    store = open_store(disk)
    assert paths(disk) == files[:1]
    assert_whole(store)
    assert disk.contents[files[0]] == kept


async def test_entries_that_are_not_those_of_the_checkpoint_are_not_believed():
    disk = MemoryDisk()
    store = filled(disk)
    await checkpoint_now(store)
    newest = store.index.files[-1]
    disk.process_death()
    position = newest.entries_position + 20 * (newest.index_count - 1) + 4
    put(disk, newest.path, position, struct.pack(">q", 5))
    assert_whole(open_store(disk))


async def test_without_our_word_in_the_checkpoint_the_headers_count():
    disk = MemoryDisk()
    filled(disk).close()
    path = f"{ROOT}/checkpoint"
    write_checkpoint(disk, path, replace(read_checkpoint(disk, path), index=None))
    files = paths(disk)
    store = open_store(disk)
    assert paths(disk) == files
    assert_whole(store)
    assert store.index.files[-1].index_count == 1 + COUNT - 3 * 49  # none was made twice


async def test_an_index_that_apache_left_after_a_clean_exit_is_taken_as_it_is():
    disk = MemoryDisk()
    filled(disk).close()
    path = f"{ROOT}/checkpoint"
    page = replace(read_checkpoint(disk, path), dispatched_offset=-1)
    write_checkpoint(disk, path, page)
    store = open_store(disk)
    assert not store.index.is_behind
    store.close()
    disk.remove_folder(INDEX)
    write_checkpoint(disk, path, page)
    assert_whole(open_store(disk))  # nothing at all is not what Apache leaves


async def test_after_an_unclean_exit_of_apache_what_ends_behind_the_checkpoint_is_built_again():
    disk = MemoryDisk()
    store = filled(disk)
    store.close()
    path = f"{ROOT}/checkpoint"
    files = paths(disk)
    page = replace(
        read_checkpoint(disk, path),
        dispatched_offset=-1,
        index_msg_timestamp_ms=store.index.files[0].end_timestamp_ms - 1,
    )
    write_checkpoint(disk, path, page)
    disk.open(f"{ROOT}/abort", create=True)
    store = open_store(disk)
    assert paths(disk) == []
    assert_whole(store)
    assert len(paths(disk)) == len(files)


async def test_a_file_that_knows_messages_behind_the_logs_end_is_removed():
    disk = MemoryDisk()
    store = filled(disk)
    store.close()
    checkpoint = read_checkpoint(disk, f"{ROOT}/checkpoint")
    files = store.index.files
    span = LogSpan(0, files[1].end_physical_offset, lambda offset: True)
    store.index.load(checkpoint, span, clean=False)
    assert [file.path for file in store.index.files] == [files[0].path]
    assert store.index._catch_up == files[0].end_physical_offset


@pytest.mark.parametrize("change", [-1, 1])
async def test_a_header_that_ends_where_no_record_is_does_not_say_where_to_go_on(change):
    disk = MemoryDisk()
    store = filled(disk)
    store.close()
    path = f"{ROOT}/checkpoint"
    write_checkpoint(disk, path, replace(read_checkpoint(disk, path), dispatched_offset=-1))
    disk.unlink(paths(disk)[3])
    end = store.index.files[2].end_physical_offset + change
    put(disk, paths(disk)[2], 24, struct.pack(">q", end))
    disk.open(f"{ROOT}/abort", create=True)
    assert_whole(open_store(disk))


async def test_files_that_are_not_in_the_logs_order_are_removed():
    disk = MemoryDisk()
    filled(disk).close()
    path = f"{ROOT}/checkpoint"
    write_checkpoint(disk, path, replace(read_checkpoint(disk, path), dispatched_offset=-1))
    files = paths(disk)
    swap(disk, files[0], files[1])
    assert_whole(open_store(disk))


async def test_a_read_only_start_changes_nothing_and_finds_what_is_indexed():
    disk = MemoryDisk()
    store = filled(disk)
    await checkpoint_now(store)
    for number in range(5):
        send(store, properties=b"KEYS\x01late%d\x02" % number)
    disk.process_death()
    put(disk, paths(disk)[2], 36, b"\x80")
    before = {path: bytes(data) for path, data in disk.contents.items()}
    index = open_store_index_read_only(disk)
    while index.is_behind:
        index.work(1.0)
    assert {path: bytes(data) for path, data in disk.contents.items()} == before
    assert len(at_once(index.query("T", "k3", 32, 0, 1 << 60)).physical_offsets) == 1
    assert at_once(index.query("T", "k120", 32, 0, 1 << 60)).physical_offsets == []


def open_store_index_read_only(disk):
    store = open_store(MemoryDisk())
    store.index._disk = disk
    checkpoint = read_checkpoint(disk, f"{ROOT}/checkpoint")
    span = LogSpan(0, 1 << 40, lambda offset: True)
    store.index.load(checkpoint, span, clean=False, read_only=True)
    return store.index


def test_a_file_that_cannot_be_read_leaves_the_store_without_an_index():
    disk = MemoryDisk()
    filled(disk).close()

    def fault(name, path):
        return OSError(5, "") if name == "pread" and path.startswith(INDEX) else None

    disk.fault = fault
    store = open_store(disk)
    assert store.index.is_broken
    assert send(store) == COUNT
    store.close()
    disk.fault = None
    assert_whole(open_store(disk))
