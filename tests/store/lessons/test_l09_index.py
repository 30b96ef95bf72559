"""L9: the index is the part of Apache's store that is wrong most easily.

A search there stops only where an entry names itself, so a circle of two entries in a damaged file
spins for ever. After a kill the newest file is thrown away and built again only from where the
log's recovery happens to begin, so that keys are missing for good (#8007, #8018). A file that
cannot be made is tried again and again until the disk is full of tries (#7539). Only full files
are synced (#4463).

Ours: a chain must fall strictly; the checkpoint says how far the newest file's entries are on the
device, and after a kill the file goes on from there; what cannot be believed is built again from
the log, from exactly where the rest ends; a file that cannot be made is tried again every 5 s, and
nothing is left of a try.
"""

from __future__ import annotations

import errno
import struct

import pytest

from trocket.common.clock import ManualClock
from trocket.common.steps import at_once
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_record
from trocket.store.format import ENTRY_SIZE, INDEX_HEAD, INDEX_HEADER_SIZE
from trocket.store.index.index_file import REBUILD_COUNT, IndexFile
from trocket.store.index.index_service import RETRY_S
from trocket.store.recovery.checkpoint import read_checkpoint
from trocket.store.services import checkpoint_now

from ..support import ROOT, open_store, send

INDEX = f"{ROOT}/index"


def send_keys(store, first, end):
    for number in range(first, end):
        send(store, b"%d" % number, properties=b"KEYS\x01k%d\x02" % number)


def catch_up(store):
    while store.index.is_behind:
        store.index.work(1.0)


def found(store, key):
    return [
        decode_record(record).body for record in store.query_by_key("T", key, 32, 0, 1 << 60)[0]
    ]


def assert_all_found(store, count):
    catch_up(store)
    assert [found(store, f"k{n}") for n in range(count)] == [[b"%d" % n] for n in range(count)]


def read_again(store):
    """Numbers of the messages that the index reads from the log while it catches up."""
    numbers = []
    read_log = store.index._read_log

    def reading(start):
        for record in read_log(start):
            numbers.append(int(decode_record(store.message_at(record[3])).body))
            yield record

    store.index._read_log = reading
    catch_up(store)
    return numbers


def test_a_circle_of_two_entries_ends_the_search():
    disk = MemoryDisk()
    disk.make_folder("/i")
    file = IndexFile(disk, "/i/1", slot_count=1, index_count_max=10)
    file.create(end_physical_offset=0, end_timestamp_ms=0)
    assert file.put_many([(5, 100, 1000), (6, 200, 1000), (5, 300, 1000)]) == 3
    file.finish()
    entry_2 = file.entries_position + 2 * ENTRY_SIZE
    disk.contents["/i/1"][entry_2 + 16 : entry_2 + 20] = struct.pack(">i", 3)
    damaged = IndexFile(disk, "/i/1", slot_count=1, index_count_max=10)
    assert damaged.load() == ""
    numbers = {}
    at_once(damaged.select(5, numbers, 10, 0, 10_000))
    assert list(numbers) == [300]


async def test_after_a_kill_only_what_came_behind_the_checkpoint_is_read_again():
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, 30)
    catch_up(store)
    await checkpoint_now(store)
    send_keys(store, 30, 40)
    catch_up(store)
    disk.process_death()
    store = open_store(disk)
    assert store.index.is_behind
    assert found(store, "k3") == []  # incomplete, but nothing wrong
    assert read_again(store) == list(range(30, 40))
    assert_all_found(store, 40)


async def test_entries_are_on_the_device_before_the_checkpoint_vouches_for_them():
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, 30)
    catch_up(store)
    calls = []
    disk.fault = lambda name, path: calls.append((name, path[len(ROOT) + 1 :].split("/")[0]))
    await checkpoint_now(store)
    order = [call for call in calls if call[1] in ("index", "checkpoint", "commitlog")]
    assert [call for call in order if call[0] in ("pwrite", "sync")] == [
        ("pwrite", "index"),
        ("sync", "commitlog"),
        ("sync", "index"),
        ("pwrite", "checkpoint"),
        ("sync", "checkpoint"),
    ]


