"""Open files of the log are bounded, whatever its length."""

from __future__ import annotations

import errno
import gc
import os
from functools import partial
from pathlib import Path

import pytest

from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.store.log.commit_log import CommitLog
from trocket.store.log.log_files import (
    MAPPED_BYTES_MAX,
    OPEN_LOG_FILES_MAX,
    OPEN_LOG_FILES_MIN,
    open_count_max,
)

SIZE = 4096
COUNT = 300


def filled(disk, folder, count=COUNT):
    """A log of `count` files, each beginning with its number; loaded."""
    log = CommitLog(disk, folder, SIZE)
    for number in range(count):
        log.create(number * SIZE)
        log.adopt(number * SIZE)
        log.write(number * SIZE, number.to_bytes(2, "big"))
        for file in log.take_unsynced():
            file.sync()
    log.close()
    log.load()
    return log


def descriptors():
    gc.collect()  # another test's garbage may have descriptors
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(scope="module")
def machine_log(tmp_path_factory):
    log = filled(OsDisk(), str(tmp_path_factory.mktemp("store") / "log"), 100)
    yield log
    log.close()


def test_the_bounds_are_by_count_and_by_address_space():
    assert open_count_max(1 << 30) == OPEN_LOG_FILES_MAX
    assert open_count_max(4 << 30) == MAPPED_BYTES_MAX // (4 << 30) == 16
    assert open_count_max(1 << 40) == OPEN_LOG_FILES_MIN


def test_a_long_log_is_made_loaded_and_read_with_few_files_open():
    disk = MemoryDisk()
    most = 0
    log = filled(disk, "/log")
    assert disk.open_files == 0
    for _ in range(2):
        for number in range(COUNT):
            assert bytes(log.read(number * SIZE, 2)) == number.to_bytes(2, "big")
            assert log.files[number * SIZE].pread(2, 0) == number.to_bytes(2, "big")
            most = max(most, disk.open_files)
    assert most == OPEN_LOG_FILES_MAX
    log.close()
    assert disk.open_files == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
def test_on_the_machines_disk_descriptors_and_maps_are_bounded(machine_log):
    machine_log.served(40 << 20)
    before = descriptors()
    for number in range(100):
        assert bytes(machine_log.read(number * SIZE, 2)) == number.to_bytes(2, "big")
        assert descriptors() - before <= 2 * OPEN_LOG_FILES_MAX
    machine_log.served(40 << 20)
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").count(machine_log.folder)
    assert 0 < maps <= OPEN_LOG_FILES_MAX


def test_a_slice_outlives_the_closing_of_its_file(machine_log):
    held = machine_log.read(0, 2)
    view = machine_log.view(SIZE)
    for number in range(2, 100):
        machine_log.view(number * SIZE)
    assert bytes(held) == b"\0\0"
    assert bytes(view[:2]) == b"\0\1"
    held.release()
    machine_log.served(40 << 20)
    assert bytes(machine_log.read(0, 2)) == b"\0\0"


def test_a_file_in_use_is_found_without_asking_the_disk():
    disk = MemoryDisk()
    log = filled(disk, "/log", 100)
    asked = []
    disk.fault = lambda name, path: asked.append(path) if name == "open" else None
    for number in range(1, 100):
        log.read(number * SIZE, 1)
        for other in range(25):
            log.files[((number * 25 + other) % 98 + 1) * SIZE].pread(1, 0)
        log.read(0, 1)  # wanted again and again: stays
        log.write(99 * SIZE, b"x")
    assert asked.count(log.files[0].path) == 1
    assert asked.count(log.files[99 * SIZE].path) == 1


def test_a_file_that_is_written_or_synced_is_not_closed():
    disk = MemoryDisk()
    log = filled(disk, "/log", 200)
    log.write(0, b"a")
    log.write(SIZE, b"b")
    for number in range(2, 200):
        log.read(number * SIZE, 1)
    taken = log.take_unsynced()
    for number in range(2, 200):
        log.read(number * SIZE, 1)
    opened = []
    disk.fault = lambda name, path: opened.append(path) if name == "open" else None
    for file in taken:
        file.sync()
    assert opened == []
    for number in range(2, 200):
        log.read(number * SIZE, 1)
    assert log.files[0].pread(1, 0) == b"a"
    assert opened[-1] == log.files[0].path, "once synced, it was closed like any other"


class NarrowDisk(MemoryDisk):
    """Room for `room` files that are open, or that are mapped."""

    def __init__(self, what):
        super().__init__()
        self.what = what
        self.room = 1000
        self.mapped = 0

    def open(self, path, *, create=False):
        if self.what == "open" and self.open_files >= self.room:
            raise StoreIOError(path, "too many") from OSError(errno.EMFILE, "")
        file = super().open(path, create=create)
        file.map = partial(self._map, file, file.map)
        file.close = partial(self._close, file, file.close)
        file.is_mapped = False
        return file

    def _map(self, file, really):
        if not file.is_mapped:
            if self.what == "map" and self.mapped >= self.room:
                raise StoreIOError(file.path, "no room") from OSError(errno.ENOMEM, "")
            self.mapped += 1
            file.is_mapped = True
        return really()

    def _close(self, file, really):
        self.mapped -= file.is_mapped
        file.is_mapped = False
        return really()


@pytest.mark.parametrize("what", ["open", "map"])
def test_where_descriptors_or_address_space_run_out_others_are_closed_first(what):
    disk = NarrowDisk(what)
    log = filled(disk, "/log", 20)
    disk.room = 3
    for _ in range(2):
        for number in range(20):
            assert bytes(log.read(number * SIZE, 2)) == number.to_bytes(2, "big")
    disk.room = 0
    with pytest.raises(StoreIOError):
        log.read(0, 2)


def test_an_error_that_closing_cannot_help_is_raised():
    disk = MemoryDisk()
    log = filled(disk, "/log", 3)
    log.read(0, 1)
    disk.fault = lambda name, path: OSError(errno.EIO, "") if name == "open" else None
    with pytest.raises(StoreIOError, match=os.strerror(errno.EIO)):
        log.read(SIZE, 1)
    assert bytes(log.read(0, 2)) == b"\0\0"


def test_the_oldest_file_is_detached_and_may_come_back():
    log = filled(MemoryDisk(), "/log", 3)
    held = log.read(0, 2)
    path = log.detach(0)
    assert path.endswith("/00000000000000000000")
    assert (log.min_offset, log.read(0, 2)) == (SIZE, None)
    assert bytes(held) == b"\0\0"
    log.reattach(0)
    assert list(log.files) == [0, SIZE, 2 * SIZE]
    assert bytes(log.read(0, 2)) == b"\0\0"


def test_through_its_handle_a_file_is_like_any_file():
    log = filled(MemoryDisk(), "/log", 2)
    file = log.files[0]
    assert file.size() == SIZE
    file.allocate(SIZE)
    file.resize(SIZE)
    file.pwrite(b"xy", 10)
    assert file.next_data(10) == 10
    assert bytes(file.map()[10:12]) == b"xy"
    file.drop_pages()
    assert file.close()
    file.drop_pages()
    assert file.pread(2, 10) == b"xy"
