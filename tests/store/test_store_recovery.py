"""Damaged stores: what is cut, what is rebuilt, what is served read-only, what is refused."""

from __future__ import annotations

import contextlib
import errno

import pytest

from trocket.common.delay_levels import delay_levels_ms
from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.format import UNIT, UNIT_SIZE
from trocket.store.queues.queue_ends import FILE_NAME, QueueEnds, write_queue_ends
from trocket.store.recovery.checkpoint import Checkpoint, write_checkpoint

from .damaged import LOG, QUEUE, assert_whole, closed, crashed, snapshot
from .support import ROOT, bodies, open_store, put, send

# ---- queues ----------------------------------------------------------------------------------


def test_lost_queue_files_are_built_again_after_a_crash():
    disk, _, _ = crashed()
    disk.remove_folder(f"{ROOT}/consumequeue")
    disk.contents.pop(f"{ROOT}/checkpoint", None)
    assert bodies(open_store(disk)) == [b"message %d" % n for n in range(5)]


def test_ends_of_another_checkpoint_do_not_count():
    disk = closed(10)
    write_queue_ends(disk, ROOT, QueueEnds(7, 400, {("T", 0): 77, ("U", 0): 5}))
    store = open_store(disk)
    assert store.max_offset("T", 0) == 5
    assert store.topics() == {"T": [0, 1]}


def test_queue_files_of_another_size_than_all_there_are_name_the_key():
    disk = closed(100)
    del disk.contents[f"{ROOT}/{FILE_NAME}"]
    before = snapshot(disk)
    with pytest.raises(CorruptRecordError, match="mappedFileSizeConsumeQueue"):
        open_store(disk, mapped_file_size_consume_queue=2000)
    assert snapshot(disk) == before
    assert not open_store(disk).read_only


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


# ---- topics deleted and made again -----------------------------------------------------------


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
    assert_whole(again)


def test_a_deleted_topic_is_not_built_again():
    disk = closed(10)
    store = open_store(disk)
    send(store, b"behind the checkpoint")
    store.delete_topics(["T"])
    send(store, topic="U")
    disk.process_death()
    again = open_store(disk)
    assert again.topics() == {"U": [0]}
    again.close()
    assert open_store(disk).topics() == {"U": [0]}


def test_a_rebuilt_queue_is_that_of_the_topic_made_last():
    disk = closed(10, queues=1)
    store = open_store(disk)
    store.delete_topics(["T"])
    for number in range(4):
        send(store, b"new %d" % number)
    store.close()
    disk.remove_folder(f"{ROOT}/consumequeue/T")
    again = open_store(disk)
    assert bodies(again) == [b"new %d" % number for number in range(4)]
    assert_whole(again)


# ---- files -----------------------------------------------------------------------------------


def test_a_file_half_made_when_the_process_died_is_removed():
    disk, _, _ = crashed()
    disk.contents[f"{ROOT}/commitlog/{65536:020d}"] = bytearray(100)
    store = open_store(disk)
    assert store.max_offset("T", 0) == 5
    assert f"{ROOT}/commitlog/{65536:020d}" not in disk.contents


def test_a_log_of_another_file_size_is_refused_by_name_and_nothing_changes():
    disk, _, _ = crashed()
    before = snapshot(disk)
    for size in (32 * 1024, 128 * 1024):
        with pytest.raises(CorruptRecordError, match="mappedFileSizeCommitLog"):
            open_store(disk, mapped_file_size_commit_log=size)
    assert snapshot(disk) == before
    assert bodies(open_store(disk))


def test_a_log_of_smaller_files_is_refused_by_name():
    disk = closed(8, body=bytes(30_000))
    del disk.contents[LOG]
    del disk.contents[f"{ROOT}/commitlog/{131072:020d}"]
    with pytest.raises(CorruptRecordError, match="mappedFileSizeCommitLog"):
        open_store(disk, mapped_file_size_commit_log=128 * 1024)


