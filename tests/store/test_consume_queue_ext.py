"""Consume queue extensions: units by address, in memory, in files, after a crash, and Apache's."""

from __future__ import annotations

import errno
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.clock import ManualClock
from trocket.common.java_hash import tags_code
from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore
from trocket.store.queues.consume_queue import QueueFiles
from trocket.store.queues.consume_queue_ext import (
    EXT_ADDRESS_MAX,
    ConsumeQueueExt,
    ExtendedConsumeQueue,
    ExtUnit,
    is_ext_address,
)

from .support import ROOT, open_store, physical_offset_of, put, send, small_config

FOLDER = "/e/T/0"
EXT_FOLDER = f"{ROOT}/consumequeue_ext/T/0"
FIRST = -(1 << 63)


def ext_on(disk, file_size=100):
    ext = ConsumeQueueExt(FOLDER, QueueFiles(disk, file_size))
    ext.load()
    return ext


def unit(number, bits=4):
    return ExtUnit(number, 1000 + number, bytes(bits) or None)


# ---- units and addresses ------------------------------------------------------------------------


@given(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.binary(max_size=300),
)
def test_a_unit_reads_back_from_its_bytes(code, timestamp_ms, bit_map):
    made = ExtUnit(code, timestamp_ms, bit_map or None)
    data = made.to_bytes()
    assert len(data) == 20 + len(bit_map)
    assert ExtUnit.from_bytes(b"xy" + data + b"z", 2) == made
    assert ExtUnit.from_bytes(data[:-1], 0) is None


@pytest.mark.parametrize(
    "data", [bytes(30), b"\xff\xff" + bytes(30), b"\0\x15" + bytes(30), b"\x7f\xff" + bytes(30)]
)
def test_bytes_that_are_no_unit_are_none(data):
    assert ExtUnit.from_bytes(data, 0) is None


def test_tags_codes_are_never_taken_for_addresses():
    assert not is_ext_address(-(1 << 31))
    assert not is_ext_address((1 << 31) - 1)
    assert is_ext_address(EXT_ADDRESS_MAX)
    assert is_ext_address(FIRST)


@pytest.mark.parametrize("written", [0, 1, 3, 4, 5, 9])
def test_units_are_found_by_address_in_memory_and_in_files(written):
    ext = ext_on(MemoryDisk())
    addresses = [ext.append(unit(number)) for number in range(9)]
    assert addresses[:5] == [FIRST + at for at in (0, 24, 48, 72, 100)]
    ends = [*(address - FIRST for address in addresses), ext.end]
    ext.write(ends[written])
    assert [ext.unit_at(address) for address in addresses] == [unit(n) for n in range(9)]
    read = ext.reader()
    assert [read(address) for address in addresses] == [unit(n) for n in range(9)]
    assert ext.unit_at(FIRST + 5) is None
    assert ext.unit_at(FIRST + 1000) is None


def test_a_file_ends_in_a_mark_where_the_next_unit_has_no_room():
    disk = MemoryDisk()
    ext = ext_on(disk)
    for number in range(4):
        ext.append(unit(number, 5))
    ext.write(ext.end)
    assert disk.list(FOLDER) == [f"{0:020d}", f"{100:020d}"]
    assert disk.contents[f"{FOLDER}/{0:020d}"][75:] == b"\xff\xff" + bytes(23)
    assert disk.contents[f"{FOLDER}/{100:020d}"] == unit(3, 5).to_bytes() + bytes(75)


def test_four_bytes_stay_free_at_the_end_of_a_file():
    ext = ext_on(MemoryDisk())
    assert ext.append(unit(1, 76)) == FIRST  # 96 of 100
    assert ext.append(unit(1, 0)) == FIRST + 100
    assert ext_on(MemoryDisk()).append(unit(1, 77)) is None


def test_a_large_unit_is_read_whole():
    ext = ext_on(MemoryDisk(), file_size=1 << 17)
    large = unit(7, 0x7FFF - 20)
    addresses = [ext.append(u) for u in (unit(1), large, unit(2))]
    assert ext.append(unit(7, 0x7FFF - 19)) is None
    for until in (0, ext.end):
        ext.write(until)
        assert ext.unit_at(addresses[1]) == large
        read = ext.reader()
        assert [read(address) for address in addresses] == [unit(1), large, unit(2)]


def test_a_cut_leaves_zeros_behind_it():
    disk = MemoryDisk()
    ext = ext_on(disk)
    for number in range(12):
        ext.append(unit(number))
    ext.write(ext.end - 24)
    ext.cut(48)
    assert disk.list(FOLDER) == [f"{0:020d}"]
    kept = unit(0).to_bytes() + unit(1).to_bytes()
    assert disk.contents[f"{FOLDER}/{0:020d}"] == kept + bytes(52)
    assert ext.append(unit(9)) == FIRST + 48
    assert ext.unit_at(FIRST + 48) == unit(9)


