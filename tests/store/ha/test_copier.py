"""Bytes of a master's log into a slave's store: what is taken, what is refused, what is shown."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.queue_differences import differences
from trocket.disk.errors import CopyError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch, encode_record
from trocket.store.config import BrokerRole
from trocket.store.ha import copier as copier_module
from trocket.store.ha.copier import LogCopier
from trocket.store.log.commit_log import blank
from trocket.store.queues.queue_ends import read_queue_ends
from trocket.store.store_state import StoreEvent

from ..support import HOST, ROOT, bodies, open_store, put, send

FILE_SIZE = 65536


def open_slave(disk=None, **changes):
    return open_store(disk, broker_role=BrokerRole.SLAVE, **changes)


def log_of(master):
    """All bytes of a log, from its first file on."""
    end, log = master.max_physical_offset, master.log
    return b"".join(bytes(log.view(base)) for base in log.files)[: end - log.min_offset]


def copy(slave, data, *, is_ours=True, piece=1 << 20):
    """Have a slave take these bytes as what follows in its log."""
    copier = LogCopier(slave, is_ours=is_ours)
    for at in range(0, len(data), piece):
        copier.take(data[at : at + piece])
    return copier


def record(at, queue_offset, body=b"body", *, later_ms=0, **more):
    """A record as it would lie at an offset."""
    arguments = {"topic": "T", "queue_id": 0, "properties": b"", "sys_flag": 0, **more}
    return encode_record(
        arguments["topic"], arguments["queue_id"], queue_offset, at, body, arguments["properties"],
        born_timestamp_ms=1, born_host=HOST, store_host=HOST, sys_flag=arguments["sys_flag"],
        store_timestamp_ms=1_700_000_000_000 + at + later_ms,
    )  # fmt: skip


def records(*specs, at=0):
    """Records one after the other; each is (queue_offset, {fields})."""
    data = b""
    for queue_offset, fields in specs:
        data += record(at + len(data), queue_offset, **fields)
    return data


def assert_whole(store):
    assert list(differences(store.log, store.queue_store, store.config)) == []


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 3)), min_size=1, max_size=40),
    st.lists(st.integers(1, 30_000), min_size=1, max_size=20),
    st.booleans(),
)
def test_a_log_copied_in_any_pieces_is_the_log(sizes, pieces, sync):
    master = open_store()
    for size, queue_id in sizes:
        send(master, bytes(size), queue_id=queue_id, properties=b"KEYS\x01k\x02")
    slave, data = open_slave(sync=sync), log_of(master)
    copier, at, number = LogCopier(slave, is_ours=True), 0, 0
    while at < len(data):
        size = pieces[number % len(pieces)]
        copier.take(data[at : at + size])
        at, number = at + size, number + 1
    slave.flusher.flush()
    assert log_of(slave) == data
    assert copier.received_offset == slave.max_physical_offset == len(data)
    assert_whole(slave)


def test_a_record_is_taken_when_its_last_byte_has_come():
    master = open_store()
    send(master, b"1")
    end = master.max_physical_offset
    send(master, b"2")
    data, slave = log_of(master), open_slave()
    copier, shown = LogCopier(slave, is_ours=True), []
    slave.on_visible = shown.extend
    for at in range(len(data)):
        assert slave.max_physical_offset == at // end * end
        assert len(shown) == at // end
        copier.take(data[at : at + 1])
    assert bodies(slave) == [b"1", b"2"]
    assert shown == [("T", 0), ("T", 0)]


def test_under_sync_flush_a_copied_message_is_shown_after_its_fsync():
    slave, shown = open_slave(sync=True), []
    slave.on_visible = shown.extend
    copy(slave, records((0, {}), (1, {})))
    assert (shown, slave.max_offset("T", 0)) == ([], 0)
    assert slave.max_physical_offset > slave.durability.sendable_offset == 0
    slave.flusher.flush()
    assert (shown, slave.max_offset("T", 0)) == ([("T", 0)], 2)
    assert bodies(slave) == [b"body"] * 2


def test_the_rest_of_a_file_comes_as_it_is():
    """Blank and what lies behind it; Apache's may hold anything there."""
    first = record(0, 0, bytes(60_000))
    rest = FILE_SIZE - len(first)
    filler = blank(rest) + b"\7" * (rest - 8)
    data = first + filler + record(FILE_SIZE, 1, b"next")
    slave = open_slave()
    copy(slave, data, piece=100)
    assert log_of(slave) == data
    assert bodies(slave)[1] == b"next"


