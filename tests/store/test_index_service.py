"""The index: which keys are found, what happens to a backlog, what a damaged file can do."""

from __future__ import annotations

import errno
from random import Random

import pytest

from trocket.common.java_hash import index_key_hash
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_record
from trocket.store.index import index_file, index_service
from trocket.store.services import checkpoint_now

from .support import ROOT, open_store, send, visible_records


def find(store, key, topic="T"):
    while store.index.is_behind:
        store.index.work(1.0)
    found = store.query_by_key(topic, key, 32, 0, 1 << 60)
    return len(found.buffers)


def send_keys(store, first, end):
    for number in range(first, end):
        send(store, properties=b"KEYS\x01k%d\x02" % number)


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


@pytest.mark.parametrize(
    ("properties", "tags", "entries"),
    [
        pytest.param(b"TAGS\x01TagA\x02", "TagA", 1, id="no key"),
        pytest.param(b"UNIQ_KEY\x01" + UNIQUE + b"AB\x02TAGS\x01a", "a", 2, id="the usual"),
        pytest.param(b"KEYS\x01a b\x02TAGS\x01x y\x02", "x y", 3, id="tags are not divided"),
        pytest.param("TAGS\x01schlüssel\x02".encode(), "schlüssel", 1, id="not ASCII"),
    ],
)
def test_tags_are_found_and_are_no_keys(properties, tags, entries):
    store = open_store()
    send(store, properties=properties)
    assert find(store, "something else") == 0
    assert store.index.files[0].index_count == 1 + entries
    assert len(store.query_by_key("T", tags, 32, 0, 1 << 60, by_tags=True).buffers) == 1
    assert store.query_by_key("U", tags, 32, 0, 1 << 60, by_tags=True).buffers == []
    assert find(store, f"T#{tags}") == 0


def test_empty_tags_have_no_entry():
    store = open_store()
    send(store, properties=b"KEYS\x01k\x02TAGS\x01\x02")
    assert find(store, "k") == 1
    assert store.index.files[0].index_count == 2


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
    begin = store.store_time_ms
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


def test_a_message_with_another_key_of_the_same_hash_is_not_answered():
    store = open_store()
    send(store, b"1", properties=b"KEYS\x01xAa\x02")
    send(store, b"2", properties=b"KEYS\x01xBB\x02")
    assert index_key_hash("T#xAa") == index_key_hash("T#xBB")
    assert (find(store, "xAa"), find(store, "xBB")) == (1, 1)


def test_a_clean_stop_leaves_an_index_that_is_whole_at_the_next_start():
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(120):
        send(store, properties=b"KEYS\x01k%d\x02" % number)
    store.close()
    before = {path: bytes(data) for path, data in disk.contents.items() if "/index/" in path}
    store = open_store(disk)
    assert not store.index.is_behind
    assert {path: bytes(disk.contents[path]) for path in before} == before
    assert [find(store, f"k{number}") for number in range(120)] == [1] * 120


def test_messages_without_keys_are_not_read_again_at_each_start():
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(50):
        send(store)
    store.close()
    assert not open_store(disk).index.is_behind


def test_the_oldest_files_are_deleted_when_the_log_has_left_them_behind():
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(200):
        send(store, properties=b"KEYS\x01k%d\x02" % number)
    find(store, "x")
    files = list(store.index.files)
    assert len(files) == 5
    assert store.index.delete_expired(1 << 60) == []  # not while one is still to be written out
    store.index.finish_full_files()
    assert store.index.delete_expired(files[1].end_physical_offset) == files[:1]
    assert store.index.delete_expired(1 << 60) == files[1:4]  # the newest stays in any case
    assert disk.list(f"{ROOT}/index") == [f"{files[4].name}"]


@pytest.mark.parametrize("operation", ["open", "resize", "pwrite"])
@pytest.mark.parametrize("filled", [0, 30, 49])
def test_an_index_without_room_goes_on_when_there_is_some(operation, filled, monkeypatch):
    monkeypatch.setattr(index_file, "PENDING_BYTES_MAX", 400)
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, filled)
    find(store, "x")
    disk.fault = lambda name, path: (
        OSError(errno.ENOSPC, "") if name == operation and "/index/" in path else None
    )
    send_keys(store, filled, 150)
    find(store, "x")
    assert not store.index.is_behind  # it rests
    assert not store.index.is_broken
    send_keys(store, 150, 160)
    store.clock.advance(60_000)
    find(store, "x")
    disk.fault = None
    store.clock.advance(60_000)
    assert [find(store, f"k{number}") for number in range(160)] == [1] * 160
    store.index.finish_full_files()
    assert [find(store, f"k{number}") for number in range(160)] == [1] * 160


