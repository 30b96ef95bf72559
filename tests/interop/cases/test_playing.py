"""Jobs that need no peers: what comes out of each cell, whatever the jobs do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trocket.interop.cases.playing import Plays
from trocket.interop.jobs import Job, Tell
from trocket.interop.process import PeerError
from trocket.interop.report.cells import Cell, Kind, Verdict

DEADLINE_S = 20.0

Play = Callable[[Sequence[Cell], Path, Tell], None]


def cell(feature: str, verdict: Verdict = Verdict.SKIPPED, detail: str = "") -> Cell:
    return Cell(Kind.WIRE, feature, "wire", "trocket", verdict, detail=detail)


def play_all(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
    for each in cells:
        tell(cell(each.feature, Verdict.PASSED))


def job(name: str, play: Play, *features: str) -> Job:
    return Job(name, tuple(map(cell, features)), play)


def found(plays: Plays, *features: str) -> list[tuple[Verdict, str]]:
    results = [plays.result(cell(feature)) for feature in features]
    return [(result.verdict, result.detail) for result in results]


def test_a_cell_is_known_as_soon_as_it_is_told(tmp_path: Path) -> None:
    is_read = threading.Event()

    def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        tell(cell("b", Verdict.PASSED))
        assert is_read.wait(DEADLINE_S)
        tell(cell("a", Verdict.QUIRK, "row 7"))

    plays = Plays([job("one", play, "a", "b")], tmp_path)
    assert found(plays, "b") == [(Verdict.PASSED, "")]
    is_read.set()
    assert found(plays, "a", "b") == [(Verdict.QUIRK, "row 7"), (Verdict.PASSED, "")]


def test_a_job_is_played_once_and_only_when_it_is_asked_for(tmp_path: Path) -> None:
    played: list[str] = []

    def player(name: str) -> Play:
        def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
            played.append(name)
            play_all(cells, folder, tell)

        return play

    plays = Plays([job(name, player(name), name, f"{name}2") for name in "xyz"], tmp_path)
    found(plays, "z", "x", "z2", "x2", "z")
    plays.close()
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
    def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        tell(cell("a", Verdict.PASSED))
        raise error

    plays = Plays([job("broken", play, "a", "b"), job("after", play_all, "c")], tmp_path)
    assert found(plays, "a", "b", "c") == [
        (Verdict.PASSED, ""),
        (Verdict.FAILED, detail),
        (Verdict.PASSED, ""),
    ]


def test_a_job_that_forgets_a_cell_fails_it(tmp_path: Path) -> None:
    plays = Plays([job("silent", lambda cells, folder, tell: None, "a")], tmp_path)
    assert found(plays, "a") == [(Verdict.FAILED, "its job ended without telling it")]


def test_a_failure_is_not_taken_back(tmp_path: Path) -> None:
    def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        tell(cell("a", Verdict.FAILED, "once"))
        tell(cell("a", Verdict.PASSED))
        tell(cell("b", Verdict.PASSED))

    plays = Plays([job("twice", play, "a", "b")], tmp_path)
    assert found(plays, "b", "a") == [(Verdict.PASSED, ""), (Verdict.FAILED, "once")]


def test_each_job_has_its_folder_which_is_removed_before_the_next_begins(tmp_path: Path) -> None:
    seen: list[list[Path]] = []
    run = tmp_path / "run"

    def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        (folder / "store").mkdir()
        seen.append(list(run.iterdir()))
        assert seen[-1] == [folder]
        play_all(cells, folder, tell)

    plays = Plays([job("a/../b c", play, "a"), job("a/../b d", play, "b")], run)
    assert found(plays, "a", "b") == [(Verdict.PASSED, "")] * 2
    plays.close()
    assert len({*seen[0], *seen[1]}) == 2
    assert list(run.iterdir()) == []


def test_a_job_that_is_left_early_has_its_peers_killed(tmp_path: Path) -> None:
    killed = threading.Event()

    def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        tell(cell("a", Verdict.PASSED))
        assert killed.wait(DEADLINE_S)
        raise PeerError("broker ended")

    plays = Plays([job("waits", play, "a", "b")], tmp_path, end_peers=killed.set)
    assert found(plays, "a") == [(Verdict.PASSED, "")]
    plays.close()
    assert killed.is_set()
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_done_is_not_killed(tmp_path: Path) -> None:
    killed = threading.Event()
    plays = Plays([job("done", play_all, "a")], tmp_path, end_peers=killed.set)
    found(plays, "a")
    plays.close()
    assert not killed.is_set()