def test_a_blank_is_not_begun_before_all_of_it_is_there():
    """Else a copy that breaks off there would go on with zeros."""
    first = record(0, 0, bytes(60_000))
    filler = blank(FILE_SIZE - len(first)).ljust(FILE_SIZE - len(first), b"\0")
    slave = open_slave()
    copy(slave, first + filler[:-1])
    assert slave.max_physical_offset == len(first)
    copy(slave, filler + record(FILE_SIZE, 1, b"next"))
    assert bodies(slave)[1] == b"next"


def test_store_times_are_the_masters_and_time_does_not_go_back():
    disk = MemoryDisk()
    slave, later_ms = open_slave(disk), 3_600_000
    copy(slave, records((0, {"later_ms": later_ms})))
    assert slave.earliest_store_time("T", 0) == 1_700_000_000_000 + later_ms
    slave.close()
    promoted = open_store(disk)
    promoted.begin_burst()
    send(promoted)
    assert promoted.store_time_at("T", 0, 1) >= 1_700_000_000_000 + later_ms


# ---- what is refused ---------------------------------------------------------------------


GOOD = records((0, {"body": b"good"}))


def broken(change):
    """A good record, then a second one that is changed."""
    second = bytearray(record(len(GOOD), 1, b"second", properties=b"KEYS\x01k\x02"))
    change(second)
    return GOOD + bytes(second)


def flip(at):
    def change(second):
        second[at] ^= 1

    return change


def put_at(at, layout, *values):
    return lambda second: struct.pack_into(layout, second, at, *values)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(flip(90), "CRC of the body", id="body"),
        pytest.param(put_at(0, ">i", 2**31 - 1), "a record of 2147483647 bytes", id="size"),
        pytest.param(put_at(0, ">i", -1), "a record of -1 bytes", id="negative size"),
        pytest.param(put_at(4, ">i", 7), "magic 00000007", id="magic"),
        pytest.param(put_at(0, ">ii", 0, 0), "zeros where a record should begin", id="zeros"),
        pytest.param(put_at(0, ">iI", 100, 0xCBD43194), "a blank of 100 bytes", id="blank"),
        pytest.param(put_at(28, ">q", 5), "says it lies at 5", id="physical offset"),
        pytest.param(put_at(20, ">q", 7), "message 7 of queue 0 of topic T, where 1", id="gap"),
        pytest.param(put_at(84, ">i", 2**30), "body of", id="body size"),
        pytest.param(put_at(20, ">q", -1), "message -1 of its queue", id="negative offset"),
    ],
)
def test_a_bad_record_is_never_written_and_those_before_it_are(change, words):
    disk = MemoryDisk()
    slave = open_slave(disk)
    with pytest.raises(CopyError, match=words) as caught:
        copy(slave, broken(change) + record(500, 2))
    assert caught.value.physical_offset == len(GOOD)
    assert bodies(slave) == [b"good"]
    assert slave.max_physical_offset == len(GOOD)
    assert bytes(slave.log.view(0)) == GOOD.ljust(FILE_SIZE, b"\0")
    disk.process_death()
    assert bodies(open_slave(disk)) == [b"good"]


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4), st.integers(1, 3000))
def test_any_bytes_are_a_log_or_the_one_documented_error(changes, piece):
    data = bytearray(records((0, {}), (1, {"properties": b"KEYS\1k\2"}), (0, light(0)), (1, {})))
    for at, value in changes:
        data[at % len(data)] = value
    slave, refusal = open_slave(), None
    try:
        copy(slave, bytes(data), piece=piece)
    except CopyError as error:
        refusal = error
    if refusal is not None:
        assert refusal.physical_offset == slave.max_physical_offset
    assert log_of(slave) == data[: slave.max_physical_offset]
    assert slave.dispatched_offset == slave.max_physical_offset
    for (topic, queue_id), queue in slave.queue_store.queues.items():
        found = slave.get_message(topic, queue_id, queue.min_offset, 32)
        assert found.count == queue.max_offset - queue.min_offset


