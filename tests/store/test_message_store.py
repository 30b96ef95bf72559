"""Putting, committing, failing: what is stored, what is refused, what is rolled back."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.errors import StoreIOError, StoreLockedError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.remoting.message import Message
from trocket.remoting.message_codec import decode_messages, encode_batch, encode_record
from trocket.store.message_store import MessageStore
from trocket.store.status import BoundaryType, PutMessageStatus, PutRefusal

from .support import HOST, HOST_V6, ROOT, bodies, open_store, put, send, small_config

YEARS_MS = 10 * 365 * 24 * 3_600_000


def failing(operation, *, error=errno.ENOSPC, path=""):
    """A fault: this operation on paths with this text fails."""
    return lambda name, at: OSError(error, "") if name == operation and path in at else None


def test_the_record_is_byte_for_byte_what_the_codec_encodes():
    store = open_store()
    properties = b"TAGS\x01A\x02"
    _, physical, offset = put(store, b"payload", queue_id=3, properties=properties, flag=7)
    store.commit()
    expected = encode_record(
        "T",
        3,
        offset,
        physical,
        b"payload",
        properties,
        born_timestamp_ms=1,
        born_host=HOST,
        store_timestamp_ms=store.store_time_ms,
        store_host=HOST,
        flag=7,
    )
    assert bytes(store.message_at(physical)) == expected


def test_nothing_is_visible_before_commit():
    store = open_store()
    put(store)
    assert store.max_offset("T", 0) == 0
    assert set(store.commit()) == {("T", 0)}
    assert store.max_offset("T", 0) == 1
    assert list(store.commit()) == []


def test_a_record_never_spans_two_files_and_eight_bytes_stay_for_the_blank():
    store = open_store()
    room = store.config.mapped_file_size_commit_log
    overhead = 88 + 2 + 2
    send(store, bytes(room - 8 - overhead))
    assert store.max_physical_offset == room - 8
    send(store, b"next")
    assert store.min_physical_offset == 0
    assert bytes(store.log.read(room - 8, 8)) == struct.pack(">iI", 8, 0xCBD43194)
    assert bodies(store)[1] == b"next"
    _, physical, _ = put(store)
    assert physical == room + overhead + 4


@pytest.mark.parametrize(
    ("change", "status"),
    [
        pytest.param({"topic": "../x"}, PutMessageStatus.MESSAGE_ILLEGAL, id="path"),
        pytest.param({"topic": ""}, PutMessageStatus.MESSAGE_ILLEGAL, id="empty topic"),
        pytest.param({"topic": "é" * 128}, PutMessageStatus.MESSAGE_ILLEGAL, id="long topic"),
        pytest.param({"queue_id": -1}, PutMessageStatus.MESSAGE_ILLEGAL, id="queue id"),
        pytest.param({"body": bytes(5 << 20)}, PutMessageStatus.MESSAGE_ILLEGAL, id="body"),
        pytest.param({"body": bytes(70_000)}, PutMessageStatus.MESSAGE_ILLEGAL, id="file"),
        pytest.param(
            {"properties": bytes(32_768)},
            PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
            id="properties",
        ),
    ],
)
def test_what_no_file_could_hold_is_refused_and_stores_nothing(change, status):
    store = open_store()
    refusal, *offsets = put(store, **change)
    assert (refusal.status, offsets) == (status, [-1, -1])
    assert refusal.remark
    assert list(store.commit()) == []
    assert send(store) == 0


def test_a_number_beyond_its_field_raises_and_stores_nothing():
    store = open_store()
    for extra in ({}, {"born_host": HOST_V6}):
        with pytest.raises(struct.error):
            put(store, flag=1 << 40, **extra)
    assert send(store) == 0
    assert bodies(store) == [b"body"]


def test_store_timestamps_never_go_back():
    clock = ManualClock(2_000_000_000_000)
    store = open_store(clock=clock)
    store.begin_burst()
    clock.jump(-1_000_000)
    store.begin_burst()
    store.writer.read_clock()
    send(store)
    assert store.earliest_store_time("T", 0) == 2_000_000_000_000
    assert (store.store_time_ms, store.wall_time_ms) == (2_000_000_000_000, 1_999_999_000_000)


def test_a_clock_read_within_a_burst_counts_for_the_puts_after_it():
    clock = ManualClock(2_000_000_000_000)
    store = open_store(clock=clock)
    store.begin_burst()
    clock.advance(23)
    store.writer.read_clock()
    send(store)
    assert store.earliest_store_time("T", 0) == 2_000_000_000_023


def test_a_batch_is_stored_whole_with_its_own_properties_then_the_batchs():
    store = open_store()
    messages = [Message("T", b"a", properties={"KEYS": "k1", "TAGS": "X"}), Message("T", b"b")]
    arguments = {"born_timestamp_ms": 1, "born_host": HOST, "store_host": HOST}
    refusal, offsets, first = store.put_batch(
        "T", 0, encode_batch(messages), b"WAIT\x01true\x02", **arguments
    )
    assert (refusal, first, len(offsets)) == (None, 0, 2)
    store.commit()
    stored = [decode_messages(store.message_at(at))[0] for at in offsets]
    assert stored[0].properties == {"KEYS": "k1", "TAGS": "X", "WAIT": "true"}
    assert stored[1].properties == {"WAIT": "true"}
    assert store.queue_store.queues[("T", 0)].unit_at(0)[2] == ord("X")


@pytest.mark.parametrize("body", [b"", b"\0" * 19, b"\xff" * 30])
def test_a_batch_that_cannot_be_read_stores_nothing(body):
    store = open_store()
    arguments = {"born_timestamp_ms": 1, "born_host": HOST, "store_host": HOST}
    refusal, offsets, first = store.put_batch("T", 0, body, b"", **arguments)
    assert (refusal.status, offsets, first) == (PutMessageStatus.MESSAGE_ILLEGAL, [], -1)
    assert list(store.commit()) == []


def test_a_full_disk_refuses_what_needs_a_new_file_and_sends_come_back_with_space():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, bytes(60_000))
    disk.fault = failing("allocate")
    refusal, physical, _ = put(store, bytes(60_000))
    assert (refusal.status, physical) == (PutMessageStatus.CREATE_MAPPED_FILE_FAILED, -1)
    assert "space" in refusal.remark
    assert send(store, b"small, fits") == 1
    disk.fault = None
    store.clock.advance(10)
    store.begin_burst()
    assert send(store, bytes(60_000)) == 2
    assert disk.list(f"{ROOT}/commitlog") == [f"{0:020d}", f"{65536:020d}"]


def test_sends_come_back_with_space_though_the_clock_was_years_ahead():
    """Store timestamps stand still then; nothing may wait for them to go on."""
    disk = MemoryDisk()
    store = open_store(disk)
    store.clock.jump(YEARS_MS)
    store.begin_burst()
    send(store, bytes(60_000))
    store.clock.jump(-YEARS_MS)
    disk.fault = failing("allocate")
    store.begin_burst()
    assert put(store, bytes(60_000))[0].status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    assert "space" in put(store, bytes(60_000))[0].remark, "at once it is not tried again"
    disk.fault = None
    store.clock.advance(1_000)
    store.begin_burst()
    assert send(store, bytes(60_000)) == 1


def test_who_began_a_burst_learns_that_a_part_of_it_was_not_stored():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"before")
    store.begin_burst()
    put(store, b"lost")
    faults = [OSError(errno.EIO, "")]
    disk.fault = lambda name, at: faults.pop() if name == "pwrite" and faults else None
    with pytest.raises(StoreIOError):
        store.delete_topics(["Other"])
    put(store, b"after it")
    with pytest.raises(StoreIOError):
        store.commit()
    assert bodies(store) == [b"before"]
    send(store, b"of the next burst")
    assert bodies(store) == [b"before", b"of the next burst"]


def test_puts_before_topics_are_deleted_are_reported_as_visible():
    store = open_store()
    seen = []
    store.on_visible = seen.extend
    store.begin_burst()
    put(store, b"first")
    store.delete_topics(["Other"])
    assert seen == [("T", 0)]
    assert store.commit() == ()


def test_a_failed_write_rolls_everything_since_the_last_commit_back():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"before")
    end = store.max_physical_offset
    put(store, bytes(50_000))
    put(store, bytes(50_000), queue_id=1)
    failed = []

    def second_file_fails(name, path):
        if name == "pwrite" and path.endswith(f"{65536:020d}") and not failed:
            failed.append(path)
            return OSError(errno.ENOSPC, "")
        return None

    disk.fault = second_file_fails
    with pytest.raises(StoreIOError):
        store.commit()
    assert failed
    assert store.max_physical_offset == end
    assert not any(disk.contents[f"{ROOT}/commitlog/{0:020d}"][end:])
    assert not store.read_only
    assert send(store, b"after") == 1
    assert send(store, b"other", queue_id=1) == 0
    assert bodies(store) == [b"before", b"after"]
    disk.process_death()
    assert bodies(open_store(disk)) == [b"before", b"after"]


def test_rolling_back_leaves_the_index_nothing_of_a_record_that_has_no_bytes_yet():
    store = open_store()
    store.copies.append_index_item(7, b"KEYS\x01k\x02", 0, store.store_time_ms)
    store.roll_back()
    assert store.writer.burst.index_items == []
    assert send(store) == 0


def test_a_failed_fsync_is_final_and_fails_the_waiters():
    disk = MemoryDisk()
    store = open_store(disk, sync=True)
    outcome = []
    _, physical, _ = put(store)
    store.commit()
    store.flusher.when_flushed(physical, outcome.append)
    disk.fault = failing("sync", error=errno.EIO)
    store.flusher.flush()
    disk.fault = None
    store.flusher.flush()
    assert outcome == [False]
    assert store.read_only
    assert store.max_offset("T", 0) == 0
    assert put(store)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.close()
    assert disk.exists(f"{ROOT}/abort")


def test_under_sync_flush_a_message_is_visible_only_when_it_is_on_the_device():
    store = open_store(sync=True)
    seen = []
    outcome = []
    store.on_visible = lambda keys: seen.extend(keys)
    _, physical, _ = put(store)
    assert list(store.commit()) == []
    store.flusher.when_flushed(physical, outcome.append)
    assert (store.max_offset("T", 0), seen, outcome) == (0, [], [])
    assert store.dispatched_offset == 0
    assert store.message_at(physical) is None
    store.flusher.flush()
    assert (store.max_offset("T", 0), seen, outcome) == (1, [("T", 0)], [True])
    assert store.dispatched_offset == store.max_physical_offset
    store.flusher.when_flushed(physical, outcome.append)
    assert outcome == [True, True]


def test_a_callback_expires_when_fsync_takes_too_long():
    store = open_store(sync=True)
    outcome = []
    _, physical, _ = put(store)
    store.commit()
    store.flusher.when_flushed(physical, outcome.append)
    store.clock.advance(4_999)
    store.flusher.expire()
    assert outcome == []
    store.clock.advance(1)
    store.flusher.expire()
    store.flusher.flush()
    assert outcome == [False]


def test_offsets_by_time_are_the_first_at_or_after_and_the_last_at_or_before():
    clock = ManualClock()
    store = open_store(clock=clock)
    start = store.store_time_ms
    for pause_ms in (0, 10, 0, 10):
        clock.advance(pause_ms)
        store.begin_burst()
        send(store)
    lower = [store.offset_by_time("T", 0, start + at) for at in (-1, 0, 5, 10, 20, 21)]
    assert lower == [0, 0, 1, 1, 3, 4]
    upper = [
        store.offset_by_time("T", 0, start + at, BoundaryType.UPPER) for at in (-1, 0, 10, 15, 21)
    ]
    assert upper == [0, 0, 2, 2, 3]
    assert store.offset_by_time("none", 0, 0) == 0


def test_an_offset_from_outside_finds_only_whole_records():
    store = open_store()
    _, physical, _ = put(store, b"x" * 200)
    store.commit()
    size = len(store.message_at(physical))
    for at in (-1, physical + 1, physical + size, 1 << 62):
        assert store.message_at(at) is None


def test_a_used_folder_cannot_be_opened_twice():
    disk = MemoryDisk()
    first = open_store(disk)
    with pytest.raises(StoreLockedError, match="storePathRootDir"):
        open_store(disk)
    first.close()
    first.close()
    open_store(disk).close()


def test_a_closed_store_refuses_puts():
    store = open_store()
    store.close()
    refusal = PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE, "the store is not open")
    assert put(store) == (refusal, -1, -1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights_names_itself_and_what_to_do(tmp_path):
    tmp_path.chmod(0o500)
    store = MessageStore(small_config(root=str(tmp_path / "store")), disk=OsDisk())
    with pytest.raises(StoreIOError, match="right to write"):
        store.load()


def test_a_file_where_the_folder_must_be_names_itself(tmp_path):
    (tmp_path / "store").write_text("")
    store = MessageStore(small_config(root=str(tmp_path / "store")), disk=OsDisk())
    with pytest.raises(StoreIOError, match="store"):
        store.load()


def test_keys_are_found_across_index_files_and_after_reopening():
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(130):
        send(store, b"%d" % number, properties=b"KEYS\x01k%d shared\x02" % (number % 65))
        store.clock.advance(1)
        store.begin_burst()
    store.close()
    assert len(disk.list(f"{ROOT}/index")) >= 5
    again = open_store(disk, clock=store.clock)
    assert not again.index.is_behind
    for number in range(65):
        found = again.query_by_key("T", f"k{number}", 32, 0, 1 << 60).buffers
        assert [decode_messages(b)[0].body for b in found] == [
            b"%d" % number,
            b"%d" % (number + 65),
        ]
    assert len(again.query_by_key("T", "shared", 500, 0, 1 << 60).buffers) == 64
    assert again.query_by_key("U", "k1", 32, 0, 1 << 60).buffers == []


@pytest.mark.parametrize(("left", "rolls"), [(8, False), (7, True), (1, True)])
def test_a_record_that_would_leave_less_than_a_blank_goes_to_the_next_file(left, rolls):
    store = open_store()
    room = store.config.mapped_file_size_commit_log
    send(store)
    size = store.max_physical_offset - len(b"body")
    body = bytes(room - store.max_physical_offset - left - size)
    _, physical, _ = put(store, body)
    assert physical == (room if rolls else size + 4)
    store.commit()
    assert bodies(store) == [b"body", body]


def test_a_waiter_for_what_is_not_written_yet_goes_on_waiting():
    store = open_store(sync=True)
    outcome = []
    put(store)
    store.commit()
    _, later, _ = put(store)
    store.flusher.when_flushed(later, outcome.append)
    store.flusher.flush()
    assert outcome == []
    store.commit()
    store.flusher.flush()
    assert outcome == [True]
