"""The log's files: making, reading, zeroing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.store.log.commit_log import (
    FAULT_SIZE,
    SERVED_BYTES_MAX,
    CommitLog,
    blank,
    is_zero,
)
from trocket.store.log.log_bytes import last_nonzero

SIZE = 4096


def log_on(disk, folder="/log", files=2):
    log = CommitLog(disk, folder, SIZE)
    for number in range(files):
        log.create(number * SIZE)
        log.adopt(number * SIZE)
    return log


@pytest.fixture(params=["machine", "memory"])
def log(request, tmp_path):
    log = (
        log_on(OsDisk(), str(tmp_path / "log"))
        if request.param == "machine"
        else log_on(MemoryDisk())
    )
    yield log
    log.close()


def test_bytes_are_read_where_they_were_written_and_never_across_files(log):
    log.write(SIZE + 5, b"hello")
    assert bytes(log.read(SIZE + 5, 5)) == b"hello"
    assert log.read(SIZE - 2, 4) is None
    assert log.read(5 * SIZE, 1) is None
    assert log.read(0, -1) is None
    assert (log.min_offset, log.end_of_files) == (0, 2 * SIZE)


def test_what_was_written_since_the_last_time_is_to_be_synced(log):
    log.write(SIZE, b"b")
    log.write(0, b"a")
    assert [file.path[-4:] for file in log.take_unsynced()] == ["0000", "4096"]
    assert log.take_unsynced() == []


def test_the_end_of_data_is_found_and_zeroed(log):
    assert last_nonzero(log, 0) == 0
    log.write(100, b"\1\0\0")
    log.write(SIZE + 50, b"\2")
    assert last_nonzero(log, 0) == SIZE + 51
    log.zero(100, SIZE + 51)
    assert last_nonzero(log, 0) == 0
    assert is_zero(log.files[0], 0, SIZE)


def test_a_zeroed_range_leaves_its_neighbours(log):
    log.write(10, b"abcdef")
    log.zero(12, 14)
    assert bytes(log.read(10, 6)) == b"ab\0\0ef"
    assert not is_zero(log.files[0], 0, 20)


def test_a_file_that_cannot_be_allocated_leaves_nothing_behind():
    disk = MemoryDisk()
    log = CommitLog(disk, "/log", SIZE)
    disk.fault = lambda name, path: OSError(errno.ENOSPC, "") if name == "allocate" else None
    with pytest.raises(StoreIOError):
        log.create(0)
    assert disk.list("/log") == []


def test_served_bytes_give_pages_back_and_reading_goes_on(log):
    log.write(0, b"x")
    held = log.read(0, 1)
    log.served(40 << 20)
    assert bytes(held) == b"x"
    assert bytes(log.read(0, 1)) == b"x"


def test_removed_files_are_gone_but_slices_of_them_stay(log):
    log.write(SIZE, b"x")
    held = log.read(SIZE, 1)
    log.remove_from(SIZE)
    assert log.end_of_files == SIZE
    assert bytes(held) == b"x"
    assert log.read(SIZE, 1) is None
    held.release()
    log.served(40 << 20)


def test_a_blank_says_what_is_left():
    assert blank(8).hex() == "00000008cbd43194"


def test_a_file_is_warmed_only_until_it_is_adopted(monkeypatch):
    """No zero may go over a message, so the rest of the file stays as it was made."""
    monkeypatch.setattr("trocket.store.log.commit_log.ZEROS_CHUNK", 256)
    monkeypatch.setattr("trocket.store.log.commit_log._ZEROS", bytes(256))
    monkeypatch.setattr("trocket.store.log.commit_log.WARM_SYNC_CHUNKS", 2)
    disk = MemoryDisk()
    log = log_on(disk, files=1)
    log.create(SIZE)
    log.prepared_base = SIZE
    operations = []

    def fault(name, path):
        operations.append(name)
        if operations.count("sync") == 3:
            disk.fault = lambda name, path: None if name in ("open", "close") else OSError(name)
            log.adopt(SIZE)
            disk.fault = None
            log.write(SIZE, b"\1" * 2000)
            disk.fault = lambda name, path: operations.append(name)

    disk.fault = fault
    log.warm(SIZE)
    assert operations.count("pwrite") == 6
    assert bytes(log.read(SIZE, 2000)) == b"\1" * 2000


def test_a_warmed_file_is_written_to_its_end_and_synced(monkeypatch):
    monkeypatch.setattr("trocket.store.log.commit_log.ZEROS_CHUNK", 1000)
    monkeypatch.setattr("trocket.store.log.commit_log._ZEROS", bytes(1000))
    disk = MemoryDisk()
    log = log_on(disk, files=0)
    log.create(0)
    log.prepared_base = 0
    operations = []
    disk.fault = lambda name, path: operations.append(name)
    log.warm(0)
    assert operations.count("pwrite") == 5
    assert operations[-1] == "sync"
    assert len(disk.contents[f"/log/{0:020d}"]) == SIZE
    log.adopt(0)
    assert is_zero(log.files[0], 0, SIZE)


@pytest.mark.parametrize("moves", [True, False])
def test_a_file_has_its_name_only_when_it_has_its_size(moves):
    disk = MemoryDisk()
    seen = []

    def look(operation, path):
        if operation == "allocate":
            seen.append(path)
        if operation == "rename" and not moves:
            return OSError(errno.EXDEV, "")
        return None

    disk.fault = look
    log = CommitLog(disk, "/data/commitlog", 4096)
    log.create(0)
    log.create(4096)
    new, names = "/data/commitlog.new", [f"/data/commitlog/{base:020d}" for base in (0, 4096)]
    assert seen == ([new, new] if moves else [new, *names])
    assert [disk.open(name).size() for name in names] == [4096, 4096]
    assert not disk.exists(new)


def test_where_the_folder_above_cannot_be_written_in_a_file_is_made_in_its_place():
    disk = MemoryDisk()
    disk.fault = lambda operation, path: (
        OSError(errno.EACCES, "") if operation == "open" and path.endswith(".new") else None
    )
    log = log_on(disk)
    assert [disk.open(f"/log/{base:020d}").size() for base in log.files] == [SIZE, SIZE]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_looks_at_store_times_do_not_keep_the_log_in_memory(tmp_path):
    size = 3 * SERVED_BYTES_MAX
    log = CommitLog(OsDisk(), str(tmp_path / "log"), size, preallocates=False)
    log.create(0)
    log.adopt(0)
    before = mapped_bytes()
    for offset in range(0, size, FAULT_SIZE):
        log.store_timestamp_ms(offset)
    assert mapped_bytes() - before < 2 * SERVED_BYTES_MAX


def mapped_bytes() -> int:
    """Bytes of files in this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(1024 * int(fields[name].split()[0]) for name in ("RssFile", "RssShmem"))