def test_a_bad_record_is_reported_though_nothing_follows_it():
    with pytest.raises(CopyError, match="a record of 5 bytes"):
        copy(open_slave(), GOOD + struct.pack(">ii", 5, 5))


def test_torn_properties_are_found_where_the_master_is_ours():
    """L4: no checksum covers them but the CRC property, which we give to all that hold a NUL."""
    torn = record(0, 0, properties=b"KEYS\x01" + bytes(40))
    with pytest.raises(CopyError, match="NUL"):
        copy(open_slave(), torn)
    slave = open_slave()
    copy(slave, torn, is_ours=False)  # Apache's broker stores what a client sends
    assert slave.max_offset("T", 0) == 1


def test_what_apache_may_have_written_is_not_taken_for_ours_at_the_next_start():
    disk = MemoryDisk()
    slave = open_slave(disk)
    with_nul = record(0, 0, properties=b"KEYS\x01a\0b")
    copy(slave, with_nul + record(len(with_nul), 1), is_ours=False)
    for end in ("kill", "close", "kill"):
        if end == "kill":
            disk.process_death()
        else:
            slave.close()
        slave = open_slave(disk)
        assert slave.max_offset("T", 0) == 2
        assert not slave.read_only
        copier = LogCopier(slave, is_ours=False)
        assert slave.checkpoints.own_from <= slave.max_physical_offset
        copier.take(record(slave.max_physical_offset, 2, properties=b"KEYS\x01a\0b")[:50])
    slave.close()
    assert read_queue_ends(disk, ROOT).own_from == slave.max_physical_offset
    promoted = open_store(disk)
    assert promoted.checkpoints.own_from == promoted.max_physical_offset


def test_what_apache_wrote_is_known_though_a_checkpoint_was_not_finished():
    """A crash between queue_ends.trocket and the checkpoint leaves ends of another checkpoint."""
    disk = MemoryDisk()
    slave = open_slave(disk)
    data = record(0, 0, properties=b"KEYS\x01a\0b")
    data += record(len(data), 1)
    copy(slave, data, is_ours=False)
    disk.fault = lambda name, path: OSError(5, "") if path.endswith("/checkpoint") else None
    with pytest.raises(StoreIOError):
        slave.checkpoints.write(slave.dispatched_offset, slave.store_time_ms)
    disk.fault = None
    disk.process_death()
    assert open_slave(disk).max_offset("T", 0) == 2


def test_a_promoted_slave_of_apaches_says_at_once_what_is_its_own():
    disk = MemoryDisk()
    slave = open_slave(disk)
    copy(slave, records((0, {})), is_ours=False)
    slave.close()
    open_store(disk)
    disk.process_death()
    assert read_queue_ends(disk, ROOT).own_from == slave.max_physical_offset


def test_a_copy_that_began_midway_and_has_nothing_yet_begins_there_again():
    disk = MemoryDisk()
    slave = open_slave(disk)
    failures = [OSError(28, "")]
    disk.fault = lambda name, path: (
        failures.pop() if name == "pwrite" and "commitlog" in path and failures else None
    )
    copier = LogCopier(slave, is_ours=True)
    copier.begin_at(3 * FILE_SIZE)
    with pytest.raises(StoreIOError):
        copier.take(record(3 * FILE_SIZE, 7))
    disk.fault = None
    assert slave.max_physical_offset == 3 * FILE_SIZE
    for _ in range(2):
        slave.close()
        slave = open_slave(disk)
        assert not slave.read_only
        assert slave.max_physical_offset == 3 * FILE_SIZE
    copy(slave, record(3 * FILE_SIZE, 7))
    assert bodies(slave) == [b"body"]


