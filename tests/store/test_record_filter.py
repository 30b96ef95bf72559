"""Gets with a filter on the properties of records: what is answered, passed over, and left."""

from __future__ import annotations

import pytest

from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_codec import RECORD_HEAD, decode_messages, encode_batch
from trocket.store.reading.record_filter import RecordFilter
from trocket.store.status import GetMessageStatus as Status

from .support import HOST, HOST_V6, bodies, open_store, put, send

BIG_QUEUE = {"mapped_file_size_consume_queue": 200_000}


def never_over() -> bool:
    return False


def wants(wanted: bytes) -> RecordFilter:
    return RecordFilter(lambda properties: properties == wanted, never_over)


class Counting:
    """Wants what has one of these properties; over after a number of records."""

    def __init__(self, *wanted: bytes, over_after: int = 1 << 30) -> None:
        self.seen: list[bytes] = []
        self._wanted = wanted
        self._over_after = over_after
        self.filter = RecordFilter(self._matches, lambda: len(self.seen) >= self._over_after)

    def _matches(self, properties: bytes) -> bool:
        self.seen.append(properties)
        return properties in self._wanted


def filled(letters: bytes, **more):
    store = open_store(**BIG_QUEUE)
    for number, letter in enumerate(letters):
        put(store, b"%d" % number, properties=b"x\x01%c\x02" % letter, **more)
    store.commit()
    return store


def found(result) -> list[bytes]:
    return [message.body for buffer in result.buffers for message in decode_messages(buffer)]


def test_only_wanted_records_are_answered_and_the_others_are_passed():
    store = filled(b"abaab")
    assert bodies(store, record_filter=wants(b"x\x01a\x02")) == [b"0", b"2", b"3"]
    assert bodies(store, record_filter=wants(b"x\x01b\x02")) == [b"1", b"4"]
    none = store.get_message("T", 0, 1, 32, record_filter=wants(b""))
    assert (none.status, none.next_begin_offset, none.buffers) == (
        Status.NO_MATCHED_MESSAGE,
        5,
        [],
    )


@pytest.mark.parametrize(
    "more",
    [
        {"born_host": HOST_V6},
        {"store_host": HOST_V6},
        {"born_host": HOST_V6, "store_host": HOST_V6},
        {"topic": "t" * 200},
        {"topic": "t" * 200, "born_host": HOST_V6, "store_host": HOST_V6},
    ],
    ids=lambda more: " ".join(more),
)
def test_properties_are_found_in_every_kind_of_record(more):
    store = filled(b"ab", **more)
    seen = Counting(b"x\x01b\x02")
    result = store.get_message(more.get("topic", "T"), 0, 0, 32, record_filter=seen.filter)
    assert seen.seen == [b"x\x01a\x02", b"x\x01b\x02"]
    assert found(result) == [b"1"]


def test_a_full_answer_ends_before_the_next_wanted_record():
    store = filled(b"a" + b"b" * 5 + b"a" + b"b" * 5 + b"a")
    result = store.get_message("T", 0, 0, 2, record_filter=wants(b"x\x01a\x02"))
    assert (found(result), result.next_begin_offset) == ([b"0", b"6"], 7)
    result = store.get_message("T", 0, 7, 2, record_filter=wants(b"x\x01a\x02"))
    assert (found(result), result.next_begin_offset) == ([b"12"], 13)


