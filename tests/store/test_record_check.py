"""What was there before the store was opened is verified when it is served."""

from __future__ import annotations

import errno
import struct

import pytest

from trocket.common.java_hash import tags_code
from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_batch import encode_batch
from trocket.remoting.message_codec import decode_messages, decode_record
from trocket.store.format import BATCH_UNIT, UNIT
from trocket.store.status import BoundaryType
from trocket.store.status import GetMessageStatus as Status

from .support import HOST, ROOT, bodies, open_store, physical_offset_of, put, send

LOG = f"{ROOT}/commitlog/{0:020d}"
QUEUE = f"{ROOT}/consumequeue/T/0/{0:020d}"
TAGGED = b"TAGS\x01a\x02KEYS\x01key\x02"
COUNT = 6


def opened(count=COUNT, **options):
    """A store that was closed with messages in it, opened again."""
    disk = MemoryDisk()
    store = open_store(disk, **options)
    for number in range(count):
        send(store, b"body %d" % number, properties=TAGGED, tags_code=tags_code("a"))
    store.close()
    return open_store(disk, **options), disk


def flip(disk, path, position, mask=1):
    disk.contents[path][position] ^= mask


# Bytes of a record: where its fields begin (docs/formats/commit_log.md).
FIELDS = {
    "the size's lowest bit": (3, 1),
    "a larger size": (2, 8),
    "a size beyond the file": (0, 0x40),
    "magic": (7, 1),
    "body CRC": (11, 1),
    "queue id": (15, 1),
    "queue offset": (27, 1),
    "physical offset": (35, 1),
    "an address of IPv6": (39, 0x10),
    "body length": (87, 1),
    "body": (90, 1),
    "topic length": (94, 1),
    "topic": (95, 1),
    "properties length": (97, 1),
    "tags": (103, 1),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_record_is_refused_and_its_neighbours_are_served(field):
    store, disk = opened()
    at = physical_offset_of(store, 3)
    position, mask = FIELDS[field]
    flip(disk, LOG, at + position, mask)
    for wanted in (None, frozenset({tags_code("a")})):
        before = store.get_message("T", 0, 0, 32, tags_codes=wanted)
        assert (before.status, before.count, before.next_begin_offset) == (Status.FOUND, 3, 3)
        with pytest.raises(CorruptRecordError, match=r"message 3 of queue 0 of topic T") as caught:
            store.get_message("T", 0, 3, 32, tags_codes=wanted)
        assert (caught.value.path, caught.value.physical_offset) == (LOG, at)
        assert "trocket store repair" in str(caught.value)
        after = store.get_message("T", 0, 4, 32, tags_codes=wanted)
        assert (after.count, after.next_begin_offset) == (2, 6)


UNITS = {
    "another offset": lambda at, size, code: (at + 1, size, code),
    "another record's offset": lambda at, size, code: (0, size, code),
    "an offset behind the log": lambda at, size, code: (at + (1 << 40), size, code),
    "a negative offset": lambda at, size, code: (-at, size, code),
    "another size": lambda at, size, code: (at, size + 1, code),
    "a size of nothing": lambda at, size, code: (at, 0, code),
    "a negative size": lambda at, size, code: (at, -size, code),
    "a size beyond the log": lambda at, size, code: (at, 1 << 20, code),
    "another tags code": lambda at, size, code: (at, size, code + 1),
    "no tags code": lambda at, size, code: (at, size, 0),
    "never written": lambda at, size, code: (0, 0, 0),
    "a hole": lambda at, size, code: (0, 0x7FFFFFFF, 0),
}


@pytest.mark.parametrize("wanted", [None, frozenset({tags_code("a")}), frozenset({5})])
@pytest.mark.parametrize("change", UNITS)
def test_a_changed_unit_is_refused_whatever_tags_are_wanted(change, wanted):
    store, disk = opened()
    unit = UNIT.unpack_from(disk.contents[QUEUE], 60)
    UNIT.pack_into(disk.contents[QUEUE], 60, *UNITS[change](*unit))
    before = store.get_message("T", 0, 0, 32, tags_codes=wanted)
    assert before.next_begin_offset == 3
    assert before.count == (0 if wanted == frozenset({5}) else 3)
    with pytest.raises(CorruptRecordError, match="message 3 of queue 0 of topic T"):
        store.get_message("T", 0, 3, 32, tags_codes=wanted)
    assert store.get_message("T", 0, 4, 32, tags_codes=wanted).next_begin_offset == 6


@pytest.mark.parametrize(
    ("properties", "right", "wrong"),
    [
        pytest.param(b"", None, "a", id="no properties"),
        pytest.param(b"KEYS\x01a\x02", None, "a", id="no tags"),
        pytest.param(b"MY_TAGS\x01a\x02", None, "a", id="only the end of the name"),
        pytest.param(b"TAGS\x01a\x02TAGS\x01b\x02", "b", "a", id="the last counts"),
        pytest.param(b"TAGS\x01a\x02TAGS\x01\x02", "a", None, id="one without a value does not"),
        pytest.param(b"TAGS\x01a", "a", None, id="the last property, as 4.9 ends it"),
        pytest.param("TAGS\x01ключ\x02".encode(), "ключ", "a", id="not ASCII"),
    ],
)
def test_the_tags_code_of_a_unit_must_be_that_of_its_record(properties, right, wrong):
    disk = MemoryDisk()
    store = open_store(disk)
    for code in (right, wrong):
        send(store, properties=properties, tags_code=tags_code(code))
    store.close()
    store = open_store(disk)
    assert store.get_message("T", 0, 0, 32).count == 1
    with pytest.raises(CorruptRecordError, match="tags"):
        store.get_message("T", 0, 1, 32)


def test_what_was_put_since_is_served_without_a_look_at_the_disk():
    store, disk = opened()
    send(store, b"new")
    disk.fault = lambda name, path: OSError(errno.EIO, "") if name == "pread" else None
    assert store.get_message("T", 0, COUNT, 32).count == 1


def test_old_and_new_come_in_one_answer():
    store, disk = opened()
    send(store, b"new", tags_code=77)  # not the code of its properties, which a put does not check
    assert bodies(store) == [b"body %d" % number for number in range(COUNT)] + [b"new"]
    flip(disk, LOG, physical_offset_of(store, 5) + 90)
    assert store.get_message("T", 0, 0, 32).count == 5
    assert store.get_message("T", 0, 6, 32).count == 1


def test_nothing_is_verified_when_that_is_switched_off():
    store, disk = opened(verify_old_records=False)
    flip(disk, LOG, physical_offset_of(store, 3) + 90)
    assert store.get_message("T", 0, 0, 32).count == COUNT
    assert store.message_at(physical_offset_of(store, 3)) is not None


def test_a_queue_made_again_has_no_old_messages():
    store, disk = opened()
    store.delete_topics(["T"])
    send(store, b"new")
    disk.fault = lambda name, path: OSError(errno.EIO, "") if name == "pread" else None
    assert bodies(store) == [b"new"]


def test_a_device_that_cannot_read_is_an_error_where_the_answer_would_begin():
    store, disk = opened()
    calls = []

    def fault(name, path):
        if name == "pread" and path == LOG:
            calls.append(path)
            return OSError(errno.EIO, "") if len(calls) >= 3 else None
        return None

    disk.fault = fault
    assert store.get_message("T", 0, 0, 32).count == 2
    with pytest.raises(StoreIOError, match="device failed"):
        store.get_message("T", 0, 2, 32)


def test_the_crc_of_the_whole_record_counts_where_there_is_one():
    store, disk = opened(1, enabled_append_prop_crc=True)
    assert store.get_message("T", 0, 0, 1).count == 1
    flip(disk, LOG, 45)  # the time of birth, which nothing else protects
    with pytest.raises(CorruptRecordError, match="CRC of the record"):
        store.get_message("T", 0, 0, 1)
    with pytest.raises(CorruptRecordError, match="CRC of the record"):
        store.message_at(0)


def test_units_of_delayed_messages_hold_a_time_and_no_tags_code():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, topic="SCHEDULE_TOPIC_XXXX", properties=b"TAGS\x01a\x02", tags_code=1 << 40)
    store.close()
    assert bodies(open_store(disk), "SCHEDULE_TOPIC_XXXX") == [b"body"]