def test_files_of_an_empty_log_are_gone_for_good_before_the_copy_begins():
    disk = MemoryDisk()
    master = open_store(disk)
    master.log.create(0)
    disk.process_death()
    slave, calls = open_slave(disk), []
    assert list(slave.log.files) == [0]
    disk.fault = lambda name, path: calls.append((name, path[len(ROOT) :]))
    slave.copies.begin(3 * FILE_SIZE)
    removed = calls.index(("unlink", f"/commitlog/{0:020d}"))
    synced = calls.index(("sync_folder", "/commitlog"), removed)
    assert synced < calls.index(("open", f"/commitlog/{3 * FILE_SIZE:020d}"))


def test_the_properties_of_a_master_of_ours_stay_checked_at_the_next_start():
    disk = MemoryDisk()
    slave = open_slave(disk)
    copy(slave, records((0, {})))
    assert slave.checkpoints.own_from == 0
    slave.close()
    assert read_queue_ends(disk, ROOT).own_from == 0


def test_a_record_longer_than_any_is_refused_before_it_is_waited_for(monkeypatch):
    monkeypatch.setattr(copier_module, "RECORD_SIZE_MAX", 1000)
    with pytest.raises(CopyError, match="a record of 1001 bytes"):
        copy(open_slave(), struct.pack(">iI", 1001, 0xDAA320A7))


def test_a_log_begins_where_a_file_of_ours_can():
    copier = LogCopier(open_slave(), is_ours=True)
    with pytest.raises(CopyError, match="mappedFileSizeCommitLog"):
        copier.begin_at(1000)
    copier.begin_at(3 * FILE_SIZE)
    assert copier.received_offset == 3 * FILE_SIZE


def test_a_read_only_store_and_a_full_disk_take_nothing():
    slave = open_slave()
    slave.writer.enter(StoreEvent.DISK_FULL, "no room, says the test")
    with pytest.raises(StoreIOError, match="no room, says the test"):
        copy(slave, GOOD)
    slave.writer.enter(StoreEvent.DISK_HAS_ROOM)
    copy(slave, GOOD)
    slave.disk.fault = lambda name, path: OSError(5, "") if name == "sync" else None
    slave.flusher.flush()
    with pytest.raises(StoreIOError, match="read-only"):
        copy(slave, record(len(GOOD), 1))


@pytest.mark.parametrize("operation", ["pwrite", "allocate"])
def test_a_write_that_fails_leaves_nothing_behind(operation):
    master = open_store()
    for _ in range(3):
        send(master, bytes(30_000))
    slave, data = open_slave(), log_of(master)
    copy(slave, data[:31_000])
    before = bytes(slave.log.view(0))
    failures = [OSError(28, "")]
    slave.disk.fault = lambda name, path: (
        failures.pop() if name == operation and "commitlog" in path and failures else None
    )
    with pytest.raises(StoreIOError):
        copy(slave, data[slave.max_physical_offset :])
    assert failures == []
    assert slave.max_offset("T", 0) == 1
    assert bytes(slave.log.view(0)) == before
    copy(slave, data[slave.max_physical_offset :])
    assert log_of(slave) == data
    assert_whole(slave)


# ---- queues ------------------------------------------------------------------------------


def test_an_fsync_that_began_before_a_queue_began_again_shows_nothing_of_it():
    """It runs in a thread: what it covers was appended to a queue that is gone when it ends."""
    slave = open_slave(sync=True)
    old = records((0, {}), (1, {}), (2, {}))
    copy(slave, old + record(len(old), 0, b"new"))
    assert slave.max_offset("T", 0) == 0
    slave.dispatcher.show_until(len(old))
    assert slave.max_offset("T", 0) <= 1
    slave.flusher.flush()
    assert bodies(slave) == [b"new"]


