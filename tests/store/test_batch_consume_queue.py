"""Queues of batches: inner batches and single messages, in memory, in files, after a crash."""

from __future__ import annotations

import errno
import random
import tarfile

import pytest

from trocket.common.clock import ManualClock
from trocket.common.message_properties import properties_from_bytes
from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_batch import encode_batch, iter_batch
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.sys_flag import INNER_BATCH, NEED_UNWRAP
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore
from trocket.store.queues.batch_consume_queue import (
    BatchConsumeQueue,
    BatchUnit,
    inner_batch,
)
from trocket.store.queues.consume_queue import QueueFiles
from trocket.store.status import BoundaryType, GetMessageStatus, PutMessageStatus

from .support import HOST, ROOT, open_store, physical_offset_of, put, visible_records

FOLDER = "/q/T/0"
UNIQUE = b"UNIQ_KEY\x01AB\x02"


def queue_on(disk, units_per_file=5):
    queue = BatchConsumeQueue(
        "T",
        0,
        folder=FOLDER,
        files=QueueFiles(disk, units_per_file * 46),
        topic_field=b"\1T",
        topic_hash=0,
    )
    queue.load()
    return queue


def filled(disk, sizes, **more):
    """A queue of batches of these sizes, 10 bytes each, stored at 100, 101, …"""
    queue = queue_on(disk, **more)
    for number, size in enumerate(sizes):
        unit = BatchUnit(number * 10, 10, number, 100 + number, queue.max_offset, size)
        queue.append_recovered(unit.base_offset, unit.to_bytes())
    queue.write()
    return queue


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 10, 11])
def test_the_end_is_found_again_for_every_fill(count):
    disk = MemoryDisk()
    filled(disk, [3] * count)
    again = queue_on(disk)
    assert again.max_offset == again.next_offset == again.tail_offset == 3 * count
    assert again.physical_end() == count * 10


def test_expired_files_go_one_at_a_time_and_the_newest_stays():
    disk = MemoryDisk()
    queue = filled(disk, [3] * 15)  # five units a file, records of 10 bytes
    for log_begins, files_left, low in ((40, 3, 12), (41, 2, 15), (140, 1, 42), (999, 1, 45)):
        queue.follow_log(log_begins)
        while queue.delete_expired(log_begins):
            assert len(disk.list(FOLDER)) == len(queue.file_offsets)
        assert (len(disk.list(FOLDER)), queue.min_offset) == (files_left, low)
    again = queue_on(disk)
    assert again.max_offset == 45


def test_every_offset_inside_a_batch_leads_to_its_record():
    queue = filled(MemoryDisk(), [1, 4, 2, 1, 1, 3, 2])
    expected = [0, 1, 1, 1, 1, 2, 2, 3, 4, 5, 5, 5, 6, 6]
    assert [queue.unit_at(offset)[2] for offset in range(14)] == expected
    assert queue.unit_at(14) == (0, 0, 0)
    assert len(queue.read(2, 7)) == 7 * 20


def test_offsets_that_no_unit_has_are_passed_over():
    disk = MemoryDisk()
    queue = filled(disk, [2])
    queue.append_recovered(6, BatchUnit(10, 10, 1, 101, 6, 2).to_bytes())
    queue.write()
    for found in (queue, queue_on(disk)):
        assert found.unit_at(3) == (0, 0, 0)
        assert [unit.base_offset for unit in found.units(3)] == [6]
        assert found.max_offset == 8


def test_a_record_with_offsets_of_others_takes_their_place():
    disk = MemoryDisk()
    queue = filled(disk, [2, 2, 2, 2, 2, 2])
    queue.append_recovered(4, BatchUnit(900, 10, 7, 101, 4, 3).to_bytes())
    queue.write()
    for found in (queue, queue_on(disk)):
        assert found.max_offset == 7
        assert [unit.physical_offset for unit in found.units(0)] == [0, 10, 900]


@pytest.mark.parametrize("kept", range(8))
def test_a_cut_leaves_what_lies_before_it_and_zeros_behind(kept):
    disk = MemoryDisk()
    queue = filled(disk, [1, 4, 2, 1, 1, 3, 2])
    queue.cut(kept * 10 + 5)
    expected = [0, 1, 5, 7, 8, 9, 12, 14][kept]
    assert queue.max_offset == queue.next_offset == queue.tail_offset == expected
    again = queue_on(disk)
    assert again.max_offset == expected
    assert len(list(again.units(0))) == kept