def test_queues_without_a_log_are_removed():
    disk, _, _ = crashed()
    disk.remove_folder(f"{ROOT}/commitlog")
    store = open_store(disk)
    assert store.topics() == {}
    assert send(store) == 0


# ---- what units say --------------------------------------------------------------------------


def test_delayed_messages_get_their_delivery_time_back_as_tags_code():
    disk = MemoryDisk()
    store = open_store(disk)
    put(store, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=b"DELAY\x013\x02", tags_code=1)
    store.commit()
    disk.process_death()
    again = open_store(disk)
    unit = again.queue_store.queues[("SCHEDULE_TOPIC_XXXX", 2)].unit_at(0)
    assert unit[2] == store.store_time_ms + 10_000


def test_delay_levels_are_read_as_durations():
    assert delay_levels_ms("1s 2m 3h 1d") == [1_000, 120_000, 10_800_000, 86_400_000]


def test_messages_of_light_queues_are_put_into_each_of_them():
    disk = MemoryDisk()
    store = open_store(disk)
    more = b"INNER_MULTI_DISPATCH\x01%%LMQ%%a,%%LMQ%%b\x02INNER_MULTI_QUEUE_OFFSET\x01%d,0\x02"
    send(store, b"0", queue_id=3, properties=more % 0)
    send(store, b"1", queue_id=3, properties=more.replace(b",%%LMQ%%b", b"") % 1)
    disk.process_death()
    again = open_store(disk)
    assert bodies(again, "T", 3) == [b"0", b"1"]
    assert bodies(again, "%LMQ%a", 0) == [b"0", b"1"]
    assert bodies(again, "%LMQ%b", 0) == [b"0"]
    assert_whole(again)


def test_holes_and_garbage_in_queue_files_behind_the_checkpoint_are_made_again():
    """A power cut may keep a later page of a queue file and lose an earlier one."""
    disk = MemoryDisk()
    store = open_store(disk, mapped_file_size_consume_queue=2000)
    for number in range(40):
        send(store, b"%d" % number)
        if number == 9:
            store.flusher.flush()
            store.queue_store.write()
            store.checkpoints.write(store.dispatched_offset, store.store_time_ms)
    store.queue_store.write()
    disk.process_death()
    units = disk.contents[f"{ROOT}/consumequeue/T/0/{0:020d}"]
    units[15 * 20 : 16 * 20] = bytes(20)
    units[25 * 20 : 26 * 20] = bytes(7) + b"\5" + bytes(3) + b"\5" + bytes(8)
    again = open_store(disk, mapped_file_size_consume_queue=2000)
    assert bodies(again) == [b"%d" % number for number in range(40)]


def test_units_that_memory_has_no_room_for_are_made_in_a_second_reading(monkeypatch):
    monkeypatch.setattr("trocket.store.recovery.log_scan.UNITS_MAX", 7)
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(50):
        send(store, b"%d" % number, queue_id=number % 3)
        if number == 20:
            store.delete_topics(["T"])
    disk.process_death()
    again = open_store(disk)
    assert bodies(again, queue_id=0) == [b"%d" % number for number in range(21, 50, 3)]
    assert_whole(again)
    again.close()
    unit = UNIT.unpack(disk.contents[f"{QUEUE}/{0:020d}"][:UNIT_SIZE])
    assert unit[1] == 94
    assert_whole(open_store(disk))


# ---- crashes in recovery ---------------------------------------------------------------------


def leave_clean(disk):
    pass


def leave_killed(disk):
    open_store(disk)
    disk.process_death()


def leave_killed_by_apache(disk):
    del disk.contents[f"{ROOT}/checkpoint"]
    disk.contents[f"{ROOT}/abort"] = bytearray()