def test_units_of_batches_that_are_taken_back_show_nothing_before_its_fsync():
    slave = open_slave(sync=True)

    def inner(base, count):
        properties = b"INNER_NUM\1%d\2INNER_BASE\1%d\2" % (count, base)
        return {"topic": "B", "sys_flag": 0x80, "properties": properties}

    copy(slave, records((0, inner(0, 2)), (0, inner(2, 3)), (0, inner(5, 1)), (0, inner(2, 2))))
    assert slave.max_offset("B", 0) == 0
    slave.flusher.flush()
    assert slave.max_offset("B", 0) == 4
    assert_batches(slave, [(0, 2), (2, 2)])


def assert_batches(store, expected):
    queue = store.queue_store.queues["B", 0]
    assert [(unit.base_offset, unit.batch_size) for unit in queue.units(0)] == expected


@pytest.mark.parametrize("sync", [False, True])
def test_a_queue_that_begins_again_has_only_what_came_since(sync):
    slave, gone = open_slave(sync=sync), open_slave()
    data = records((0, {"body": b"old"}), (1, {}), (0, {"body": b"new"}), (1, {"body": b"newer"}))
    copy(slave, data)
    slave.flusher.flush()
    assert bodies(slave) == [b"new", b"newer"]
    assert_whole(slave)
    copy(gone, data[:300], piece=50)
    copy(gone, data[gone.max_physical_offset :])
    assert bodies(gone) == [b"new", b"newer"]


def test_an_empty_queue_file_that_a_power_cut_left_is_no_reason_to_refuse_a_message():
    disk = MemoryDisk()
    copier = LogCopier(open_slave(disk), is_ours=True)
    copier.begin_at(FILE_SIZE)
    copier.take(records((0, {"topic": "U"}), at=FILE_SIZE))
    disk.process_death()
    end = open_slave(disk).max_physical_offset  # notes a checkpoint
    disk.process_death()
    folder = f"{ROOT}/consumequeue/T/0"
    disk.contents[f"{folder}/{0:020d}"] = bytearray()  # its size did not reach the device
    disk.contents[f"{folder}/{400:020d}"] = bytearray(400)
    slave = open_slave(disk)
    copy(slave, records((4, {}), at=end))
    assert bodies(slave) == [b"body"]
    assert slave.min_offset("T", 0) == 4


def test_a_queue_may_begin_anywhere_and_a_message_that_was_refused_makes_no_difference():
    slave = open_slave()
    put(slave)  # makes the queue, empty
    copy(slave, records((41, {"body": b"41"}), (42, {"body": b"42"})))
    assert (slave.min_offset("T", 0), slave.max_offset("T", 0)) == (41, 43)
    assert bodies(slave) == [b"41", b"42"]


def test_half_messages_make_no_unit_and_rolled_back_ones_no_entry():
    slave = open_slave()
    keys = {"properties": b"KEYS\x01k\x02"}
    copy(slave, records((0, {}), (0, {"sys_flag": 4, **keys}), (0, {"sys_flag": 12, **keys})))
    assert slave.max_offset("T", 0) == 1
    slave.index.work(60.0)
    assert len(slave.query_by_key("T", "k", 8, 0, 1 << 60).buffers) == 1


def test_delayed_messages_units_say_when():
    master = open_store()
    put(master, topic="SCHEDULE_TOPIC_XXXX", queue_id=2, properties=b"DELAY\x013\x02",
        tags_code=master.wall_time_ms + 10_000)  # fmt: skip
    master.commit()
    slave = open_slave()
    copy(slave, log_of(master))
    assert slave.tags_codes("SCHEDULE_TOPIC_XXXX", 2, 0) == [master.wall_time_ms + 10_000]


