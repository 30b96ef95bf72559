"""L17: what is deleted, and when, does not hang on a file's mtime or on a clock that jumps.

Apache takes a commit log file's age from its mtime and the wall clock: a backup copied back is
young again, a file that some tool touched lives longer, and a clock that jumps ahead deletes all
but the newest file. Over 85 % of the partition it deletes the oldest files whether expired or not,
ten at a time; over 90 % it refuses sends, a ratio set higher is silently taken for 90, and the
refusal does not say why.

Ours: a file is as old as its newest message; nothing expires while the clock is doubtful; no more
goes than is needed; every deletion is logged with offsets and reason; ratios count as they are set.
"""

from __future__ import annotations

import logging
import os

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.store.retention_service import Retention
from trocket.store.services import checkpoint_now

from ..support import open_store, send

HOUR_MS = 3_600_000
FILE = 64 * 1024
ALWAYS = ";".join(map(str, range(24)))


async def four_files(disk=None, **keys):
    """Four log files, the last one being filled; the last message is now."""
    store = open_store(disk, clock=ManualClock(), **{"delete_when": ALWAYS, **keys})
    for _ in range(4):
        store.begin_burst()
        send(store, bytes(FILE - 1000))
        store.clock.advance(HOUR_MS)
    await checkpoint_now(store)
    assert len(store.log.files) == 4
    return store


@pytest.mark.parametrize("mtime_s", [0, 4_000_000_000], ids=["ancient", "of the future"])
async def test_the_mtime_means_nothing(tmp_path, mtime_s):
    store = await four_files(OsDisk(), root=str(tmp_path), clean_file_forcibly_enable=False)
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (mtime_s, mtime_s))
    retention = Retention(store)
    retention.clean()
    assert store.min_physical_offset == 0
    store.clock.advance(69 * HOUR_MS)
    retention.clean()
    assert store.min_physical_offset == 2 * FILE
    store.close()


async def test_a_clock_a_year_ahead_deletes_nothing():
    store = await four_files()
    retention = Retention(store)
    retention.clean()
    store.clock.jump(365 * 24 * HOUR_MS)
    for _ in range(100):
        store.clock.advance(10_000)
        retention.clean()
    assert store.min_physical_offset == 0


async def test_a_clock_a_year_ahead_at_the_start_deletes_nothing_in_the_first_hour():
    disk = MemoryDisk()
    store = await four_files(disk)
    store.clock.jump(365 * 24 * HOUR_MS)
    disk.process_death()
    again = open_store(disk, clock=store.clock, delete_when=ALWAYS)
    retention = Retention(again)
    retention.clean()
    again.clock.advance(HOUR_MS - 1)
    retention.clean()
    assert again.min_physical_offset == 0


async def test_for_space_goes_what_is_needed_and_not_ten_files(caplog):
    disk = MemoryDisk()
    store = await four_files(disk, disk_space_clean_forcibly_ratio=50)
    own = sum(map(len, disk.contents.values()))
    disk.capacity = 100 * FILE
    disk.taken = 51 * FILE - own
    caplog.set_level(logging.INFO)
    Retention(store).clean()
    assert store.min_physical_offset == FILE
    (line,) = [r.message for r in caplog.records if "/commitlog/" in r.message]
    assert "physical offsets 0 to 65535" in line
    assert "diskSpaceCleanForciblyRatio: the disk of /data/commitlog is 51 % full" in line


async def test_a_ratio_above_90_counts_as_it_is_set():
    disk = MemoryDisk()
    keys = {"disk_space_warning_level_ratio": 97, "disk_space_clean_forcibly_ratio": 96}
    store = await four_files(disk, **keys)
    own = sum(map(len, disk.contents.values()))
    disk.capacity = 1000 * FILE
    disk.taken = 960 * FILE - own
    Retention(store).clean()
    assert (store.min_physical_offset, store.trouble) == (0, "")
    disk.taken += 30 * FILE
    Retention(store).clean()
    assert store.min_physical_offset == 3 * FILE
    assert "is 99 % full" in store.trouble