def test_tags_codes_are_looked_at_first():
    store = open_store()
    for number, code in enumerate((1, 2, 1, 2)):
        put(store, b"%d" % number, tags_code=code, properties=b"n\x01%d\x02" % (number // 2))
    store.commit()
    seen = Counting(b"n\x011\x02")
    result = store.get_message("T", 0, 0, 32, tags_codes=frozenset({2}), record_filter=seen.filter)
    assert (found(result), result.next_begin_offset) == ([b"3"], 4)
    assert seen.seen == [b"n\x010\x02", b"n\x011\x02"]


def test_one_get_looks_through_a_bounded_number_of_units():
    store = filled(b"b" * 50)
    store.config.max_filter_message_size = 200
    seen = Counting()
    result = store.get_message("T", 0, 3, 5, record_filter=seen.filter)
    assert (result.status, result.next_begin_offset) == (Status.NO_MATCHED_MESSAGE, 13)
    assert len(seen.seen) == 10


@pytest.mark.parametrize("over_after", [0, 1, 7])
def test_a_get_whose_time_is_over_ends_but_not_before_one_record(over_after):
    store = filled(b"b" * 20)
    seen = Counting(over_after=over_after)
    result = store.get_message("T", 0, 4, 32, record_filter=seen.filter)
    looked_at = max(over_after, 1)
    assert (result.status, result.next_begin_offset) == (Status.NO_MATCHED_MESSAGE, 4 + looked_at)
    assert len(seen.seen) == looked_at


def test_what_was_found_before_the_time_was_over_is_answered():
    store = filled(b"bab" + b"a" * 10)
    result = store.get_message(
        "T", 0, 0, 32, record_filter=Counting(b"x\x01a\x02", over_after=3).filter
    )
    assert (found(result), result.next_begin_offset) == ([b"1"], 3)


def test_records_of_before_the_start_are_verified_and_a_damaged_one_is_not_passed_over():
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(5):
        send(store, b"body%d" % number, properties=b"x\x01%c\x02" % b"abbab"[number])
    store.close()
    log = disk.contents["/data/commitlog/" + "0" * 20]
    log[log.index(b"body2")] ^= 1
    store = open_store(disk)
    for letter in (b"a", b"b"):
        wanted = wants(b"x\x01%s\x02" % letter)
        assert store.get_message("T", 0, 0, 32, record_filter=wanted).next_begin_offset == 2
        with pytest.raises(CorruptRecordError, match="message 2 of queue 0"):
            store.get_message("T", 0, 2, 32, record_filter=wanted)
        assert store.get_message("T", 0, 3, 32, record_filter=wanted).next_begin_offset == 5


def test_what_is_no_record_is_given_as_without_a_filter():
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(2):
        send(store, b"body", properties=b"x\x01a\x02")
    size = store.get_message("T", 0, 0, 1).size
    store.close()
    log = disk.contents["/data/commitlog/" + "0" * 20]
    log[size : size + RECORD_HEAD.size] = bytes(RECORD_HEAD.size)
    store = open_store(disk, verify_old_records=False)
    result = store.get_message("T", 0, 0, 32, record_filter=wants(b"nothing"))
    plain = store.get_message("T", 0, 1, 32)
    assert [bytes(b) for b in result.buffers] == [bytes(b) for b in plain.buffers]


def test_records_whose_log_file_is_gone_or_has_no_map_are_handled_as_without_a_filter():
    store = open_store(**BIG_QUEUE)
    for number in range(4):
        send(store, b"%d" % number + bytes(40_000), properties=b"x\x01a\x02")
    view_of = store.log.view
    store.log.view = lambda base: None if base < 131072 else view_of(base)
    result = store.get_message("T", 0, 0, 32, record_filter=wants(b"x\x01a\x02"))
    assert (result.status, result.count, result.next_begin_offset) == (Status.FOUND, 2, 4)
    store.log.view = lambda base: None
    result = store.get_message("T", 0, 0, 32, record_filter=wants(b"x\x01a\x02"))
    assert result.status is Status.MESSAGE_WAS_REMOVING

    def no_room(base):
        if base >= full_from:
            raise StoreIOError("/data", "no room for a map")
        return view_of(base)

    store.log.view = no_room
    full_from = 131072
    result = store.get_message("T", 0, 0, 32, record_filter=wants(b"x\x01a\x02"))
    assert (result.status, result.count, result.next_begin_offset) == (Status.FOUND, 2, 2)
    full_from = 0
    with pytest.raises(StoreIOError, match="no room"):
        store.get_message("T", 0, 0, 32, record_filter=wants(b"x\x01a\x02"))


def test_in_a_queue_of_batches_the_batchs_own_properties_count():
    store = open_store()
    store.queue_store.batch_topics.add("T")
    arguments = {"born_timestamp_ms": 1, "born_host": HOST, "store_host": HOST}
    body = encode_batch([Message("T", b"a"), Message("T", b"b")])
    store.put_batch("T", 0, body, b"UNIQ_KEY\x01k\x02x\x01a\x02", **arguments)
    put(store, b"c", properties=b"x\x01b\x02")
    put(store, b"d", properties=b"x\x01a\x02")
    store.commit()

    def has(part: bytes, over: bool = False) -> RecordFilter:
        return RecordFilter(lambda properties: part in properties, lambda: over)

    first = store.get_message("T", 0, 0, 32, record_filter=has(b"x\x01a"))
    assert (first.status, first.count, first.next_begin_offset) == (Status.FOUND, 3, 4)
    second = store.get_message("T", 0, 0, 32, record_filter=has(b"x\x01b"))
    assert (found(second), second.next_begin_offset) == ([b"c"], 4)
    none = store.get_message("T", 0, 0, 32, record_filter=has(b"y"))
    assert (none.status, none.next_begin_offset) == (Status.NO_MATCHED_MESSAGE, 4)
    over = store.get_message("T", 0, 0, 32, record_filter=has(b"y", over=True))
    assert (over.status, over.next_begin_offset) == (Status.NO_MATCHED_MESSAGE, 2)