def lmq_store(properties):
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, topic="T", queue_id=3, properties=properties)
    disk.process_death()
    for name in disk.list(f"{ROOT}/consumequeue"):
        disk.remove_folder(f"{ROOT}/consumequeue/{name}")
    disk.unlink(f"{ROOT}/checkpoint")
    return open_store(disk), disk


def test_a_message_dispatched_to_other_queues_too_is_served_from_them():
    store, disk = lmq_store(
        b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x010,0\x02"
    )
    assert bodies(store, "%LMQ%a") == bodies(store, "%LMQ%b") == [b"body"]
    flip(disk, LOG, disk.contents[LOG].index(b"%LMQ%a"))
    with pytest.raises(CorruptRecordError, match="does not name this queue"):
        store.get_message("%LMQ%a", 0, 0, 1)
    flip(disk, LOG, disk.contents[LOG].index(b"0,0\x02"))
    with pytest.raises(CorruptRecordError, match="does not name this queue"):
        store.get_message("%LMQ%a", 0, 0, 1)


def test_a_queue_file_that_is_gone_is_damage_and_not_the_end():
    store, _ = opened(30)
    store.queue_store.files.remove(f"{ROOT}/consumequeue/T/0/{0:020d}")
    queue = store.queue_store.queues["T", 0]
    queue.file_offsets.remove(0)
    with pytest.raises(CorruptRecordError, match="message 3 of queue 0 of topic T has no unit"):
        store.get_message("T", 0, 3, 32)
    assert store.get_message("T", 0, 20, 32).count == 10


