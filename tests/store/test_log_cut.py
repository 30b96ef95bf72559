"""Opening a store cut at an offset: what is left is a store that never had the rest."""

from __future__ import annotations

import zlib

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.json_config import write_copy
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages
from trocket.store.format import INDEX_HEAD, INDEX_HEADER_SIZE
from trocket.store.message_store import MessageStore
from trocket.store.queues.deleted_topics import DeletedTopics
from trocket.store.recovery.checkpoint import read_checkpoint
from trocket.store.recovery.log_cut import FILE_NAME, LogCut, read_cut, write_cut

from .queue_differences import differences
from .support import ROOT, bodies, physical_offset_of, put, small_config

FILE_SIZE = 4096
COUNT = 60
CHANGES = {
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 100,
    "max_index_num": 20,
    "mapped_file_size_consume_queue_ext": 4096,
    "mapper_file_size_batch_consume_queue": 460,
}


def opened(disk, *, cut_at=None, **changes):
    store = MessageStore(
        small_config(**{**CHANGES, **changes}),
        clock=ManualClock(),
        disk=disk,
        memory_bytes=1 << 30,
    )
    store.load(cut_at)
    return store


def flip(disk, path, position):
    """Damage one bit."""
    file = disk.open(path)
    file.pwrite(bytes((file.pread(1, position)[0] ^ 1,)), position)


def fill(store, start=0, count=COUNT):
    """Messages in three queues, one of them of batches; returns where each begins."""
    store.queue_store.batch_topics.add("B")
    starts = []
    for number in range(start, start + count):
        refusal, physical, _ = put(
            store,
            b"%d " % number + b"x" * (number * 7 % 200),
            topic="B" if number % 4 == 3 else "T",
            queue_id=number % 2,
            properties=b"KEYS\1k%d\2TAGS\1A\2" % number,
            tags_code=65,
        )
        assert refusal is None, refusal
        starts.append(physical)
        store.commit()
    store.flusher.flush()
    store.index.work()
    return starts


def left_over(disk, is_killed, **changes):
    """A store with messages that was closed or killed; returns where they begin, and their end."""
    store = opened(disk, **changes)
    starts = fill(store)
    end = store.max_physical_offset
    if is_killed:
        store.queue_store.write()
        disk.process_death()
    else:
        store.close()
    return starts, end


def log_of(store):
    data = b"".join(bytes(store.log.view(base)) for base in store.log.files)
    return data, data[: store.max_physical_offset]


def numbers(store):
    """The numbers of all messages, as consumers get them."""
    found = []
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            found += [int(body.split()[0]) for body in bodies(store, topic, queue_id)]
    return sorted(found)


def found_by_key(store, number):
    store.index.work(10)
    topic = "B" if number % 4 == 3 else "T"
    result = store.query_by_key(topic, f"k{number}", 5, 0, 1 << 60)
    return [
        int(message.body.split()[0])
        for buffer in result.buffers
        for message in decode_messages(buffer)
    ]


def check_index_files(disk, end):
    """No index file names a message after the log."""
    for name in disk.list(f"{ROOT}/index"):
        header = disk.open(f"{ROOT}/index/{name}").pread(INDEX_HEADER_SIZE, 0)
        assert INDEX_HEAD.unpack(header)[3] < max(end, 1)


