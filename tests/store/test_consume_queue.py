"""One queue: memory and files together, and what load makes of files."""

from __future__ import annotations

import errno

import pytest

from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.format import UNIT
from trocket.store.queues.consume_queue import ConsumeQueue, QueueFiles

FOLDER = "/q/T/0"


def queue_on(disk, file_size=100):
    queue = ConsumeQueue(
        "T",
        0,
        folder=FOLDER,
        files=QueueFiles(disk, file_size),
        topic_field=b"\1T",
        magic=0,
        topic_hash=0,
    )
    queue.load()
    return queue


def filled(disk, count, *, start=0, file_size=100):
    queue = queue_on(disk, file_size)
    for number in range(start, start + count):
        queue.append_recovered(number, UNIT.pack(number * 10, 10, number))
    queue.write()
    return queue


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 10, 11])
def test_the_end_is_found_again_for_every_fill(count):
    disk = MemoryDisk()
    filled(disk, count)
    again = queue_on(disk)
    assert again.max_offset == again.next_offset == again.tail_offset == count
    assert again.physical_end() == count * 10


def test_a_read_never_crosses_the_end_of_a_file():
    queue = filled(MemoryDisk(), 7)
    assert len(queue.read(3, 10)) == 2 * 20
    assert len(queue.read(5, 10)) == 2 * 20
    assert UNIT.unpack(queue.read(6, 1)) == (60, 10, 6)
    assert queue.read(50, 1) == b""


def test_a_read_joins_file_and_memory():
    queue = filled(MemoryDisk(), 2)
    for number in (2, 3):
        queue.append_recovered(number, UNIT.pack(number * 10, 10, number))
    assert [unit[2] for unit in UNIT.iter_unpack(queue.read(0, 4))] == [0, 1, 2, 3]
    assert [unit[2] for unit in UNIT.iter_unpack(queue.read(3, 1))] == [3]


def test_a_queue_that_begins_late_has_blanks_before_it():
    disk = MemoryDisk()
    queue = filled(disk, 3, start=7)
    assert (queue.min_offset, queue.max_offset) == (7, 10)
    assert disk.list(FOLDER) == [f"{100:020d}"]
    again = queue_on(disk)
    again.correct_min_offset(0)
    assert (again.min_offset, again.max_offset) == (7, 10)


def test_the_smallest_offset_follows_the_log():
    queue = filled(MemoryDisk(), 12)
    queue.correct_min_offset(45)
    assert queue.min_offset == 5
    queue.correct_min_offset(1000)
    assert queue.min_offset == 12
    assert queue.physical_end() == 0


@pytest.mark.parametrize("end", [0, 3, 5, 6, 10, 12])
def test_a_cut_leaves_zeros_and_no_later_files(end):
    disk = MemoryDisk()
    queue = filled(disk, 12)
    queue.cut(end * 10)
    assert queue.max_offset == end
    assert queue_on(disk).max_offset == end
    queue.append_recovered(end, UNIT.pack(1, 2, 3))
    queue.write()
    assert queue_on(disk).max_offset == end + 1


def test_a_gap_is_an_error_and_not_a_unit():
    queue = filled(MemoryDisk(), 2)
    with pytest.raises(CorruptRecordError, match="next record of the log has queue offset 3"):
        queue.append_recovered(3, UNIT.pack(1, 2, 3))


def test_a_file_of_another_size_names_the_key():
    disk = MemoryDisk()
    filled(disk, 2)
    with pytest.raises(CorruptRecordError, match="mappedFileSizeConsumeQueue"):
        queue_on(disk, file_size=200)


def test_a_missing_file_is_refused():
    disk = MemoryDisk()
    filled(disk, 12)
    del disk.contents[f"{FOLDER}/{100:020d}"]
    with pytest.raises(CorruptRecordError, match="missing"):
        queue_on(disk)


def test_empty_files_left_by_a_crash_do_no_harm():
    disk = MemoryDisk()
    filled(disk, 5)
    disk.contents[f"{FOLDER}/{100:020d}"] = bytearray(100)
    disk.contents[f"{FOLDER}/{200:020d}"] = bytearray()
    queue = queue_on(disk)
    assert queue.max_offset == 5
    queue.append_recovered(5, UNIT.pack(50, 10, 5))
    queue.write()
    assert queue_on(disk).max_offset == 6


def test_a_write_that_fails_keeps_the_units():
    disk = MemoryDisk()
    queue = queue_on(disk)
    queue.append_recovered(0, UNIT.pack(1, 2, 3))
    disk.fault = lambda name, path: OSError(errno.ENOSPC, "") if name == "pwrite" else None
    with pytest.raises(StoreIOError):
        queue.write()
    assert queue.unit_at(0) == (1, 2, 3)
    disk.fault = None
    queue.write()
    assert queue_on(disk).unit_at(0) == (1, 2, 3)


def test_few_files_are_open_at_a_time(monkeypatch):
    monkeypatch.setattr("trocket.store.queues.consume_queue.OPEN_FILES_MAX", 2)
    disk = MemoryDisk()
    queue = filled(disk, 25)
    assert len(queue.files._open) == 2
    assert [queue.unit_at(number)[2] for number in range(25)] == list(range(25))


def test_reads_within_a_page_that_was_read_ask_the_disk_once(monkeypatch):
    disk = MemoryDisk()
    queue = filled(disk, 9, file_size=200)
    preads = []
    file = queue.files.get(queue.path_of(0))
    pread = type(file).pread
    monkeypatch.setattr(
        type(file), "pread", lambda *args: preads.append(args[1:]) or pread(*args), raising=True
    )
    for at, count in ((1, 2), (3, 4), (7, 2), (1, 8)):
        assert [unit[2] for unit in UNIT.iter_unpack(queue.read(at, count))] == [
            *range(at, at + count)
        ]
    assert len(preads) == 1
    assert UNIT.unpack(queue.read(0, 1)) == (0, 10, 0)  # before the page
    assert len(preads) == 2


def test_what_was_read_is_forgotten_when_units_are_cut_off():
    queue = filled(MemoryDisk(), 4)
    queue.read(0, 4)
    queue.cut(20)
    for number in (2, 3):
        queue.append_recovered(number, UNIT.pack(number * 100, 10, number))
    queue.write()
    assert [unit[0] for unit in UNIT.iter_unpack(queue.read(0, 4))] == [0, 10, 200, 300]


def test_a_bounded_number_of_pages_is_kept(monkeypatch):
    monkeypatch.setattr("trocket.store.queues.consume_queue.PAGES_MAX", 2)
    files = QueueFiles(MemoryDisk(), 100)
    for number in range(5):
        files.keep_page(("T", number), 0, bytes(20))
    assert [files.page(("T", number), 0, 1) for number in range(5)] == [None] * 3 + [bytes(20)] * 2