def roll(store, files):
    """Messages of half a file each; two of them fit one file."""
    for number in range(2 * files):
        send(store, b"%d" % number + bytes(30_000))


def test_units_whose_log_file_was_cleaned_away_are_passed():
    disk = MemoryDisk()
    store = open_store(disk)
    roll(store, 3)
    store.close()
    store = open_store(disk)
    store.log.detach(0)
    result = store.get_message("T", 0, 0, 32)
    assert (result.status, result.count, result.next_begin_offset) == (Status.FOUND, 4, 6)
    store.queue_store.queues["T", 0].correct_min_offset(store.log.min_offset)
    assert store.get_message("T", 0, 0, 32).status is Status.OFFSET_TOO_SMALL


def test_a_unit_that_only_says_that_its_message_was_cleaned_away_is_refused():
    disk = MemoryDisk()
    store = open_store(disk)
    roll(store, 3)
    store.close()
    store = open_store(disk)
    store.log.detach(0)
    store.queue_store.queues["T", 0].correct_min_offset(store.log.min_offset)
    size = UNIT.unpack_from(disk.contents[QUEUE], 80)[1]
    UNIT.pack_into(disk.contents[QUEUE], 80, 0, size, 0)
    store.queue_store.files.drop_pages()
    assert store.get_message("T", 0, 2, 32).next_begin_offset == 4
    with pytest.raises(CorruptRecordError, match="message 4"):
        store.get_message("T", 0, 4, 32)


# By time


def test_times_of_damaged_messages_are_not_told():
    store, disk = opened()
    flip(disk, LOG, physical_offset_of(store, 0) + 35)
    with pytest.raises(CorruptRecordError, match="message 0"):
        store.store_time_at("T", 0, 0)
    assert store.store_time_at("T", 0, 1) > 0
    with pytest.raises(CorruptRecordError, match="message 0"):
        store.earliest_store_time("T", 0)


@pytest.mark.parametrize("bad", [{2}, {3}, {0, 1, 2, 3}, {2, 3, 4, 5}, {1, 3, 5}, set(range(6))])
def test_a_search_by_time_passes_nothing_over(bad):
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(COUNT):
        store.clock.advance(1000)
        store.begin_burst()
        send(store)
    store.close()
    store = open_store(disk)
    times = [store.store_time_at("T", 0, number) for number in range(COUNT)]
    for number in bad:
        UNIT.pack_into(disk.contents[QUEUE], number * 20, 0, 0x7FFFFFFF, 0)
    for number, time_ms in enumerate(times):
        found = store.offset_by_time("T", 0, time_ms)
        assert found <= number
        assert found == number or set(range(found, number)) & bad == set(range(found, number))
        assert store.offset_by_time("T", 0, time_ms, BoundaryType.UPPER) <= number


# By physical offset and by key


def test_a_record_asked_for_by_its_place_is_verified_too():
    store, disk = opened()
    at = physical_offset_of(store, 3)
    assert decode_record(store.message_at(at)).body == b"body 3"
    assert store.message_at(at + 1) is None
    flip(disk, LOG, at + 90)
    with pytest.raises(CorruptRecordError, match="the record here is damaged"):
        store.message_at(at)
    flip(disk, LOG, at + 90)
    flip(disk, LOG, at + 35)
    assert store.message_at(at) is None


def test_a_look_up_by_key_answers_no_damaged_message_and_does_not_pass_over_it():
    store, disk = opened()
    at = physical_offset_of(store, 3)
    assert len(store.query_by_key("T", "key", 32, 0, 1 << 60).buffers) == COUNT
    for position in (90, 35):  # the body; the offset, so that there seems to be no record
        flip(disk, LOG, at + position)
        with pytest.raises(CorruptRecordError) as caught:
            store.query_by_key("T", "key", 32, 0, 1 << 60)
        assert caught.value.physical_offset == at
        flip(disk, LOG, at + position)