def check(disk, store, count, end):
    """The store has the first messages and nothing of the others, and goes on."""
    assert store.trouble == ""
    assert store.max_physical_offset == end
    whole, log = log_of(store)
    assert whole[len(log) :].count(0) == len(whole) - len(log)
    assert numbers(store) == list(range(count))
    assert list(differences(store.log, store.queue_store, store.config)) == []
    check_index_files(disk, end)
    assert not disk.exists(f"{ROOT}/{FILE_NAME}")
    for number in range(0, COUNT, 7):
        assert found_by_key(store, number) == ([number] if number < count else [])
    fill(store, count, COUNT - count)
    assert numbers(store) == list(range(COUNT))
    store.close()
    again = opened(disk)
    assert again.opened.end == store.max_physical_offset
    assert numbers(again) == list(range(COUNT))
    assert list(differences(again.log, again.queue_store, again.config)) == []
    for number in range(0, COUNT, 7):
        assert found_by_key(again, number) == [number]
    again.close()


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("with_ext", [False, True])
def test_a_store_is_cut_at_every_record(is_killed, sync, with_ext):
    changes = {"sync": sync, "enable_consume_queue_ext": with_ext}
    for count in (0, 15, 59):
        disk = MemoryDisk()
        starts, end = left_over(disk, is_killed, **changes)
        cut_at = [*starts, end][count]
        store = opened(disk, cut_at=cut_at, **changes)
        check(disk, store, count, cut_at)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_cut_inside_of_a_record_is_made_at_its_start(is_killed, caplog):
    disk = MemoryDisk()
    starts, _ = left_over(disk, is_killed)
    store = opened(disk, cut_at=starts[31] + 17)
    # Queues and index files are cut, and not found wrong and made again from the whole log.
    assert "is rebuilt from the log" not in caplog.text
    assert "after the log's end" not in caplog.text
    check(disk, store, 31, starts[31])


def test_a_cut_inside_of_a_blank_is_made_at_its_start():
    disk = MemoryDisk()
    starts, _ = left_over(disk, is_killed=False)
    first = next(number for number, start in enumerate(starts) if start >= FILE_SIZE)
    store = opened(disk)
    blank = store.reader.record_at(starts[first - 1], starts[first]).nbytes + starts[first - 1]
    store.close()
    assert blank < FILE_SIZE - 8
    check(disk, opened(disk, cut_at=FILE_SIZE - 5), first, blank)


def test_a_cut_where_a_file_begins_keeps_the_blank_before_it():
    disk = MemoryDisk()
    starts, _ = left_over(disk, is_killed=False)
    first = next(number for number, start in enumerate(starts) if start >= FILE_SIZE)
    check(disk, opened(disk, cut_at=FILE_SIZE), first, FILE_SIZE)


def test_a_cut_at_the_end_changes_nothing():
    disk = MemoryDisk()
    _, end = left_over(disk, is_killed=False)
    store = opened(disk, cut_at=end)
    check(disk, store, COUNT, end)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_cut_beyond_the_end_or_before_the_start_is_refused(is_killed):
    disk = MemoryDisk()
    _, end = left_over(disk, is_killed)
    for offset in (end + 1, 1 << 62, -1):
        with pytest.raises(CorruptRecordError, match=r"cannot be cut here.*needs a hand"):
            opened(disk, cut_at=offset)
    check(disk, opened(disk), COUNT, end)


def test_a_log_that_begins_later_is_cut_at_its_start_and_not_before():
    disk = MemoryDisk()
    starts, _ = left_over(disk, is_killed=False)
    store = opened(disk)
    store.checkpoints.note_log_start(FILE_SIZE)
    disk.unlink(store.log.detach(0))
    for queue in store.queue_store.queues.values():
        queue.follow_log(FILE_SIZE)
    ends = {key: queue.min_offset for key, queue in store.queue_store.queues.items()}
    store.close()
    with pytest.raises(CorruptRecordError, match="needs a hand"):
        opened(disk, cut_at=starts[3])
    store = opened(disk, cut_at=FILE_SIZE)
    assert (store.max_physical_offset, store.min_physical_offset) == (FILE_SIZE, FILE_SIZE)
    # Queue offsets are never given twice, though all messages are gone.
    for (topic, queue_id), end in ends.items():
        if topic == "T":
            assert put(store, b"next", topic=topic, queue_id=queue_id)[2] == end
    store.commit()
    store.close()
    assert opened(disk).max_physical_offset > FILE_SIZE


def test_bytes_of_a_record_in_a_body_are_no_record():
    disk = MemoryDisk()
    store = opened(disk)
    put(store, b"first")
    store.commit()
    inner = bytes(store.message_at(0))
    _, start, _ = put(store, inner)
    put(store, b"last")
    store.commit()
    store.close()
    store = opened(disk, cut_at=start + 88)
    assert (store.max_physical_offset, bodies(store)) == (start, [b"first"])


