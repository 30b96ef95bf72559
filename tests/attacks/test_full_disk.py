"""A disk that was really full lost acknowledged topics: the log had room, `topics.json` had none.

A broker's process on a small file system, which is filled under load; then it is killed. A short
cut by default; TROCKET_DISK_FILLS=20 fills each disk twenty times and prints the figures (-s).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .full_disk import FullDisk, QuotaDisk, TmpfsDisk, small_disk

FILLS = int(os.environ.get("TROCKET_DISK_FILLS", "2"))
SEED = int(os.environ.get("TROCKET_DISK_SEED", "1"))


def play(folder: Path, disk: TmpfsDisk | QuotaDisk, flush: str, fills: int) -> None:
    full_disk = FullDisk(folder, disk, flush, SEED)
    try:
        figures = full_disk.play(fills)
    finally:
        full_disk.close()
    print(f"{flush} on {type(disk).__name__}, seed {SEED}: {figures}")
    assert (figures.fills, figures.kills) == (fills, fills)
    assert figures.codes[14] > 0
    assert figures.lost == []
    assert figures.wrong == []
    assert figures.unwanted == []


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_all_that_was_acknowledged_is_readable_after_a_kill_on_a_full_disk(
    flush: str, tmp_path: Path
) -> None:
    with small_disk(tmp_path) as disk:
        play(tmp_path, disk, flush, FILLS)


@pytest.mark.slow
def test_the_same_holds_where_the_disk_is_full_by_quota(tmp_path: Path) -> None:
    play(tmp_path, QuotaDisk(tmp_path), "ASYNC_FLUSH", 1)
