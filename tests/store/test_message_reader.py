"""Statuses and next offsets of getMessage, limits, filters, coalescing."""

from __future__ import annotations

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import BrokerRole
from trocket.store.status import GetMessageStatus as Status

from .support import bodies, open_store, put, send


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        pytest.param(0, Status.OFFSET_TOO_SMALL, 2, id="before the oldest"),
        pytest.param(2, Status.FOUND, 5, id="oldest"),
        pytest.param(5, Status.OFFSET_OVERFLOW_ONE, 5, id="the next to come"),
        pytest.param(6, Status.OFFSET_OVERFLOW_BADLY, 5, id="beyond"),
        pytest.param(-1, Status.OFFSET_TOO_SMALL, 2, id="negative"),
    ],
)
def test_status_and_next_offset_are_apaches(offset, status, next_offset):
    store = open_store()
    for _ in range(5):
        send(store)
    store.queue_store.queues[("T", 0)].min_offset = 2
    result = store.get_message("T", 0, offset, 32)
    assert (result.status, result.next_begin_offset) == (status, next_offset)
    assert (result.min_offset, result.max_offset) == (2, 5)


def test_an_unknown_queue_is_an_empty_one():
    result = open_store().get_message("T", 0, 7, 32)
    assert (result.status, result.next_begin_offset) == (Status.NO_MESSAGE_IN_QUEUE, 0)
    assert result.buffers == []


def test_a_slave_does_not_correct_offsets():
    disk = MemoryDisk()
    master = open_store(disk)
    send(master)
    master.close()
    slave = open_store(disk, broker_role=BrokerRole.SLAVE)
    assert slave.get_message("T", 0, 9, 32).next_begin_offset == 9


def test_a_get_answers_at_most_32_messages_and_256_kib_from_memory():
    store = open_store()
    for _ in range(40):
        send(store, bytes(100))
    assert store.get_message("T", 0, 0, 100).count == 20  # units never cross a queue file's end
    store = open_store(mapped_file_size_consume_queue=20_000)
    for _ in range(40):
        send(store, bytes(100))
    assert store.get_message("T", 0, 0, 100).count == 32
    assert store.get_message("T", 0, 0, 3).count == 3
    for _ in range(40):
        send(store, bytes(20_000), queue_id=1)
    result = store.get_message("T", 1, 0, 100)
    assert result.count == 13
    assert result.size == sum(len(buffer) for buffer in result.buffers) <= 256 * 1024


def test_old_messages_are_answered_8_at_a_time_and_suggest_the_slave():
    store = open_store(access_message_in_memory_max_ratio=0)
    for _ in range(20):
        send(store)
    result = store.get_message("T", 0, 0, 32)
    assert result.count == 8
    assert result.suggest_pulling_from_slave


def test_the_first_message_is_answered_whatever_its_size():
    store = open_store()
    send(store, bytes(5000))
    send(store, bytes(5000))
    assert store.get_message("T", 0, 0, 32, size_max=100).count == 1


def test_only_messages_with_a_wanted_tags_code_are_answered_and_the_others_passed():
    store = open_store()
    for code in (1, 2, 1, -5):
        put(store, b"%d" % code, tags_code=code)
    store.commit()
    assert bodies(store, tags_codes=frozenset({1})) == [b"1", b"1"]
    assert bodies(store, tags_codes=frozenset({-5})) == [b"-5"]
    none = store.get_message("T", 0, 0, 32, tags_codes=frozenset({9}))
    assert (none.status, none.next_begin_offset) == (Status.NO_MATCHED_MESSAGE, 4)


def test_a_queue_extension_address_matches_every_tag():
    store = open_store()
    put(store, tags_code=-(1 << 63) + 34)
    store.commit()
    assert store.get_message("T", 0, 0, 1, tags_codes=frozenset({1})).count == 1


def test_one_get_looks_through_a_bounded_number_of_units():
    store = open_store(mapped_file_size_consume_queue=200_000, max_filter_message_size=200)
    for _ in range(50):
        put(store, tags_code=1)
    store.commit()
    result = store.get_message("T", 0, 0, 5, tags_codes=frozenset({2}))
    assert result.next_begin_offset == 10


def test_neighbours_in_the_log_are_one_buffer():
    store = open_store()
    for queue_id in (0, 0, 0, 1, 0):
        send(store, queue_id=queue_id)
    result = store.get_message("T", 0, 0, 3)
    assert (result.count, len(result.buffers)) == (3, 1)
    result = store.get_message("T", 0, 0, 32)
    assert (result.count, result.size) == (4, sum(map(len, result.buffers)))
    messages = decode_messages(b"".join(result.buffers))
    assert [message.queue_offset for message in messages] == [0, 1, 2, 3]


def test_messages_across_a_file_roll_and_from_file_and_memory_come_in_order():
    store = open_store()
    for number in range(30):
        send(store, b"%02d" % number + bytes(6000))
        if number == 12:
            store.queue_store.write()
    assert [body[:2] for body in bodies(store)] == [b"%02d" % n for n in range(30)]


def test_messages_whose_log_file_is_gone_are_passed():
    store = open_store(mapped_file_size_consume_queue=20_000)
    for number in range(4):
        send(store, b"%d" % number + bytes(40_000))
    view_of = store.log.view
    store.log.view = lambda base: None if base < 131072 else view_of(base)
    result = store.get_message("T", 0, 0, 32)
    assert (result.status, result.count, result.next_begin_offset) == (Status.FOUND, 2, 4)
    store.log.view = lambda base: None
    assert store.get_message("T", 0, 0, 32).status is Status.MESSAGE_WAS_REMOVING


def test_pages_are_dropped_and_maps_close_only_when_unreferenced(tmp_path):
    from trocket.disk.os_disk import OsDisk

    file = OsDisk().open(str(tmp_path / "f"), create=True)
    file.allocate(8192)
    part = file.map()[10:20]
    file.drop_pages()
    assert file.close() is False
    assert bytes(part) == bytes(10)
    part.release()
    assert file.close() is True
