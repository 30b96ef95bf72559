"""Old files of a commit log lose their blocks, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trocket.bench.official_disk import KEPT_FILES, LogTrimmer, old_files
from trocket.interop.process import PeerError

SIZE = 1 << 20
COUNT = KEPT_FILES + 2


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "cluster" / "store" / "commitlog"
    folder.mkdir(parents=True)
    for number in range(COUNT):
        (folder / f"{number * SIZE:020}").write_bytes(b"x" * SIZE)
    (folder / "lock").touch()
    return folder


def contents(log: Path) -> list[bytes]:
    return [path.read_bytes()[:1] for path in sorted(log.glob("0*"))]


def roomy(folder: Path) -> float:
    return 0.1


def test_the_newest_files_and_what_is_no_log_file_are_not_old(log: Path) -> None:
    assert [path.name for path in old_files(log)] == [f"{0:020}", f"{SIZE:020}"]


@pytest.mark.skipif(shutil.which("fallocate") is None, reason="no fallocate in PATH")
def test_old_files_keep_their_size_and_lose_their_content(log: Path, tmp_path: Path) -> None:
    LogTrimmer(tmp_path, is_read=False, used=roomy).trim()
    assert contents(log) == [b"\0", b"\0", *[b"x"] * KEPT_FILES]
    assert {path.stat().st_size for path in log.glob("0*")} == {SIZE}


def test_a_log_that_consumers_read_is_left_alone(log: Path, tmp_path: Path) -> None:
    LogTrimmer(tmp_path, is_read=True, used=roomy).trim()
    assert contents(log) == [b"x"] * COUNT


def test_a_disk_on_which_brokers_would_delete_ends_the_run(tmp_path: Path) -> None:
    trimmer = LogTrimmer(tmp_path, is_read=True, used=lambda folder: 0.74)
    with pytest.raises(PeerError, match="74% full"):
        trimmer.trim()
