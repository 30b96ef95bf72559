"""The checkpoint page: Apache's five fields, and ours where Apache leaves zeros."""

from __future__ import annotations

import tarfile
from dataclasses import replace

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.format import FILE_MARKS_COUNT_MAX
from trocket.store.recovery.checkpoint import (
    Checkpoint,
    IndexProgress,
    read_checkpoint,
    write_checkpoint,
)

PROGRESS = IndexProgress(20261103000000001, 10, 20, 30, 40, 5, 7, 41, ((3, 0xFFFFFFFF), (4, 1)))
WHOLE = Checkpoint(1, 2, 3, 4, 5, 6, PROGRESS)


def test_a_page_is_read_as_it_was_written():
    for checkpoint in (Checkpoint(1, 2, 3, 4, 5, 6), WHOLE):
        page = checkpoint.to_page()
        assert len(page) == 4096
        assert page[:16] == bytes(7) + b"\1" + bytes(7) + b"\2"
        assert Checkpoint.from_page(page) == checkpoint


@pytest.mark.parametrize("name", ["4.9.7-mix", "5.5.0-mix"])
def test_apaches_page_has_times_and_nothing_of_ours(golden, name):
    with tarfile.open(golden / "store" / f"{name}.tar.xz") as archive:
        page = archive.extractfile(f"{name}/checkpoint").read()
    found = Checkpoint.from_page(page)
    assert 1_795_000_000_000 < found.physic_msg_timestamp_ms < 1_796_000_000_000
    assert found.dispatched_offset == -1
    assert Checkpoint.from_page(found.to_page()) == found


@pytest.mark.parametrize("position", [7, 15])
def test_our_part_does_not_count_once_apache_has_written_the_page(position):
    page = bytearray(WHOLE.to_page())
    page[position] = 9
    found = Checkpoint.from_page(bytes(page))
    assert found.dispatched_offset == -1
    assert found.index is None


@pytest.mark.parametrize("position", [64, 75, 95, 99])
def test_our_part_does_not_count_when_a_bit_is_wrong(position):
    page = bytearray(Checkpoint(1, 2, 3, 4, 5, 6).to_page())
    page[position] ^= 1
    assert Checkpoint.from_page(bytes(page)).dispatched_offset == -1


@pytest.mark.parametrize("position", [128, 137, 150, 200, 211, 219])
def test_the_index_part_does_not_count_when_a_bit_is_wrong_and_the_other_does(position):
    page = bytearray(WHOLE.to_page())
    page[position] ^= 1
    found = Checkpoint.from_page(bytes(page))
    assert (found.dispatched_offset, found.index) == (6, None)


def test_a_torn_list_of_files_leaves_the_progress_of_the_newest():
    page = WHOLE.to_page()[:260] + bytes(4096 - 260)
    assert Checkpoint.from_page(page).index == replace(PROGRESS, files=None)


def test_of_too_many_files_the_newest_are_kept():
    files = tuple((number, number) for number in range(FILE_MARKS_COUNT_MAX + 3))
    page = Checkpoint(1, 2, 3, 4, 5, 6, replace(PROGRESS, files=files)).to_page()
    assert len(page) == 4096
    assert Checkpoint.from_page(page).index.files == files[3:]


def test_a_missing_or_short_file_counts_as_zeros():
    disk = MemoryDisk()
    assert read_checkpoint(disk, "/checkpoint") == Checkpoint()
    disk.open("/checkpoint", create=True).pwrite(b"\0" * 7, 0)
    assert read_checkpoint(disk, "/checkpoint") == Checkpoint()
    write_checkpoint(disk, "/checkpoint", Checkpoint(1, 1, dispatched_offset=0))
    assert read_checkpoint(disk, "/checkpoint").dispatched_offset == 0
