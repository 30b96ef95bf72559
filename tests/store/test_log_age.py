"""The newest store timestamp of a commit log file."""

from __future__ import annotations

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.log import log_age
from trocket.store.log.log_age import (
    first_timestamp_ms,
    newest_timestamp_ms,
    timestamp_before_ms,
)

from .support import open_store, send

SIZE = 64 * 1024
START = 1_700_000_000_000


def rolled(shift=0, **last):
    """(disk, path of a full file whose last message came 77 ms after the first).

    The last message begins `shift` bytes later than it would.
    """
    disk, clock = MemoryDisk(), ManualClock(START)
    store = open_store(disk, clock=clock)
    for _ in range(10):
        store.begin_burst()
        send(store, bytes(5000 + shift))
        shift = 0
        clock.advance(7)
    clock.advance(7)
    store.begin_burst()
    send(store, **last)
    clock.advance(1000)
    store.begin_burst()
    while len(store.log.files) < 2:
        send(store, bytes(40_000))
    return disk, store.log.files[0].path


def test_it_is_the_last_messages_whatever_the_next_file_begins_with():
    disk, path = rolled()
    assert newest_timestamp_ms(disk, path, 0, SIZE) == START + 77
    assert first_timestamp_ms(disk, path, 0, SIZE) == START


def test_bytes_that_look_like_a_record_are_not_believed():
    disk, path = rolled()
    fake = bytes(disk.contents[path][:200])
    disk, path = rolled(body=fake + bytes(100) + fake)
    assert newest_timestamp_ms(disk, path, 0, SIZE) == START + 77


@pytest.mark.parametrize("chunk", [8, 9, 64])
def test_a_record_across_two_chunks_is_found(monkeypatch, chunk):
    monkeypatch.setattr(log_age, "_CHUNK", chunk)
    for shift in range(12):
        disk, path = rolled(shift, body=bytes(9))
        assert newest_timestamp_ms(disk, path, 0, SIZE) == START + 77


def test_where_apaches_clock_went_back_the_first_message_counts():
    disk, path = rolled()
    disk.contents[path][56:64] = (START + 5000).to_bytes(8, "big")
    assert newest_timestamp_ms(disk, path, 0, SIZE) == START + 5000


@pytest.mark.parametrize("damage", [slice(0, SIZE), slice(SIZE - 20_000, SIZE)])
def test_a_damaged_end_is_of_unknown_age(damage):
    disk, path = rolled()
    disk.contents[path][damage] = b"\xee" * len(disk.contents[path][damage])
    assert newest_timestamp_ms(disk, path, 0, SIZE) == -1


def test_a_file_in_which_no_record_begins_is_of_unknown_age():
    disk = MemoryDisk()
    disk.open("/log/0", create=True).resize(SIZE)
    assert first_timestamp_ms(disk, "/log/0", 0, SIZE) == -1
    assert newest_timestamp_ms(disk, "/log/0", 0, SIZE) == -1


def test_the_message_that_ends_at_a_position_is_found():
    store = open_store(clock=ManualClock(START))
    ends = []
    for number in range(5):
        store.clock.advance(10)
        store.begin_burst()
        send(store, bytes(number * 1000))
        ends.append(store.max_physical_offset)
    path = store.log.files[0].path
    found = [timestamp_before_ms(store.disk, path, 0, end, SIZE) for end in ends]
    assert found == [START + 10 * number for number in range(1, 6)]
    assert timestamp_before_ms(store.disk, path, 0, ends[0] + 1, SIZE) == -1
    disk, full = rolled()
    assert timestamp_before_ms(disk, full, 0, SIZE, SIZE) == START + 77


def test_a_record_of_another_place_is_not_believed():
    disk, path = rolled()
    assert newest_timestamp_ms(disk, path, SIZE, SIZE) == -1
    assert disk.open_files == 2, "the store's own"
