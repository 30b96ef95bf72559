"""The checkpoint page: Apache's five fields, and ours where Apache leaves zeros."""

from __future__ import annotations

import tarfile

import pytest

from trocket.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from trocket.store.memory_disk import MemoryDisk


def test_a_page_is_read_as_it_was_written():
    checkpoint = Checkpoint(1, 2, 3, 4, 5, 6)
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
    page = bytearray(Checkpoint(1, 2, 3, 4, 5, 6).to_page())
    page[position] = 9
    assert Checkpoint.from_page(bytes(page)).dispatched_offset == -1


@pytest.mark.parametrize("position", [64, 75, 95, 99])
def test_our_part_does_not_count_when_a_bit_is_wrong(position):
    page = bytearray(Checkpoint(1, 2, 3, 4, 5, 6).to_page())
    page[position] ^= 1
    assert Checkpoint.from_page(bytes(page)).dispatched_offset == -1


def test_a_missing_or_short_file_counts_as_zeros():
    disk = MemoryDisk()
    assert read_checkpoint(disk, "/checkpoint") == Checkpoint()
    disk.open("/checkpoint", create=True).pwrite(b"\0" * 7, 0)
    assert read_checkpoint(disk, "/checkpoint") == Checkpoint()
    write_checkpoint(disk, "/checkpoint", Checkpoint(1, 1, dispatched_offset=0))
    assert read_checkpoint(disk, "/checkpoint").dispatched_offset == 0