def test_a_queue_that_is_cut_empty_goes_on_with_its_offsets():
    queue = filled(MemoryDisk(), [2] * 12)
    queue.correct_min_offset(70)
    while queue.delete_expired(70):
        pass
    queue.cut(5)
    assert (queue.max_offset, queue.next_offset) == (10, 10)


def test_min_offset_is_the_first_message_still_in_the_log():
    queue = filled(MemoryDisk(), [1, 4, 2, 1, 1, 3, 2])
    for physical, expected in ((0, 0), (1, 1), (10, 1), (15, 5), (60, 12), (61, 14)):
        queue.correct_min_offset(physical)
        assert queue.min_offset == expected


def test_a_time_stands_for_the_first_message_of_a_batch():
    queue = filled(MemoryDisk(), [1, 4, 2, 1, 1, 3, 2])
    lower = [queue.offset_by_time(t, BoundaryType.LOWER) for t in (0, 100, 101, 102, 106, 107)]
    assert lower == [0, 0, 1, 5, 12, 14]
    upper = [queue.offset_by_time(t, BoundaryType.UPPER) for t in (0, 100, 101, 102, 106, 107)]
    assert upper == [0, 0, 1, 5, 12, 12]
    queue.correct_min_offset(15)
    assert queue.offset_by_time(0, BoundaryType.LOWER) == 5
    assert queue.offset_by_time(0, BoundaryType.UPPER) == 5


def test_files_of_another_size_and_missing_files_are_refused():
    disk = MemoryDisk()
    filled(disk, [1] * 11)
    with pytest.raises(CorruptRecordError, match="mapperFileSizeBatchConsumeQueue"):
        queue_on(disk, units_per_file=4)
    disk.unlink(f"{FOLDER}/{230:020d}")
    with pytest.raises(CorruptRecordError, match="missing"):
        queue_on(disk)


def test_files_made_ahead_of_the_last_unit_are_removed():
    disk = MemoryDisk()
    filled(disk, [2, 2])
    disk.open(f"{FOLDER}/{230:020d}", create=True).resize(230)
    disk.open(f"{FOLDER}/{460:020d}", create=True)
    queue = queue_on(disk)
    assert queue.max_offset == 4
    assert disk.list(FOLDER) == [f"{0:020d}"]


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"INNER_NUM\x013\x02",
        b"INNER_BASE\x0112\x02",
        b"INNER_NUM\x010\x02INNER_BASE\x0112\x02",
        b"INNER_NUM\x01x\x02INNER_BASE\x0112\x02",
        b"INNER_NUM\x0132768\x02INNER_BASE\x0112\x02",
        b"INNER_NUM\x013\x02INNER_BASE\x01-1\x02",
        b"INNER_NUM\x013\x02INNER_BASE\x019999999999999999999\x02",
    ],
)
def test_properties_that_name_no_batch_are_those_of_one_message(properties):
    assert inner_batch(properties) is None


# ---- through the store -----------------------------------------------------------------------


def batch_store(disk=None, **more):
    store = open_store(disk, mapper_file_size_batch_consume_queue=5 * 46, **more)
    store.queue_store.batch_topics.add("T")
    return store


def put_batch(store, bodies, *, properties=UNIQUE, **more):
    arguments = {"born_timestamp_ms": 1, "born_host": HOST, "store_host": HOST, **more}
    body = encode_batch([Message("T", text) for text in bodies])
    return store.put_batch("T", 0, body, properties, **arguments)


def read_all(store, count_max=32):
    """(base offset, bodies) of each record, read as a consumer does."""
    found = []
    offset = store.min_offset("T", 0)
    while offset < store.max_offset("T", 0):
        result = store.get_message("T", 0, offset, count_max)
        assert result.status is GetMessageStatus.FOUND
        count = 0
        for buffer in result.buffers:
            for message in decode_messages(buffer, check_crc=True):
                bodies = [message.body]
                if message.sys_flag & INNER_BATCH:
                    bodies = [body for _, body, _ in iter_batch(message.body)]
                found.append((message.queue_offset, bodies))
                count += len(bodies)
        assert result.count == count
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