async def test_while_a_file_is_filled_its_header_says_that_it_is_empty_so_that_apache_fills_it():
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, 30)
    catch_up(store)
    await checkpoint_now(store)
    (name,) = disk.list(INDEX)
    assert disk.contents[f"{INDEX}/{name}"][:INDEX_HEADER_SIZE] == bytes(INDEX_HEADER_SIZE)
    store.close()
    closed = INDEX_HEAD.unpack_from(disk.contents[f"{INDEX}/{name}"])
    assert closed[-1] > 30
    store = open_store(disk)
    send_keys(store, 30, 40)
    catch_up(store)
    await checkpoint_now(store)
    disk.process_death()
    store = open_store(disk)
    # The header of the clean stop would be believed together with slots of another time. This one
    # is a new file's at Apache's broker, which indexes again all that lies at or behind its offset.
    begin_ms, begin = closed[0], closed[2]
    header = (begin_ms, begin_ms, begin, begin, 0, 0)
    assert INDEX_HEAD.unpack_from(disk.contents[f"{INDEX}/{name}"]) == header
    assert_all_found(store, 40)


@pytest.mark.parametrize("files", [1, 3])
async def test_the_checkpoint_sends_apache_back_before_the_first_message_of_the_unfinished_file(
    files,
):
    # After a kill its broker removes that file, and reads the log again: 5.5.0 from the last file
    # on whose first message was not stored later than the logics time.
    clock = ManualClock()
    store = open_store(MemoryDisk(), clock=clock)
    times = []
    for number in range(49 * (files - 1) + 20):
        clock.now_ms += 60_000
        times.append(clock.now_ms)
        store.begin_burst()
        send_keys(store, number, number + 1)
    catch_up(store)
    store.index.finish_full_files()
    await checkpoint_now(store)
    assert len(store.index.files) == files
    checkpoint = read_checkpoint(store.disk, f"{ROOT}/checkpoint")
    assert checkpoint.logics_msg_timestamp_ms == times[49 * (files - 1)] - 1
    assert checkpoint.physic_msg_timestamp_ms == times[-1]
    store.close()


async def test_a_second_kill_right_after_the_start_costs_nothing_more():
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, 30)
    catch_up(store)
    await checkpoint_now(store)
    send_keys(store, 30, 40)
    for _ in range(2):
        disk.process_death()
        store = open_store(disk)
    assert read_again(store) == list(range(30, 40))
    assert_all_found(store, 40)


@pytest.mark.parametrize("finished", [0, 1, 2])
async def test_several_full_files_that_are_not_written_out_yet_are_no_loss(finished):
    disk = MemoryDisk(journalled=True)
    store = open_store(disk)
    send_keys(store, 0, 180)  # 49 entries fit a file
    catch_up(store)
    full = list(store.index._full)
    assert len(full) == 3
    for _ in range(finished):
        store.index._full[0].finish()
        store.index._full.pop(0)
    await checkpoint_now(store)
    disk.power_loss()
    store = open_store(disk)
    assert [file.path for file in store.index.files] == [file.path for file in full[: finished + 1]]
    assert read_again(store)[:2] == [finished * 49 + 48, finished * 49 + 49]
    assert_all_found(store, 180)


async def test_a_kill_while_slots_are_made_again_begins_anew():
    disk = MemoryDisk()
    many = 3 * REBUILD_COUNT
    store = open_store(disk, max_index_num=many, mapped_file_size_commit_log=8 << 20)
    send_keys(store, 0, 50)
    catch_up(store)
    filler = [(7, store.index.files[0].end_physical_offset, store.store_time_ms)] * (
        2 * REBUILD_COUNT
    )
    store.index._put_many(filler)
    await checkpoint_now(store)
    for _ in range(2):
        disk.process_death()
        store = open_store(disk, max_index_num=many, mapped_file_size_commit_log=8 << 20)
        store.index._resumed.rebuild_slots()
        assert store.index.is_behind
        await checkpoint_now(store)
    assert store.index.files[0].index_count == 1 + 50 + 2 * REBUILD_COUNT
    assert_all_found(store, 50)


def test_a_file_that_cannot_be_made_is_not_tried_without_end():
    disk = MemoryDisk()
    store = open_store(disk)
    tried = []

    def fault(name, path):
        if name == "resize" and path.startswith(INDEX):
            tried.append(path)
            return OSError(errno.ENOSPC, "")
        return None

    disk.fault = fault
    for number in range(5):
        send_keys(store, number, number + 1)
        catch_up(store)
    assert len(tried) == 1
    for _ in range(3):
        store.clock.advance(1000 * int(RETRY_S) + 1)
        catch_up(store)
    assert len(tried) == 4
    assert disk.list(INDEX) == []
    disk.fault = None
    store.clock.advance(1000 * int(RETRY_S) + 1)
    assert_all_found(store, 5)