def test_a_file_that_was_being_made_in_a_crash_does_no_harm():
    disk = MemoryDisk()
    ext = ext_on(disk)
    ext.append(unit(0))
    ext.write(ext.end)
    disk.open(f"{FOLDER}/{100:020d}", create=True)
    again = ext_on(disk)
    again.cut(again.end_of(FIRST))
    assert again.end == 24
    assert disk.list(FOLDER) == [f"{0:020d}"]


def test_files_of_another_size_are_refused_and_the_key_is_named():
    disk = MemoryDisk()
    ext = ext_on(disk)
    for number in range(6):
        ext.append(unit(number))
    ext.write(ext.end)
    with pytest.raises(CorruptRecordError, match="mappedFileSizeConsumeQueueExt"):
        ext_on(disk, file_size=200)


def test_the_address_of_a_lost_unit_is_never_given_again():
    disk = MemoryDisk()
    ext = ext_on(disk)
    for number in range(3):
        ext.append(unit(number))
    ext.write(ext.end)
    disk.contents[f"{FOLDER}/{0:020d}"][48:72] = bytes(24)
    again = ext_on(disk)
    again.cut(again.end_of(FIRST + 48))
    assert again.unit_at(FIRST + 48) is None
    assert again.append(unit(9)) == FIRST + 100


def test_only_files_wholly_before_an_address_are_removed():
    disk = MemoryDisk()
    ext = ext_on(disk)
    addresses = [ext.append(unit(number)) for number in range(12)]
    ext.write(ext.end)
    ext.remove_before(addresses[7])
    assert disk.list(FOLDER) == [f"{100:020d}", f"{200:020d}"]
    assert ext.unit_at(addresses[3]) is None
    assert ext.unit_at(addresses[4]) == unit(4)
    ext.remove_before(addresses[8])
    assert disk.list(FOLDER) == [f"{200:020d}"]


# ---- through the store ---------------------------------------------------------------------------


def bit_map_of(topic, properties):
    return topic.encode() + properties[:3] if properties else None


def ext_store(disk=None, **more):
    config = small_config(
        enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=200, **more
    )
    disk = disk or MemoryDisk()
    store = MessageStore(config, clock=ManualClock(), disk=disk, memory_bytes=1 << 30)
    store.queue_store.bitmap_of = bit_map_of
    store.load()
    return store


def queue_of(store):
    queue = store.queue_store.queues["T", 0]
    assert isinstance(queue, ExtendedConsumeQueue)
    return queue


def send_tagged(store, number):
    """A message with the tag `t<number>`."""
    return send(store, properties=b"TAGS\x01t%d\x02" % number, tags_code=code_of(number))


def code_of(number):
    return tags_code(f"t{number}")


def stored_codes(store):
    queue = queue_of(store)
    offsets = range(queue.min_offset, queue.max_offset)
    return [queue.unit_at(offset)[2] for offset in offsets]


def check(store, codes):
    """The units are addresses in rising order, and lead to these tags codes."""
    queue = queue_of(store)
    stored = stored_codes(store)
    assert all(is_ext_address(code) for code in stored)
    assert stored == sorted(stored)
    assert [queue.real_tags_code(code) for code in stored] == codes


def test_each_message_gets_a_unit_and_is_filtered_by_its_real_tags_code():
    disk = MemoryDisk()
    store = ext_store(disk)
    for number in range(18):
        send(store, b"%d" % number, tags_code=number % 3, properties=b"a\x01b")
    for _ in range(2):
        check(store, [number % 3 for number in range(18)])
        assert store.get_message("T", 0, 0, 32, tags_codes=frozenset({1})).count == 6
        assert store.get_message("T", 0, 0, 32, tags_codes=frozenset({3})).count == 0
        assert store.get_message("T", 0, 0, 32).count == 18
        store.queue_store.write()
    found = queue_of(store).ext.unit_at(stored_codes(store)[4])
    assert found == ExtUnit(1, store.store_time_at("T", 0, 4), b"Ta\x01b")
    store.close()


def test_what_was_stopped_goes_on_with_new_addresses():
    disk = MemoryDisk()
    for start in (0, 7, 14):
        store = ext_store(disk)
        for number in range(start, start + 7):
            send(store, tags_code=number)
        check(store, list(range(start + 7)))
        store.close()


