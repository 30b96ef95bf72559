"""The index: which keys are found, what happens to a backlog, what a damaged file can do."""

from __future__ import annotations

import struct

import pytest

from trocket.remoting.java_hash import index_key_hash
from trocket.store import index_service
from trocket.store.format import ENTRY_SIZE
from trocket.store.index_file import IndexFile
from trocket.store.memory_disk import MemoryDisk

from .support import ROOT, open_store, send


def find(store, key, topic="T"):
    while store.index.is_behind:
        store.index.work(1.0)
    found = store.query_by_key(topic, key, 32, 0, 1 << 60)
    return len(found.buffers)


UNIQUE = b"7F0000010A1B2C3D12345678000000"


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        pytest.param(b"UNIQ_KEY\x01" + UNIQUE + b"AB\x02", [UNIQUE + b"AB"], id="5.x ending"),
        pytest.param(b"UNIQ_KEY\x01" + UNIQUE + b"AC", [UNIQUE + b"AC"], id="4.9 ending"),
        pytest.param(
            b"WAIT\x01true\x02UNIQ_KEY\x01" + UNIQUE + b"AD", [UNIQUE + b"AD"], id="not first"
        ),
        pytest.param(
            b"KEYS\x01a b  c\x02UNIQ_KEY\x01u1\x02", [b"a", b"b", b"c", b"u1"], id="several"
        ),
        pytest.param("KEYS\x01schlüssel\x02".encode(), ["schlüssel".encode()], id="not ASCII"),
        pytest.param(
            "UNIQ_KEY\x01schlüssel\x02".encode(), ["schlüssel".encode()], id="unique, not ASCII"
        ),
        pytest.param(b"UNIQ_KEY\x01abcdefgh\x02UNIQ_KEY\x01zz\x02", [b"zz"], id="the last counts"),
    ],
)
def test_keys_are_found(properties, keys):
    store = open_store()
    send(store, properties=properties)
    for key in keys:
        assert find(store, key.decode()) == 1
    assert find(store, "something else") == 0
    assert store.index.files[0].index_count == 1 + len(keys)


def test_a_property_that_only_ends_like_a_key_is_none():
    store = open_store()
    send(store, properties=b"MY_UNIQ_KEY\x01abcdefgh\x02MY_KEYS\x01abcd\x02")
    assert find(store, "abcdefgh") == find(store, "abcd") == 0
    assert store.index.files == []


def test_the_fast_way_and_the_codec_hash_alike():
    store = open_store()
    for number in range(40):
        key = UNIQUE + b"%02X" % (number * 7 % 256)
        send(store, topic=f"Topic{number % 3}", properties=b"UNIQ_KEY\x01" + key)
    assert find(store, "x") == 0
    index_file = store.index.files[0]
    for number in range(40):
        text = f"Topic{number % 3}#{UNIQUE.decode()}{number * 7 % 256:02X}"
        assert index_file._entry(number + 1)[0] == index_key_hash(text)


def test_a_backlog_too_large_is_read_from_the_log_instead(monkeypatch):
    monkeypatch.setattr(index_service, "BACKLOG_COUNT_MAX", 3)
    store = open_store()
    for number in range(30):
        send(store, properties=b"KEYS\x01k%d\x02" % number)
    assert [find(store, f"k{number}") for number in range(30)] == [1] * 30


def test_messages_sent_while_the_log_is_read_are_found_too():
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(300):
        send(store, properties=b"KEYS\x01k%d\x02" % number)
    disk.process_death()
    store = open_store(disk)
    assert store.index.is_behind
    store.index.work(0.0)
    for number in range(300, 320):
        send(store, properties=b"KEYS\x01k%d\x02" % number)
    assert [find(store, f"k{number}") for number in range(320)] == [1] * 320


def test_a_query_minds_store_times():
    store = open_store()
    begin = store.now_ms
    for _ in range(3):
        send(store, properties=b"KEYS\x01k\x02")
        store.clock.advance(10_000)
        store.begin_burst()
    while store.index.is_behind:
        store.index.work(1.0)
    found = store.query_by_key("T", "k", 32, begin + 5_000, begin + 15_000)
    assert len(found.buffers) == 1
    assert found.index_last_update_timestamp_ms == begin + 20_000
    assert len(store.query_by_key("T", "k", 2, 0, 1 << 60).buffers) == 2


def test_a_cycle_in_a_damaged_file_ends_the_search():
    disk = MemoryDisk()
    disk.make_folder("/i")
    file = IndexFile(disk, "/i/1", slot_count=1, index_count_max=10)
    file.create(end_physical_offset=0, end_timestamp_ms=0)
    assert file.put_many([(5, 100, 1000), (6, 200, 1000), (5, 300, 1000)]) == 3
    file.finish()
    entry_2 = file.entries_position + 2 * ENTRY_SIZE
    disk.contents["/i/1"][entry_2 + 16 : entry_2 + 20] = struct.pack(">i", 3)
    damaged = IndexFile(disk, "/i/1", slot_count=1, index_count_max=10)
    assert damaged.load()
    found = []
    damaged.select(5, found, 10, 0, 10_000)
    assert found == [300]


def test_a_file_of_other_counts_is_removed_and_built_again():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, properties=b"KEYS\x01k\x02")
    store.close()
    again = open_store(disk, max_index_num=99)
    assert find(again, "k") == 1
    assert len(disk.list(f"{ROOT}/index")) == 1


def test_no_index_is_built_when_it_is_switched_off():
    disk = MemoryDisk()
    store = open_store(disk, message_index_enable=False)
    send(store, properties=b"KEYS\x01k\x02")
    assert find(store, "k") == 0
    store.close()
    assert disk.list(f"{ROOT}/index") == []