def fill(store):
    """Three inner batches with two single messages between them."""
    put_batch(store, [b"a", b"b", b"c"])
    put(store, b"d")
    put_batch(store, [b"e"])
    store.commit()
    put(store, b"f")
    put_batch(store, [b"g", b"h"])
    store.commit()


FILLED = [(0, [b"a", b"b", b"c"]), (3, [b"d"]), (4, [b"e"]), (5, [b"f"]), (6, [b"g", b"h"])]


def test_a_batch_is_one_record_that_says_what_is_in_it():
    store = batch_store()
    refusal, offsets, first = put_batch(store, [b"a", b"b", b"c"])
    assert (refusal, len(offsets), first) == (None, 1, 0)
    refusal, offsets, first = put_batch(store, [b"d", b"e"])
    assert (refusal, len(offsets), first) == (None, 1, 3)
    store.commit()
    (message,) = decode_messages(store.message_at(offsets[0]))
    assert (message.queue_offset, message.sys_flag) == (3, INNER_BATCH | NEED_UNWRAP)
    assert properties_from_bytes(message.properties_bytes) == {
        "UNIQ_KEY": "AB",
        "INNER_NUM": "2",
        "INNER_BASE": "3",
    }
    assert store.max_offset("T", 0) == 5


def test_what_was_put_is_served_from_memory_and_after_a_stop():
    disk = MemoryDisk()
    store = batch_store(disk)
    fill(store)
    for count_max in (1, 2, 32):
        assert read_all(store, count_max) == FILLED
    store.close()
    assert disk.list(f"{ROOT}/consumequeue") == []
    again = batch_store(disk)
    assert read_all(again) == FILLED
    assert again.max_offset("T", 0) == 8
    assert put_batch(again, [b"i"])[2] == 8
    again.commit()
    assert read_all(again) == [*FILLED, (8, [b"i"])]
    again.close()


@pytest.mark.parametrize("keep_folder", [True, False])
def test_after_a_kill_the_units_are_those_of_the_log(keep_folder):
    disk = MemoryDisk()
    store = batch_store(disk)
    fill(store)
    store.queue_store.write()
    disk.process_death()
    if not keep_folder:
        disk.remove_folder(f"{ROOT}/batchconsumequeue")
    again = open_store(disk, mapper_file_size_batch_consume_queue=5 * 46)
    assert again.queue_store.batch_topics == {"T"}
    assert read_all(again) == FILLED
    units = list(again.queue_store.queues["T", 0].units(0))
    records = list(visible_records(again))
    assert [unit.physical_offset for unit in units] == [record[3] for record in records]
    again.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_store_stopped_at_any_commit_goes_on_as_if_it_had_not(seed):
    """Against a list: batches and single messages of random sizes, with stops and kills between."""
    dice = random.Random(seed)
    disk, expected, end = MemoryDisk(), [], 0
    store = batch_store(disk)
    for number in range(120):
        if dice.random() < 0.7:
            bodies = [b"%d.%d" % (number, i) for i in range(dice.randint(1, 6))]
            assert put_batch(store, bodies)[2] == end
        else:
            bodies = [b"%d" % number]
            assert put(store, bodies[0])[2] == end
        expected.append((end, bodies))
        end += len(bodies)
        if dice.random() < 0.5:
            store.commit()
        if dice.random() < 0.1:
            store.commit()
            if dice.random() < 0.5:
                store.queue_store.write()
                disk.process_death()
            else:
                store.close()
            store = batch_store(disk)
    store.commit()
    assert read_all(store) == expected
    for offset in range(end):
        physical = physical_offset_of(store, offset)
        (message,) = decode_messages(store.message_at(physical))
        assert message.queue_offset == max(base for base, _ in expected if base <= offset)
    store.close()


def test_a_failed_commit_leaves_no_unit_of_it():
    disk = MemoryDisk()
    store = batch_store(disk)
    fill(store)
    put_batch(store, [b"x", b"y"])
    put(store, b"z")
    failures = iter([OSError(errno.ENOSPC, "full")])
    disk.fault = lambda name, _: next(failures, None) if name == "pwrite" else None
    with pytest.raises(StoreIOError):
        store.commit()
    assert put_batch(store, [b"i", b"j"])[2] == 8
    store.commit()
    assert read_all(store) == [*FILLED, (8, [b"i", b"j"])]
    store.close()