def test_a_store_with_a_hole_is_not_cut():
    disk = MemoryDisk()
    starts, _ = left_over(disk, is_killed=False)
    flip(disk, f"{ROOT}/commitlog/{0:020d}", starts[2] + 90)
    disk.unlink(f"{ROOT}/queue_ends.trocket")
    disk.unlink(f"{ROOT}/checkpoint")
    disk.open(f"{ROOT}/abort", create=True).close()
    with pytest.raises(CorruptRecordError, match="nothing may be written"):
        opened(disk, cut_at=starts[5])
    assert not disk.exists(f"{ROOT}/{FILE_NAME}")
    assert opened(disk).trouble.startswith(f"{ROOT}/commitlog/")


def test_offsets_of_the_checkpoint_and_of_deletions_are_cut():
    disk = MemoryDisk()
    starts, end = left_over(disk, is_killed=False)
    DeletedTopics(disk, ROOT).begin(end)
    opened(disk, cut_at=starts[9]).close()
    page = read_checkpoint(disk, f"{ROOT}/checkpoint")
    assert page.dispatched_offset == starts[9]
    deleted = DeletedTopics(disk, ROOT)
    deleted.load()
    assert deleted.known_from == starts[9]


def test_a_deleted_topic_stays_deleted():
    disk = MemoryDisk()
    store = opened(disk)
    starts = fill(store)
    store.delete_topics(["B"])
    store.close()
    store = opened(disk, cut_at=starts[40])
    assert "B" not in store.topics()
    assert len(numbers(store)) == 30


def test_a_cut_that_a_full_disk_stopped_is_done_at_the_next_start():
    disk = MemoryDisk()
    starts, _ = left_over(disk, is_killed=False)

    def full(operation, path):
        is_ends = operation == "pwrite" and path.endswith("queue_ends.trocket.tmp")
        return OSError(28, "") if is_ends and disk.exists(f"{ROOT}/{FILE_NAME}") else None

    disk.fault = full
    with pytest.raises(StoreIOError):
        opened(disk, cut_at=starts[20])
    disk.fault = None
    check(disk, opened(disk), 20, starts[20])


@pytest.mark.parametrize("text", [b"a b", b"1", b"-1 5", b"20 10", b"1 2 3", b"1 " + b"9" * 5000])
def test_a_record_of_a_cut_without_two_offsets_is_named(text):
    """Its checksum is right: another program has written it."""
    disk = MemoryDisk()
    left_over(disk, is_killed=False)
    sealed = b"%08x\n%s" % (zlib.crc32(text), text)
    write_copy(disk, f"{ROOT}/{FILE_NAME}", sealed, private=False)
    with pytest.raises(CorruptRecordError, match=r"log_cut\.trocket.*Remove it"):
        read_cut(disk, ROOT)


def test_a_damaged_record_of_a_cut_is_named():
    disk = MemoryDisk()
    left_over(disk, is_killed=False)
    write_cut(disk, ROOT, LogCut(10, 20))
    assert read_cut(disk, ROOT) == LogCut(10, 20)
    flip(disk, f"{ROOT}/{FILE_NAME}", 9)
    with pytest.raises(CorruptRecordError, match=r"log_cut\.trocket.*Remove it"):
        opened(disk)
    disk.unlink(f"{ROOT}/{FILE_NAME}")
    assert numbers(opened(disk)) == list(range(COUNT))


def test_the_first_message_of_another_master_takes_the_place_of_the_first_that_was_cut():
    disk = MemoryDisk()
    store = opened(disk)
    for number in range(5):
        put(store, b"%d" % number)
    store.commit()
    cut_at = physical_offset_of(store, 3)
    store.close()
    store = opened(disk, cut_at=cut_at)
    assert put(store, b"other") == (None, cut_at, 3)
    store.commit()
    assert bodies(store) == [b"0", b"1", b"2", b"other"]
