"""The simulated disk itself: what a crash may take, and what not."""

from __future__ import annotations

from random import Random

import pytest

from .file_system import KINDS, POWER_KINDS, SECTOR, FileSystem, Image
from .recording_disk import RecordingDisk


def new_disk() -> RecordingDisk:
    return RecordingDisk(FileSystem(Image({}, {"/d"})))


def written(disk, path="/d/file", data=b"new"):
    file = disk.open(path, create=True)
    file.pwrite(data, 0)
    return file


def image(disk, kind, seed=1):
    found = disk.system.crash_image(kind, Random(seed))
    return found.files if found is not None else None


def test_a_power_cut_takes_the_name_of_a_file_until_its_folder_is_synced():
    disk = new_disk()
    file = written(disk)
    file.sync()
    assert image(disk, "all") == {"/d/file": b"new"}
    assert image(disk, "none") == {}
    disk.sync_folder("/d")
    assert image(disk, "none") == {"/d/file": b"new"}


def test_a_power_cut_takes_bytes_until_their_file_is_synced():
    disk = new_disk()
    file = written(disk)
    disk.sync_folder("/d")
    assert image(disk, "none") == {"/d/file": b""}
    file.sync()
    file.pwrite(b"NEW", 0)
    assert image(disk, "none") == {"/d/file": b"new"}
    assert image(disk, "all") == {"/d/file": b"NEW"}


def test_a_name_is_nothing_without_the_folders_above_it():
    disk = new_disk()
    disk.make_folder("/d/a/b")
    written(disk, "/d/a/b/file").sync()
    disk.sync_folder("/d/a/b")
    assert image(disk, "none") == {}
    disk.sync_folder("/d/a")
    assert image(disk, "none") == {}
    disk.sync_folder("/d")
    assert image(disk, "none") == {"/d/a/b/file": b"new"}


@pytest.mark.parametrize("kind", POWER_KINDS)
def test_a_rename_happens_wholly_or_not_at_all(kind):
    for seed in range(30):
        disk = new_disk()
        written(disk, "/d/old", b"old").sync()
        written(disk, "/d/new", b"new").sync()
        disk.sync_folder("/d")
        disk.rename("/d/new", "/d/old")
        assert image(disk, kind, seed) in (
            None,
            {"/d/old": b"old", "/d/new": b"new"},
            {"/d/old": b"new"},
        )


def test_a_removed_file_may_come_back_until_its_folder_is_synced():
    disk = new_disk()
    written(disk).sync()
    disk.sync_folder("/d")
    disk.unlink("/d/file")
    assert image(disk, "all") == {}
    assert image(disk, "none") == {"/d/file": b"new"}
    disk.sync_folder("/d")
    assert image(disk, "none") == {}


def test_every_sector_of_a_random_image_is_some_version_of_it():
    old, middle, new = (bytes([value]) * (4 * SECTOR) for value in (1, 2, 3))
    seen = set()
    for seed in range(200):
        disk = new_disk()
        file = written(disk, data=old)
        file.sync()
        disk.sync_folder("/d")
        file.pwrite(middle, 0)
        file.pwrite(new, 0)
        data = bytes(image(disk, "random1", seed)["/d/file"])
        sectors = [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]
        assert all(sector in (old[:SECTOR], middle[:SECTOR], new[:SECTOR]) for sector in sectors)
        seen.add(tuple(sector[0] for sector in sectors))
    assert len(seen) > 20


def test_a_prefix_keeps_earlier_operations_and_loses_later_ones():
    for seed in range(30):
        disk = new_disk()
        first, second = written(disk, "/d/1"), written(disk, "/d/2")
        disk.sync_folder("/d")
        first.pwrite(b"A", 0)
        second.pwrite(b"B", 0)
        files = image(disk, "prefix", seed)
        assert not (files["/d/2"][:1] == b"B" and files["/d/1"][:1] != b"A")


def test_a_power_cut_may_keep_the_first_so_many_unsynced_operations():
    disk = new_disk()
    file = written(disk)
    file.sync()
    disk.sync_folder("/d")
    file.pwrite(b"A", 0)
    disk.rename("/d/file", "/d/new")
    file.pwrite(b"B", 1)
    found = [disk.system.first_image(kept).files for kept in range(4)]
    assert found == [
        {"/d/file": b"new"}, {"/d/file": b"Aew"}, {"/d/new": b"Aew"}, {"/d/new": b"ABw"}
    ]  # fmt: skip


def test_a_torn_write_ends_within_a_sector():
    for seed in range(50):
        disk = new_disk()
        file = disk.open("/d/file", create=True)
        file.allocate(4 * SECTOR)
        file.sync()
        disk.sync_folder("/d")
        file.pwrite(b"x" * (3 * SECTOR), 0)
        data = bytes(image(disk, "torn", seed)["/d/file"])
        length = len(data.rstrip(b"\0"))
        assert data == b"x" * length + bytes(len(data) - length)
        assert 0 < length < 3 * SECTOR
        assert length % SECTOR


def test_a_kill_in_a_write_leaves_a_first_part_of_it():
    disk = new_disk()
    file = written(disk)
    op = ("write", disk.system.names["/d/file"].number, 3, b"0123456789")
    found = disk.system.crash_image("cut", Random(1), op).files["/d/file"]
    assert found.startswith(b"new0")
    assert len(found) < 13
    assert file.size() == 3


def test_what_a_failed_sync_was_to_write_is_lost_though_the_next_one_succeeds():
    disk = new_disk()
    file = written(disk, data=b"old")
    file.sync()
    disk.sync_folder("/d")
    file.pwrite(b"new", 0)
    disk.do("sync_failed", disk.system.names["/d/file"].number)
    file.sync()
    assert file.pread(3, 0) == b"new"
    assert image(disk, "none") == {"/d/file": b"old"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_journal_leads_another_disk_through_the_same_states(kind):
    disk = new_disk()
    file = written(disk)
    disk.make_folder("/d/a")
    file.sync()
    disk.sync_folder("/d")
    file.allocate(2000)
    file.pwrite(b"later", 900)
    disk.crash("random1", 5)
    written(disk, "/d/again")
    disk.rename("/d/again", "/d/b")
    other = FileSystem(Image({}, {"/d"}))
    for op in disk.journal:
        other.apply(op)
    assert other.everything() == disk.system.everything()
    assert other.crash_image(kind, Random(3)) == disk.system.crash_image(kind, Random(3))


def test_a_fork_has_its_own_bytes_and_the_same_unsynced_changes():
    disk = new_disk()
    file = written(disk)
    fork = disk.system.fork()
    assert fork.crash_image("prefix", Random(2)) == disk.system.crash_image("prefix", Random(2))
    file.pwrite(b"more", 0)
    assert fork.everything().files == {"/d/file": b"new"}