def test_a_look_up_by_key_answers_only_what_has_the_key():
    store, disk = opened(1)
    put(store, b"of another topic", topic="U", properties=TAGGED)
    put(store, b"unique", properties=b"UNIQ_KEY\x01the key\x02")
    store.commit()
    while store.index.is_behind:
        store.index.work(1.0)
    entry = store.index.files[0].entries_position + 20
    store.close()
    store = open_store(disk)
    (found,) = store.query_by_key("T", "the key", 32, 0, 1 << 60).buffers
    assert decode_messages(found)[0].body == b"unique"
    (path,) = [path for path in disk.contents if "/index/" in path]
    disk.contents[path][entry + 4 : entry + 12] = struct.pack(">q", physical_offset_of(store, 1))
    assert store.query_by_key("T", "key", 32, 0, 1 << 60).buffers == []


def test_messages_that_were_cleaned_away_are_left_out_of_a_look_up():
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(4):
        send(store, bytes(30_000), properties=TAGGED)
    store.close()
    store = open_store(disk)
    store.log.detach(0)
    assert len(store.query_by_key("T", "key", 32, 0, 1 << 60).buffers) == 2


# Queues of batches

BATCH_QUEUE = f"{ROOT}/batchconsumequeue/T/0/{0:020d}"


def opened_batches():
    """Five inner batches of three messages each, there before the store was opened."""
    disk = MemoryDisk()
    store = open_store(disk)
    store.queue_store.batch_topics.add("T")
    for _ in range(5):
        body = encode_batch([Message("T", b"x")] * 3)
        hosts = {"born_timestamp_ms": 1, "born_host": HOST, "store_host": HOST}
        properties = b"UNIQ_KEY\x01AB\x02TAGS\x01a\x02"
        assert store.put_batch("T", 0, body, properties, **hosts)[0] is None
        store.commit()
    store.close()
    return open_store(disk), disk


BATCH_UNITS = {
    "another offset": {0: lambda old: old + 1},
    "another record's offset": {0: lambda old: 0},
    "an offset behind the log": {0: lambda old: old + (1 << 40)},
    "another size": {1: lambda old: old + 1},
    "another tags code": {2: lambda old: old + 1},
    "another time": {3: lambda old: old + 1},
    "a lower base offset": {4: lambda old: old - 1},
    "a base offset of nothing": {4: lambda old: 0},
    "a higher base offset": {4: lambda old: old + 1},
    "a far higher base offset": {4: lambda old: old + 1000},
    "fewer messages": {5: lambda old: old - 1},
    "more messages": {5: lambda old: old + 1},
}


def readable(store, wanted):
    """Base offsets of the records that gets at every offset answer; errors are none."""
    found = set()
    for queue_offset in range(15):
        try:
            result = store.get_message("T", 0, queue_offset, 100, tags_codes=wanted)
        except CorruptRecordError:
            continue
        assert result.next_begin_offset > queue_offset
        for buffer in result.buffers:
            record = decode_record(buffer)
            base = int(record.properties["INNER_BASE"])
            assert base <= queue_offset or queue_offset % 3 == 0 or found
            found.add(base)
    return found


@pytest.mark.parametrize("wanted", [None, frozenset({tags_code("a")})])
@pytest.mark.parametrize("change", BATCH_UNITS)
def test_a_changed_unit_of_a_batch_is_refused(change, wanted):
    store, disk = opened_batches()
    assert readable(store, wanted) == {0, 3, 6, 9, 12}
    unit = list(BATCH_UNIT.unpack_from(disk.contents[BATCH_QUEUE], 46 * 2))
    for position, changed in BATCH_UNITS[change].items():
        unit[position] = changed(unit[position])
    BATCH_UNIT.pack_into(disk.contents[BATCH_QUEUE], 46 * 2, *unit)
    for queue_offset in (6, 7, 8):
        with pytest.raises(CorruptRecordError):
            store.get_message("T", 0, queue_offset, 100, tags_codes=wanted)
    before = store.get_message("T", 0, 0, 100, tags_codes=wanted)
    assert before.next_begin_offset == 6
    assert 6 not in readable(store, wanted)


def test_a_changed_record_of_a_batch_is_refused_and_those_before_it_are_served():
    store, disk = opened_batches()
    at = physical_offset_of(store, 6)
    flip(disk, LOG, at + 90)
    assert store.get_message("T", 0, 0, 100).count == 6
    with pytest.raises(CorruptRecordError, match="message 6 of queue 0 of topic T"):
        store.get_message("T", 0, 7, 100)
    assert store.get_message("T", 0, 9, 100).count == 6


def test_new_batches_are_served_without_a_look_at_the_disk():
    store, disk = opened_batches()
    store.close()
    store = open_store(disk)
    put(store, b"new")
    store.commit()
    disk.fault = lambda name, path: (
        OSError(errno.EIO, "") if name == "pread" and path == LOG else None
    )
    assert store.get_message("T", 0, 15, 100).count == 1
