"""The runner on jobs without peers: every cell gets a verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trocket.interop.cases.job_runner import JobRunner
from trocket.interop.jobs import Job, OnCell
from trocket.interop.process import PeerError
from trocket.interop.report.cells import Cell, Kind, Verdict

DEADLINE_S = 20.0

Play = Callable[[Sequence[Cell], Path, OnCell], None]


def cell(feature: str, verdict: Verdict = Verdict.SKIPPED, detail: str = "") -> Cell:
    return Cell(Kind.WIRE, feature, "wire", "trocket", verdict, detail=detail)


def play_all(cells: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    for each in cells:
        on_cell(cell(each.feature, Verdict.PASSED))


def job(name: str, play: Play, *features: str) -> Job:
    return Job(name, tuple(map(cell, features)), play)


def found(runner: JobRunner, *features: str) -> list[tuple[Verdict, str]]:
    results = [runner.result(cell(feature)) for feature in features]
    return [(result.verdict, result.detail) for result in results]


def test_a_cell_is_known_as_soon_as_it_is_reported(tmp_path: Path) -> None:
    is_read = threading.Event()

    def play(cells: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        on_cell(cell("b", Verdict.PASSED))
        assert is_read.wait(DEADLINE_S)
        on_cell(cell("a", Verdict.QUIRK, "row 7"))

    runner = JobRunner([job("one", play, "a", "b")], tmp_path)
    assert found(runner, "b") == [(Verdict.PASSED, "")]
    is_read.set()
    assert found(runner, "a", "b") == [(Verdict.QUIRK, "row 7"), (Verdict.PASSED, "")]


def test_a_job_is_played_once_and_only_when_it_is_asked_for(tmp_path: Path) -> None:
    played: list[str] = []

    def player(name: str) -> Play:
        def play(cells: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
            played.append(name)
            play_all(cells, folder, on_cell)

        return play

    runner = JobRunner([job(name, player(name), name, f"{name}2") for name in "xyz"], tmp_path)
    found(runner, "z", "x", "z2", "x2", "z")
    runner.close()
    assert played == ["z", "x"]


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (PeerError("broker ended\nstdout of broker:"), "broker ended\nstdout of broker:"),
        (ValueError("bad"), "ValueError: bad"),
    ],
)
def test_a_job_that_breaks_down_fails_what_it_still_owed(
    tmp_path: Path, error: Exception, detail: str
) -> None:
    def play(cells: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        on_cell(cell("a", Verdict.PASSED))
        raise error

    runner = JobRunner([job("broken", play, "a", "b"), job("after", play_all, "c")], tmp_path)
    assert found(runner, "a", "b", "c") == [
        (Verdict.PASSED, ""),
        (Verdict.FAILED, detail),
        (Verdict.PASSED, ""),
    ]


def test_a_job_that_forgets_a_cell_fails_it(tmp_path: Path) -> None:
    runner = JobRunner([job("silent", lambda cells, folder, on_cell: None, "a")], tmp_path)
    assert found(runner, "a") == [(Verdict.FAILED, "its job ended without reporting it")]


def test_a_failure_is_not_taken_back(tmp_path: Path) -> None:
    def play(cells: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        on_cell(cell("a", Verdict.FAILED, "once"))
        on_cell(cell("a", Verdict.PASSED))
        on_cell(cell("b", Verdict.PASSED))

    runner = JobRunner([job("twice", play, "a", "b")], tmp_path)
    assert found(runner, "b", "a") == [(Verdict.PASSED, ""), (Verdict.FAILED, "once")]


def test_each_job_has_its_folder_which_is_removed_before_the_next_begins(tmp_path: Path) -> None:
    seen: list[list[Path]] = []
    run = tmp_path / "run"

    def play(cells: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        (folder / "store").mkdir()
        seen.append(list(run.iterdir()))
        assert seen[-1] == [folder]
        play_all(cells, folder, on_cell)

    runner = JobRunner([job("a/../b c", play, "a"), job("a/../b d", play, "b")], run)
    assert found(runner, "a", "b") == [(Verdict.PASSED, "")] * 2
    runner.close()
    assert len({*seen[0], *seen[1]}) == 2
    assert list(run.iterdir()) == []


def test_a_job_that_is_left_early_has_its_peers_killed(tmp_path: Path) -> None:
    killed = threading.Event()

    def play(cells: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        on_cell(cell("a", Verdict.PASSED))
        assert killed.wait(DEADLINE_S)
        raise PeerError("broker ended")

    runner = JobRunner([job("waits", play, "a", "b")], tmp_path, end_peers=killed.set)
    assert found(runner, "a") == [(Verdict.PASSED, "")]
    runner.close()
    assert killed.is_set()
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_done_is_not_killed(tmp_path: Path) -> None:
    killed = threading.Event()
    runner = JobRunner([job("done", play_all, "a")], tmp_path, end_peers=killed.set)
    found(runner, "a")
    runner.close()
    assert not killed.is_set()
