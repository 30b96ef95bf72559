"""How full is too full."""

from __future__ import annotations

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.store.retention.disk_space import DiskUse, Partition, decide, measure

from .support import ROOT, small_config

GIB = 1 << 30
LOG = f"{ROOT}/commitlog"


def verdict(used, free, *, own=-1, root=None, next_file=0, **keys):
    partitions = (Partition(LOG, used * GIB, free * GIB), Partition(ROOT, *(root or (0, GIB))))
    return decide(DiskUse(partitions, own), small_config(**keys), next_file_bytes=next_file)


def wants(found):
    return tuple(bool(each) for each in (found.reclaim, found.clean, found.refuse))


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        (75, (False, False, False)),
        (76, (True, False, False)),
        (85, (True, False, False)),
        (86, (True, True, False)),
        (90, (True, True, False)),
        (91, (True, True, True)),
    ],
)
def test_with_the_ratios_alone_the_three_steps_are_rocketmqs(used, wanted):
    assert wants(verdict(used, 100 - used, disk_free_bytes_enough=0)) == wanted


def test_percents_are_rounded_up_as_rocketmq_does():
    assert Partition("/", 7501, 2499).used_percent == 76
    assert Partition("/", 7500, 2500).used_percent == 75
    assert Partition("/", 0, 0).used_percent == 0


@pytest.mark.parametrize(("free", "wanted"), [(4, (True, False, False)), (3, (True, True, True))])
def test_at_their_defaults_the_last_two_ratios_count_only_where_little_is_free(free, wanted):
    assert wants(verdict(900, free)) == wanted


def test_a_configured_ratio_applies_however_much_is_free():
    assert wants(verdict(500, 500, disk_space_warning_level_ratio=40)) == (False, True, True)
    assert wants(verdict(500, 500, disk_space_clean_forcibly_ratio=40)) == (False, True, False)


def test_a_ratio_above_rocketmqs_default_is_not_taken_for_the_default():
    keys = {"disk_space_clean_forcibly_ratio": 96, "disk_space_warning_level_ratio": 97}
    assert wants(verdict(96, 4, **keys)) == (True, False, False)
    assert wants(verdict(97, 3, **keys)) == (True, True, False)
    assert wants(verdict(98, 2, **keys)) == (True, True, True)


def test_no_more_is_to_go_than_brings_the_disk_below_the_limit():
    assert verdict(88, 12, disk_free_bytes_enough=0).excess == 3 * GIB
    assert verdict(970, 3).excess == GIB  # then 4 GiB are free, which is enough
    assert verdict(95, 5, disk_free_bytes_enough=0).excess == 10 * GIB


def test_a_full_data_folder_elsewhere_asks_for_one_file_at_a_time():
    found = verdict(1, 99, root=(99 * GIB, GIB))
    assert wants(found) == (True, True, True)
    assert found.excess == 1
    assert f"{ROOT} is 99 % full" in found.refuse


def test_the_refusal_names_folder_fullness_limit_and_what_to_do():
    refuse = verdict(97, 3).refuse
    for words in (LOG, "97 % full", "3.0 GiB are free", "diskSpaceWarningLevelRatio=90",
                  "diskFreeBytesEnough=4.0 GiB", "Free some space", "accepted again"):  # fmt: skip
        assert words in refuse
    assert "diskFreeBytesEnough" not in verdict(97, 3, disk_free_bytes_enough=0).refuse


def test_a_quota_keeps_room_for_the_next_file_and_refuses_only_what_is_over_it():
    quota = {"store_bytes_max": 10 * GIB}
    assert wants(verdict(1, 99, own=9 * GIB, next_file=GIB, **quota)) == (False, False, False)
    nearly = verdict(1, 99, own=9 * GIB + 5, next_file=GIB, **quota)
    assert wants(nearly) == (False, True, False)
    assert nearly.excess == 5
    over = verdict(1, 99, own=10 * GIB + 1, **quota)
    assert wants(over) == (False, True, True)
    assert "storeBytesMax=10.0 GiB" in over.refuse


def test_the_bytes_of_the_store_are_counted_only_for_a_quota():
    disk = MemoryDisk()
    disk.open(f"{ROOT}/commitlog/0", create=True).resize(1000)
    disk.open(f"{ROOT}/index/1", create=True).resize(24)
    disk.open("/elsewhere", create=True).resize(5000)
    disk.capacity = 10_000
    disk.taken = 76
    use = measure(disk, small_config())
    assert use.partitions == (Partition(LOG, 6100, 3900), Partition(ROOT, 6100, 3900))
    assert use.own_bytes == -1
    assert measure(disk, small_config(store_bytes_max=1)).own_bytes == 1024
    elsewhere = small_config(store_bytes_max=1, store_path_commit_log="/elsewhere")
    disk.open("/elsewhere/0", create=True).resize(10)
    assert measure(disk, elsewhere).own_bytes == 1034


def test_the_machines_disk_tells_its_space_and_what_a_folder_takes(tmp_path):
    disk = OsDisk()
    space = disk.space(str(tmp_path))
    assert space.used > 0
    assert space.free > 0
    (tmp_path / "deeper").mkdir()
    before = disk.used_bytes(str(tmp_path))
    full = disk.open(f"{tmp_path}/deeper/full", create=True)
    full.allocate(1 << 20)
    hole = disk.open(f"{tmp_path}/hole", create=True)
    hole.resize(1 << 30)
    assert (1 << 20) <= disk.used_bytes(str(tmp_path)) - before < (2 << 20)
    assert disk.used_bytes(f"{tmp_path}/none") == 0
    assert full.close()
    assert hole.close()
