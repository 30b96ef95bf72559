"""Zeros behind the log's end under SYNC_FLUSH: where they are written, and where not."""

from __future__ import annotations

import errno

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.log.commit_log import CommitLog

from .support import bodies, open_store, put, send
from .test_commit_log import SIZE, log_on

AHEAD = 1024


@pytest.fixture
def zeros(monkeypatch):
    """The zeros that are written to log files: (physical offset, size)."""
    found = []
    write = CommitLog.write

    def noted(log, physical_offset, data):
        if not any(data):
            found.append((physical_offset, len(data)))
        write(log, physical_offset, data)

    monkeypatch.setattr(CommitLog, "write", noted)
    return found


def test_some_zeros_always_lie_ahead_and_none_goes_over_a_byte_of_the_log(zeros):
    log = log_on(MemoryDisk(), files=1)
    end = 0
    while end < SIZE - 100:
        log.write(end, b"\1" * 100)
        end += 100
        log.zero_ahead(end, AHEAD)
        zeroed = sum(zeros[-1])
        assert zeroed >= min(end + AHEAD // 8, SIZE)
    assert bytes(log.read(0, end)) == b"\1" * end
    assert zeros == [(100, 1024), (1124, 1024), (2148, 1024), (3172, 924)]


def test_they_end_with_the_file_and_go_on_in_the_next_one_once_it_is_there(zeros):
    log = log_on(MemoryDisk(), files=1)
    log.zero_ahead(SIZE - 100, AHEAD)
    log.zero_ahead(SIZE - 50, AHEAD)
    assert zeros == [(SIZE - 100, 100)]
    log.create(SIZE)
    log.adopt(SIZE)
    log.zero_ahead(SIZE + 10, AHEAD)
    assert zeros[1:] == [(SIZE + 10, AHEAD)]


def test_they_are_written_again_where_files_were_removed_and_made_anew(zeros):
    log = log_on(MemoryDisk())
    log.zero_ahead(SIZE + 10, AHEAD)
    log.remove_from(SIZE)
    log.create(SIZE)
    log.adopt(SIZE)
    log.zero_ahead(SIZE + 10, AHEAD)
    assert zeros == [(SIZE + 10, AHEAD)] * 2


def test_a_small_commit_under_sync_flush_has_its_next_ones_written_over_zeros(zeros):
    store = open_store(sync=True, zero_ahead_size=8192)
    for _ in range(30):
        send(store)
        store.flusher.flush()
    assert len(zeros) == 1
    assert bodies(store) == [b"body"] * 30


def test_a_large_commit_has_none(zeros):
    store = open_store(sync=True, zero_ahead_size=8192)
    send(store, bytes(1024))
    assert not zeros


@pytest.mark.parametrize(
    "changes",
    [{"sync": False}, {"sync": True, "zero_ahead_size": 0},
     {"sync": True, "warm_maped_file_enable": True}],
)  # fmt: skip
def test_none_is_written_where_it_would_be_for_nothing(zeros, changes):
    send(open_store(**changes))
    assert not zeros


def test_a_disk_that_takes_no_zeros_takes_messages(caplog):
    disk = MemoryDisk()
    store = open_store(disk, sync=True)
    writes = []

    def every_second(name, path):
        if name == "pwrite" and "commitlog" in path:
            writes.append(path)
            if len(writes) == 2:
                return OSError(errno.EIO, "")
        return None

    disk.fault = every_second
    for _ in range(3):
        assert put(store)[0] is None
        store.commit()
        store.flusher.flush()
    assert bodies(store) == [b"body"] * 3
    assert len(writes) == 4
    assert sum("zeros" in record.message for record in caplog.records) == 1