def leave_closed_by_apache(disk):
    del disk.contents[f"{ROOT}/checkpoint"]


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize(
    "leave", [leave_clean, leave_killed, leave_killed_by_apache, leave_closed_by_apache]
)
def test_a_crash_at_any_call_of_a_recovery_that_rebuilds_does_no_harm(leave, power):
    """The queue that is built again, and one that is not, are whole after the next start."""
    calls = fails_at = 0
    while calls >= fails_at:
        fails_at += 1
        disk = closed(100)
        leave(disk)
        disk.remove_folder(f"{ROOT}/consumequeue/T/1")
        disk.contents[f"{ROOT}/consumequeue/T/1/{0:020d}"] = bytearray(17)
        disk.journal = []
        calls = 0

        def die(name, path):
            nonlocal calls
            calls += name != "pread"
            return OSError(errno.EIO, "") if calls >= fails_at else None  # noqa: B023

        disk.fault = die
        with contextlib.suppress(StoreIOError):
            open_store(disk)
        disk.fault = None
        if power:
            disk.power_loss(fails_at % 7 % (len(disk.journal) + 1))
        disk.process_death()
        store = open_store(disk)
        assert not store.read_only
        assert_whole(store)
        for queue_id in (0, 1):
            expected = [b"%d" % number for number in range(queue_id, 100, 2)]
            assert bodies(store, queue_id=queue_id) == expected
    assert calls > 20


@pytest.mark.slow
@pytest.mark.parametrize("sync", [False, True])
def test_a_crash_at_any_call_of_a_recovery_that_cuts_does_no_harm(sync):
    calls = fails_at = 0
    while calls >= fails_at:
        fails_at += 1
        disk, offsets, end = crashed(sync=sync)
        disk.contents[LOG][end - 3 : end] = bytes(3)
        disk.contents[f"{ROOT}/commitlog/{65536:020d}"] = bytearray(65536)
        disk.journal = []
        calls = 0

        def die(name, path):
            nonlocal calls
            calls += name != "pread"
            return OSError(errno.EIO, "") if calls >= fails_at else None  # noqa: B023

        disk.fault = die
        with contextlib.suppress(StoreIOError):
            open_store(disk, sync=sync)
        disk.fault = None
        disk.power_loss(fails_at % 5 % (len(disk.journal) + 1))
        store = open_store(disk, sync=sync)
        assert not store.read_only
        assert store.max_physical_offset == offsets[4]
        assert bodies(store) == [b"message %d" % number for number in range(4)]
        assert_whole(store)
        assert not any(disk.contents[LOG][offsets[4] :])
    assert calls > 15


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["apache's", "ours, with the ends of a checkpoint to come"])
def test_a_crash_while_a_queue_of_an_old_part_of_the_log_is_built_again_does_no_harm(whose):
    """What the next start would read of the log by itself tells of no queue but one."""
    calls = fails_at = 0
    while calls >= fails_at:
        fails_at += 1
        disk = MemoryDisk()
        store = open_store(disk)
        for number in range(150):
            store.clock.advance(1000)
            store.begin_burst()
            send(store, bytes(2000), queue_id=1 + number % 2 if number < 30 else 0)
            if number == 60 and whose != "apache's":
                store.flusher.flush()
                store.queue_store.write()
                store.checkpoints.write(store.dispatched_offset, store.store_time_ms)
        newest_ms = store.store_time_ms
        if whose == "apache's":
            store.close()
            write_checkpoint(
                disk, f"{ROOT}/checkpoint", Checkpoint(newest_ms, newest_ms, newest_ms)
            )
        else:
            write_queue_ends(disk, ROOT, store.checkpoints.queue_ends())
            disk.process_death()
        del disk.contents[f"{ROOT}/consumequeue/T/1/{0:020d}"][100:]
        calls = 0

        def die(name, path):
            nonlocal calls
            calls += name != "pread"
            return OSError(errno.EIO, "") if calls >= fails_at else None  # noqa: B023

        disk.fault = die
        with contextlib.suppress(StoreIOError):
            open_store(disk)
        disk.fault = None
        disk.process_death()
        store = open_store(disk)
        assert store.max_offset("T", 1) == 15
        assert store.max_offset("T", 2) == 15
        assert store.max_offset("T", 0) == 120
        assert_whole(store)
    assert calls > 20