@pytest.mark.parametrize("lost", ["nothing", "queue", "extension", "both"])
def test_after_a_kill_units_are_made_again_from_the_log(lost):
    disk = MemoryDisk()
    store = ext_store(disk)
    tags = [b"TAGS\x01t%d\x02" % number for number in range(12)]
    codes = [tags_code(f"t{number}") for number in range(12)]
    for text, code in zip(tags, codes, strict=True):
        send(store, properties=text, tags_code=code)
    store.queue_store.write()
    disk.process_death()
    if lost in ("queue", "both"):
        disk.remove_folder(f"{ROOT}/consumequeue")
    if lost in ("extension", "both"):
        disk.remove_folder(f"{ROOT}/consumequeue_ext")
    again = ext_store(disk)
    check(again, codes)
    end = send(again, properties=b"TAGS\x01new\x02", tags_code=tags_code("new"))
    assert end == 12
    check(again, [*codes, tags_code("new")])
    again.close()


def test_units_behind_the_checkpoint_get_their_old_addresses_again():
    disk = MemoryDisk()
    store = ext_store(disk)
    for number in range(5):
        send_tagged(store, number)
    store.close()
    store = ext_store(disk)
    for number in range(5, 12):
        send_tagged(store, number)
    store.queue_store.write()
    before = stored_codes(store)
    disk.process_death()
    again = ext_store(disk)
    assert stored_codes(again) == before
    check(again, [code_of(number) for number in range(12)])
    again.close()


def test_a_failed_commit_leaves_no_unit_of_it():
    disk = MemoryDisk()
    store = ext_store(disk)
    for number in range(5):
        send(store, tags_code=number)
    end = queue_of(store).ext.end
    for number in range(5):
        put(store, tags_code=90 + number)
    failures = iter([OSError(errno.ENOSPC, "full")])
    disk.fault = lambda name, _: next(failures, None) if name == "pwrite" else None
    with pytest.raises(StoreIOError):
        store.commit()
    assert queue_of(store).ext.end == end
    for number in range(5, 9):
        send(store, tags_code=number)
    check(store, list(range(9)))
    store.queue_store.write()
    check(store, list(range(9)))
    store.close()


def test_units_not_visible_yet_do_not_reach_the_files():
    disk = MemoryDisk()
    store = ext_store(disk)
    send(store, tags_code=1)
    put(store, tags_code=2)
    store.queue_store.write()
    first = ExtUnit(1, store.store_time_at("T", 0, 0), None).to_bytes()
    assert disk.contents[f"{EXT_FOLDER}/{0:020d}"] == first.ljust(200, b"\0")
    store.commit()
    store.queue_store.write()
    check(store, [1, 2])
    store.close()


def test_the_extension_reaches_its_file_before_an_address_of_it_does():
    disk = MemoryDisk()
    store = ext_store(disk)
    send(store, tags_code=1)
    written = []

    def note(name, path):
        if name == "pwrite":
            written.append(path)

    disk.fault = note
    store.queue_store.write()
    assert [path.split("/")[2] for path in written] == ["consumequeue_ext", "consumequeue"]
    assert f"{EXT_FOLDER}/{0:020d}" in store.queue_store.take_unsynced()
    store.close()


def test_with_the_key_off_old_units_are_read_and_no_new_ones_written():
    disk = MemoryDisk()
    store = ext_store(disk)
    for number in range(4):
        send_tagged(store, number)
    store.close()
    store = open_store(disk, mapped_file_size_consume_queue_ext=200)
    for number in range(4, 8):
        send_tagged(store, number)
    assert [is_ext_address(code) for code in stored_codes(store)] == [True] * 4 + [False] * 4
    wanted = frozenset({code_of(2), code_of(5)})
    assert store.get_message("T", 0, 0, 32, tags_codes=wanted).count == 2
    assert send(store, b"x", topic="Other") == 0
    assert not isinstance(store.queue_store.queues["Other", 0], ExtendedConsumeQueue)
    store.close()
    store = ext_store(disk)  # on again: the gap between old and new addresses does no harm
    for number in range(8, 12):
        send_tagged(store, number)
    found = [queue_of(store).real_tags_code(code) for code in stored_codes(store)]
    assert found == [code_of(number) for number in range(12)]
    store.close()


def test_messages_whose_extension_is_lost_pass_every_filter():
    disk = MemoryDisk()
    store = ext_store(disk)
    for number in range(4):
        send_tagged(store, number)
    second = stored_codes(store)[1] - FIRST
    store.close()
    disk.contents[f"{EXT_FOLDER}/{0:020d}"][second : second + 20] = bytes(20)
    store = ext_store(disk)
    assert store.get_message("T", 0, 0, 32, tags_codes=frozenset({code_of(3)})).count == 2
    assert queue_of(store).real_tags_code(stored_codes(store)[1]) is None
    store.close()


def test_a_message_with_too_large_a_bit_map_keeps_its_tags_code():
    store = ext_store()
    store.queue_store.bitmap_of = lambda _, properties: bytes(len(properties))
    send(store, tags_code=5, properties=b"a\x01" + b"b" * 300 + b"\x02")
    assert stored_codes(store) == [5]