def light(offsets):
    return {
        "properties": b"INNER_MULTI_DISPATCH\1%%LMQ%%a\2INNER_MULTI_QUEUE_OFFSET\1%d\2" % offsets
    }


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(
    ("offsets", "kept", "begin"),
    [
        pytest.param([0, 1, 2], 3, 0, id="as they come"),
        pytest.param([5, 6], 2, 5, id="begun elsewhere"),
        pytest.param([0, 1, 1, 2], 3, 0, id="one twice"),
        pytest.param([0, 1, 4], 5, 0, id="a gap"),
        pytest.param([0, 1, 5000], 1, 5000, id="a large gap"),
        pytest.param([0, 1, 0], 1, 0, id="again"),
    ],
)
def test_offsets_of_light_queues_stop_nothing(sync, offsets, kept, begin):
    disk = MemoryDisk()
    slave = open_slave(disk, sync=sync)
    copy(slave, records(*[(n, light(offset)) for n, offset in enumerate(offsets)]))
    slave.flusher.flush()
    assert slave.min_offset("%LMQ%a", 0) == begin
    assert slave.max_offset("%LMQ%a", 0) == begin + kept
    assert slave.max_offset("T", 0) == len(offsets)
    disk.process_death()
    again = open_slave(disk, sync=sync)
    assert again.max_offset("%LMQ%a", 0) == begin + kept


def batch_master():
    master = open_store()
    master.queue_store.batch_topics.add("B")
    for count in (3, 2):
        messages = [Message("B", b"%d" % n) for n in range(count)]
        refusal, _, _ = master.put_batch(
            "B", 0, encode_batch(messages), b"UNIQ_KEY\x01u\x02", born_timestamp_ms=1,
            born_host=HOST, store_host=HOST,
        )  # fmt: skip
        assert refusal is None
    master.commit()
    return master


@pytest.mark.parametrize("sync", [False, True])
def test_inner_batches_make_batch_queues(sync):
    master, slave = batch_master(), open_slave(sync=sync)
    copy(slave, log_of(master), piece=100)
    slave.flusher.flush()
    assert slave.queue_store.queues["B", 0].is_batch
    assert slave.max_offset("B", 0) == master.max_offset("B", 0) == 5
    assert slave.get_message("B", 0, 3, 32).count == 2
    slave.queue_store.write()
    master.queue_store.write()
    path = f"{ROOT}/batchconsumequeue/B/0/{0:020d}"
    assert slave.disk.contents[path] == master.disk.contents[path]


def test_a_topic_made_again_as_one_of_batches_begins_as_such():
    plain = records((0, {"topic": "B"}), (1, {"topic": "B"}))
    slave = open_slave()
    copy(slave, plain)
    inner = b"INNER_NUM\x012\x02INNER_BASE\x010\x02"
    batch = record(len(plain), 0, b"batch", topic="B", sys_flag=0x84 & ~4, properties=inner)
    copy(slave, batch)
    assert slave.queue_store.queues["B", 0].is_batch
    assert slave.max_offset("B", 0) == 2


def test_batch_queues_may_leave_offsets_out_and_take_them_anew():
    slave = open_slave()
    slave.queue_store.batch_topics.add("B")

    def inner(base, count):
        return {
            "topic": "B",
            "sys_flag": 0x80,
            "properties": b"INNER_NUM\1%d\2INNER_BASE\1%d\2" % (count, base),
        }

    copy(slave, records((0, inner(0, 2)), (0, inner(5, 2)), (0, inner(5, 1))))
    assert slave.max_offset("B", 0) == 6
    assert slave.get_message("B", 0, 0, 32).count == 2 + 1


def test_extension_units_are_made_for_copied_messages():
    master = open_store(enable_consume_queue_ext=True)
    slave = open_slave(enable_consume_queue_ext=True)
    for number in range(3):
        send(master, b"%d" % number, properties=b"TAGS\x01A\x02", tags_code=65)
    copy(slave, log_of(master))
    assert slave.tags_codes("T", 0, 2) == [65]
    assert slave.queue_store.queues["T", 0].unit_at(2)[2] != 65


def test_a_queue_that_cannot_be_is_left_out():
    slave = open_slave()
    copy(slave, records((0, {"queue_id": -5}), (0, {})))
    assert slave.topics() == {"T": [0]}


def test_a_copy_is_begun_midway_only_by_a_store_that_has_nothing():
    slave = open_slave()
    copy(slave, GOOD)
    with pytest.raises(AssertionError, match="begun"):
        slave.copies.begin(FILE_SIZE)