async def test_without_room_for_entries_the_checkpoint_goes_on_with_what_it_said_of_them():
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, 20)
    find(store, "x")
    await checkpoint_now(store)
    send_keys(store, 20, 30)
    find(store, "x")
    disk.fault = lambda name, path: (
        OSError(errno.ENOSPC, "") if name == "pwrite" and "/index/" in path else None
    )
    said = store.checkpoints.current
    await checkpoint_now(store)
    assert store.checkpoints.current.dispatched_offset == store.dispatched_offset
    assert store.checkpoints.current.index == said.index
    disk.process_death()
    disk.fault = None
    store = open_store(disk)
    assert [find(store, f"k{number}") for number in range(30)] == [1] * 30


async def test_a_file_whose_sync_failed_is_not_vouched_for_again():
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, 20)
    find(store, "x")
    disk.fault = lambda name, path: (
        OSError(errno.EIO, "") if name == "sync" and "/index/" in path else None
    )
    await checkpoint_now(store)
    disk.fault = None
    await checkpoint_now(store)
    assert store.index.is_broken
    assert store.checkpoints.current.dispatched_offset == store.dispatched_offset
    assert store.checkpoints.current.index is None
    disk.process_death()
    store = open_store(disk)
    assert [find(store, f"k{number}") for number in range(20)] == [1] * 20


def test_a_full_file_that_cannot_be_written_out_is_tried_again():
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, 60)
    find(store, "x")
    disk.fault = lambda name, path: (
        OSError(errno.ENOSPC, "") if name == "pwrite" and "/index/" in path else None
    )
    store.index.finish_full_files()
    assert not store.index.has_full_files
    disk.fault = None
    store.clock.advance(60_000)
    assert store.index.has_full_files
    store.index.finish_full_files()
    assert not store.index.has_full_files
    assert store.index.files[0].is_finished


class Model:
    """A store with messages of 0 to 3 keys, killed and opened again, now and then without room."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MemoryDisk(journalled=True)
        self.store = open_store(self.disk)
        self.sent = 0

    async def step(self) -> None:
        random, store = self.random, self.store
        if random.random() < 0.1:
            self.disk.fault = random.choice((None, None, self.no_room))
        what = random.randrange(20)
        if what < 12:
            for _ in range(random.randrange(12)):
                keys = b" ".join(
                    b"k%d" % random.randrange(40) for _ in range(random.choice((0, 1, 1, 3)))
                )
                unique = b"UNIQ_KEY\x01%s%06d\x02" % (UNIQUE, self.sent) * random.choice((0, 1))
                properties = unique + (b"KEYS\x01%s\x02" % keys if keys else b"")
                send(store, bytes(random.choice((10, 3000))), properties=properties)
                self.sent += 1
            store.clock.advance(random.choice((0, 0, 1, 700, 20_000)))
            store.begin_burst()
        elif what < 15 and store.index.is_behind:
            store.index.work(0.0)
        elif what < 16:
            store.index.finish_full_files()
        elif what < 18:
            await checkpoint_now(store)
        elif what < 19:
            self.open_again(clean=random.random() < 0.3)
        else:
            while store.index.is_behind:
                store.index.work(1.0)

    def no_room(self, name: str, path: str) -> OSError | None:
        is_refused = "/index/" in path and name in ("pwrite", "resize")
        return OSError(errno.ENOSPC, "") if is_refused and self.random.random() < 0.5 else None

    def open_again(self, *, clean: bool) -> None:
        clock = self.store.clock
        self.disk.fault = None
        if clean:
            self.store.close()
        elif self.random.random() < 0.5:
            self.disk.process_death()
        else:
            self.disk.power_loss(self.random.randrange(len(self.disk.journal) + 1))
        self.store = open_store(self.disk, clock=clock)

    def check(self) -> None:
        store = self.store
        self.disk.fault = None
        store.clock.advance(60_000)
        while store.index.is_behind:
            store.index.work(1.0)
        assert not store.index.is_broken
        wanted: dict[str, dict[int, None]] = {}
        for record in visible_records(store):
            message = decode_record(store.message_at(record[3]))
            for name in ("UNIQ_KEY", "KEYS"):
                for key in message.properties.get(name, "").split():
                    wanted.setdefault(key, {})[record[3]] = None  # once, though it is twice there
        for key, offsets in wanted.items():
            found = store.query_by_key("T", key, 10_000, 0, 1 << 60).buffers
            assert [decode_record(one).physical_offset for one in found] == list(offsets), key


@pytest.mark.parametrize("seed", range(12))
async def test_look_ups_agree_with_the_log_after_any_stop(seed):
    for round_number in range(4):
        model = Model(seed * 1000 + round_number)
        for _ in range(40):
            await model.step()
        model.open_again(clean=False)
        model.check()


def test_a_file_that_cannot_be_read_to_be_filled_on_is_tried_again():
    disk = MemoryDisk()
    store = open_store(disk)
    send_keys(store, 0, 10)
    store.close()
    store = open_store(disk)
    disk.fault = lambda name, path: (
        OSError(errno.EIO, "") if name == "pread" and "/index/" in path else None
    )
    send_keys(store, 10, 20)
    for _ in range(3):
        store.index.work(1.0)
        store.clock.advance(60_000)
    assert not store.index.is_broken
    disk.fault = None
    assert [find(store, f"k{number}") for number in range(20)] == [1] * 20