def test_queues_of_light_topics_have_no_extension_units():
    disk = MemoryDisk()
    store = ext_store(disk)
    light = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02TAGS\x01t\x02"
    send(store, properties=light, tags_code=tags_code("t"))
    disk.process_death()
    store = ext_store(disk)
    queue = store.queue_store.queues["%LMQ%a", 0]
    assert queue.unit_at(0)[2] == tags_code("t")
    assert is_ext_address(stored_codes(store)[0])
    store.close()


def test_extension_files_that_no_message_needs_are_removed():
    disk = MemoryDisk()
    store = ext_store(disk)
    for number in range(40):
        send(store, tags_code=number)
    store.queue_store.write()
    assert len(disk.list(EXT_FOLDER)) == 5
    store.queue_store.queues["T", 0].correct_min_offset(physical_offset_of(store, 20))
    assert disk.list(EXT_FOLDER) == [f"{at:020d}" for at in (400, 600, 800)]
    check(store, list(range(20, 40)))
    store.close()


def test_a_deleted_topic_takes_its_extension_along():
    disk = MemoryDisk()
    store = ext_store(disk)
    send(store, tags_code=1)
    store.queue_store.write()
    store.delete_topics(["T"])
    assert disk.list(f"{ROOT}/consumequeue_ext") == []
    send(store, tags_code=2)
    check(store, [2])
    store.close()


# ---- Apache's ------------------------------------------------------------------------------------


def unpack(golden, name, folder):
    with tarfile.open(golden / "store" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def apache_config(root):
    return MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=2000,
        mapped_file_size_consume_queue_ext=8192,
        max_hash_slot_num=1000,
        max_index_num=4000,
        enable_consume_queue_ext=True,
    )


def code_of_message(message):
    tags = message.properties.get("TAGS")
    return 0 if tags is None else tags_code(tags)


def tree(folder):
    """Bytes by path below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-ext", "5.5.0-ext"])
def test_a_store_written_again_from_apaches_records_has_apaches_files(golden, tmp_path, name):
    root = unpack(golden, name, tmp_path)
    theirs = MessageStore(apache_config(root))
    theirs.load()
    maps = {}
    for (topic, _), queue in theirs.queue_store.queues.items():
        if topic == "TopicSql":
            for offset in range(queue.max_offset):
                physical, size, code = queue.unit_at(offset)
                found = queue.ext.unit_at(code)
                (message,) = decode_messages(theirs.log.read(physical, size))
                assert found.store_timestamp_ms == message.store_timestamp_ms
                assert found.tags_code == code_of_message(message)
                maps[message.properties_bytes] = found.bit_map
    theirs.close()
    assert any(maps.values())
    before = tree(root / "consumequeue_ext"), tree(root / "consumequeue")

    for folder in ("consumequeue", "consumequeue_ext"):
        OsDisk().remove_folder(str(root / folder))
    (root / "abort").touch()
    ours = MessageStore(apache_config(root))
    ours.queue_store.bitmap_of = lambda _, properties: maps[properties]
    ours.load()
    ours.close()
    assert (tree(root / "consumequeue_ext"), tree(root / "consumequeue")) == before


@pytest.mark.parametrize("name", ["4.9.7-ext", "5.5.0-ext"])
def test_an_apache_store_is_filtered_by_real_tags_codes(golden, tmp_path, name):
    store = MessageStore(apache_config(unpack(golden, name, tmp_path)))
    store.load()
    everything = [
        m for b in store.get_message("TopicSql", 0, 0, 32).buffers for m in decode_messages(b)
    ]
    codes = [code_of_message(message) for message in everything]
    assert len(set(codes)) > 1
    for code in set(codes):
        result = store.get_message("TopicSql", 0, 0, 32, tags_codes=frozenset({code}))
        found = [m for buffer in result.buffers for m in decode_messages(buffer)]
        assert [code_of_message(message) for message in found] == [code] * codes.count(code)
    store.close()


@pytest.mark.parametrize("name", ["4.9.7-ext", "5.5.0-ext"])
def test_extension_files_of_another_size_do_no_harm_where_no_more_are_written(
    golden, tmp_path, name, caplog
):
    root = unpack(golden, name, tmp_path)
    before = tree(root / "consumequeue_ext"), tree(root / "consumequeue")
    config = apache_config(root)
    config.mapped_file_size_consume_queue_ext = 48 << 20
    with pytest.raises(CorruptRecordError, match="mappedFileSizeConsumeQueueExt"):
        MessageStore(config).load()
    config.enable_consume_queue_ext = False
    store = MessageStore(config)
    store.load()
    count = store.max_offset("TopicSql", 0)
    assert store.get_message("TopicSql", 0, 0, 32, tags_codes=frozenset({1})).count == count > 0
    assert "mappedFileSizeConsumeQueueExt" in caplog.text
    store.close()
    assert (tree(root / "consumequeue_ext"), tree(root / "consumequeue")) == before