def test_units_not_visible_yet_do_not_reach_the_files():
    disk = MemoryDisk()
    store = batch_store(disk)
    fill(store)
    put_batch(store, [b"i", b"j"])
    assert store.max_offset("T", 0) == 8
    store.queue_store.write()
    folder = f"{ROOT}/batchconsumequeue/T/0"
    assert disk.list(folder) == [f"{0:020d}"]  # 5 units to a file, 5 are visible
    last = BatchUnit.from_bytes(disk.contents[f"{folder}/{0:020d}"], 4 * 46)
    assert last.end_offset == 8
    store.commit()
    assert store.max_offset("T", 0) == 10
    store.queue_store.write()
    assert len(disk.list(f"{ROOT}/batchconsumequeue/T/0")) == 2
    store.close()


def test_a_batch_without_a_unique_key_is_stored_as_its_messages():
    store = batch_store()
    refusal, offsets, first = put_batch(store, [b"a", b"b"], properties=b"")
    assert (refusal, len(offsets), first) == (None, 2, 0)
    store.commit()
    assert read_all(store) == [(0, [b"a"]), (1, [b"b"])]


@pytest.mark.parametrize(
    ("properties", "sys_flag"),
    [
        (b"INNER_NUM\x013\x02", 0),
        (b"INNER_NUM\x010\x02", INNER_BATCH),
        (b"INNER_NUM\x0132768\x02", INNER_BATCH),
        (b"INNER_NUM\x01x\x02", INNER_BATCH),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(properties, sys_flag):
    store = batch_store()
    refusal, _, _ = put(store, properties=properties, sys_flag=sys_flag)
    assert refusal.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.commit() == ()


def test_an_inner_batch_is_refused_by_a_queue_without_batches():
    store = open_store()
    properties = b"INNER_NUM\x012\x02"
    refusal, _, _ = put(store, properties=properties, sys_flag=INNER_BATCH | NEED_UNWRAP)
    assert refusal.status is PutMessageStatus.MESSAGE_ILLEGAL
    assert "queue.type=BatchCQ" in refusal.remark


def test_a_sender_cannot_choose_the_offset_of_its_batch():
    store = batch_store()
    put(store, b"first")
    refusal, physical, offset = put(
        store,
        encode_batch([Message("T", b"a"), Message("T", b"b")]),
        properties=b"INNER_BASE\x0177\x02INNER_NUM\x012",
        sys_flag=INNER_BATCH | NEED_UNWRAP,
    )
    assert (refusal, offset) == (None, 1)
    store.commit()
    (message,) = decode_messages(store.message_at(physical))
    assert inner_batch(message.properties_bytes) == (1, 2)
    assert store.max_offset("T", 0) == 3


def test_answers_have_the_limits_of_any_get():
    store = batch_store(max_transfer_count_on_message_in_memory=4)
    for _ in range(6):
        put_batch(store, [b"a", b"b", b"c"])
    store.commit()
    size = store.get_message("T", 0, 0, 1).size
    assert store.get_message("T", 0, 0, 1).count == 3  # never cut, never nothing
    assert store.get_message("T", 0, 0, 5).count == 3
    assert store.get_message("T", 0, 0, 32).count == 6  # 3 are fewer than 4, 6 are not
    assert store.get_message("T", 0, 0, 32, 2 * size - 1).count == 3
    result = store.get_message("T", 0, 4, 3)
    assert (result.count, result.next_begin_offset) == (3, 6)


def test_a_tag_filter_looks_at_the_tags_code_of_the_record():
    store = batch_store()
    put_batch(store, [b"a", b"b"])
    put(store, b"c", tags_code=65)
    store.commit()
    result = store.get_message("T", 0, 0, 32, tags_codes=frozenset({65}))
    assert (result.count, result.next_begin_offset) == (1, 3)
    result = store.get_message("T", 0, 0, 32, tags_codes=frozenset({66}))
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 3)


def test_a_deleted_topic_takes_its_batch_files_along():
    disk = MemoryDisk()
    store = batch_store(disk)
    fill(store)
    store.queue_store.write()
    assert store.delete_topics(["T"]) == 1
    assert disk.list(f"{ROOT}/batchconsumequeue") == []
    assert store.max_offset("T", 0) == 0


def test_a_topic_made_again_without_batches_keeps_its_new_kind_after_a_kill():
    disk = MemoryDisk()
    store = batch_store(disk)
    fill(store)
    store.queue_store.write()
    store.delete_topics(["T"])
    put(store, b"plain")
    store.commit()
    store.queue_store.write()
    disk.process_death()
    again = open_store(disk)
    assert again.queue_store.batch_topics == set()
    assert read_all(again) == [(0, [b"plain"])]


def test_batches_in_a_hole_of_the_log_are_never_passed_over():
    disk = MemoryDisk()
    store = batch_store(disk)
    put_batch(store, [b"a", b"b", b"c"])
    _, (hole,), _ = put_batch(store, [b"d", b"e"])
    put_batch(store, [b"f", b"g"])
    store.commit()
    store.close()
    log = disk.contents[f"{ROOT}/commitlog/{0:020d}"]
    log[hole : hole + 60] = b"x" * 60
    disk.remove_folder(f"{ROOT}/batchconsumequeue")
    before = {path: bytes(data) for path, data in disk.contents.items() if "lock" not in path}
    again = batch_store(disk)
    assert again.read_only
    assert again.get_message("T", 0, 0, 32).next_begin_offset == 3
    for offset in (3, 4):
        with pytest.raises(CorruptRecordError, match="message 3 of queue 0 of topic T"):
            again.get_message("T", 0, offset, 32)
    result = again.get_message("T", 0, 5, 32)
    assert (result.count, result.next_begin_offset) == (2, 7)
    again.close()
    after = {path: bytes(data) for path, data in disk.contents.items() if "lock" not in path}
    assert after == before


def test_a_damaged_batch_is_never_served():
    disk = MemoryDisk()
    store = batch_store(disk)
    put_batch(store, [b"first", b"b", b"c"])
    put_batch(store, [b"second", b"e"])
    store.commit()
    store.close()
    log = disk.contents[f"{ROOT}/commitlog/{0:020d}"]
    log[log.find(b"second")] ^= 1
    again = batch_store(disk)
    assert again.get_message("T", 0, 1, 32).count == 3
    with pytest.raises(CorruptRecordError, match="CRC"):
        again.get_message("T", 0, 4, 32)
    again.close()


def test_old_files_go_with_the_log_and_offsets_stay():
    disk = MemoryDisk()
    store = batch_store(disk)
    for number in range(13):
        put_batch(store, [b"%d" % number, b"x"])
    store.commit()
    store.queue_store.write()
    queue = store.queue_store.queues["T", 0]
    folder = f"{ROOT}/batchconsumequeue/T/0"
    assert len(disk.list(folder)) == 3
    gone = physical_offset_of(store, 14)  # record 7 of 13, in the second file
    queue.follow_log(gone)
    while queue.delete_expired(gone):
        pass
    assert disk.list(folder) == [f"{at:020d}" for at in (230, 460)]
    assert (queue.min_offset, queue.max_offset) == (14, 26)
    assert read_all(store)[0] == (14, [b"7", b"x"])
    store.close()
    again = batch_store(disk)
    assert again.max_offset("T", 0) == 26
    again.close()


# ---- Apache's ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_units_written_again_from_apaches_log_are_apaches(golden, tmp_path):
    with tarfile.open(golden / "store" / "5.5.0-mix.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / "5.5.0-mix"
    path = root / "batchconsumequeue" / "TopicInner" / "0" / f"{0:020d}"
    theirs = path.read_bytes()[: 4 * 46]
    assert any(theirs)
    for file in path.parent.iterdir():
        file.unlink()
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )
    (root / "abort").touch()
    store = MessageStore(config, clock=ManualClock())
    store.load()
    assert store.max_offset("TopicInner", 0) == 12
    store.close()
    assert path.stat().st_size == 300_000 * 46
    assert path.read_bytes()[: 4 * 46] == theirs
