"""The runner with jobs that need no peers: what comes out, whatever the jobs do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from trocket.interop.jobs import Job, Tell
from trocket.interop.process import PeerError
from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.runner import ENDED, Runner

DEADLINE_S = 20.0

Play = Callable[[Sequence[Cell], Path, Tell], None]


def owed(*features: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(Kind.WIRE, feature, "wire", "trocket", Verdict.SKIPPED) for feature in features
    )


def passed(cell: Cell) -> Cell:
    return Cell(cell.kind, cell.feature, cell.client, cell.broker, Verdict.PASSED)


def play_all(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
    for cell in cells:
        tell(passed(cell))


def job(name: str, play: Play, *features: str, alone: bool = False) -> Job:
    return Job(name, owed(*features), play, alone)


class Watch:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def job_started(self, job: Job) -> None:
        self.lines.append(f"start {job.name}")

    def cell_told(self, cell: Cell) -> None:
        self.lines.append(f"{cell.verdict} {cell.feature}")

    def job_ended(self, job: Job, seconds: float) -> None:
        assert seconds >= 0
        self.lines.append(f"end {job.name}")


def test_cells_come_in_the_order_of_the_jobs(tmp_path: Path) -> None:
    second_told = threading.Event()

    def late(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        assert second_told.wait(DEADLINE_S)
        for cell in reversed(cells):
            tell(passed(cell))

    def early(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        play_all(cells, folder, tell)
        second_told.set()

    runner = Runner([job("1", late, "a", "b"), job("2", early, "c")], folder=tmp_path, parallel=2)
    cells = runner.run()
    assert [(cell.feature, cell.verdict) for cell in cells] == [
        ("a", Verdict.PASSED),
        ("b", Verdict.PASSED),
        ("c", Verdict.PASSED),
    ]


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
        tell(passed(cells[0]))
        raise error

    after = job("after", play_all, "c")
    cells = Runner([job("broken", play, "a", "b"), after], folder=tmp_path, parallel=1).run()
    assert [cell.verdict for cell in cells] == [Verdict.PASSED, Verdict.FAILED, Verdict.PASSED]
    assert cells[1].detail == detail


def test_a_job_that_forgets_a_cell_fails_it(tmp_path: Path) -> None:
    silent = job("silent", lambda cells, folder, tell: None, "a")
    (cell,) = Runner([silent], folder=tmp_path).run()
    assert (cell.verdict, cell.detail) == (Verdict.FAILED, "its job ended without telling it")


def test_a_failure_is_not_taken_back_and_what_was_not_owed_is_kept(tmp_path: Path) -> None:
    def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        tell(Cell(Kind.WIRE, "a", "wire", "trocket", Verdict.FAILED, detail="once"))
        tell(passed(cells[0]))
        tell(passed(owed("more")[0]))

    cells = Runner([job("twice", play, "a")], folder=tmp_path).run()
    assert [(cell.feature, cell.verdict) for cell in cells] == [
        ("a", Verdict.FAILED),
        ("more", Verdict.PASSED),
    ]


def test_each_job_has_a_folder_of_its_own_that_is_removed(tmp_path: Path) -> None:
    folders: list[Path] = []

    def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        (folder / "store").mkdir()
        (folder / "store" / "file").write_text("x")
        folders.append(folder)
        raise PeerError("broken")

    jobs = [job("a/../b c", play, "a"), job("a/../b c", play, "b", alone=True)]
    Runner(jobs, folder=tmp_path / "run").run()
    assert len({*folders}) == 2
    assert all(folder.parent == tmp_path / "run" for folder in folders)
    assert list((tmp_path / "run").iterdir()) == []


def test_so_many_jobs_are_played_at_a_time_and_alone_ones_alone(tmp_path: Path) -> None:
    meeting = threading.Barrier(2)
    under_way: set[str] = set()
    at_once: list[frozenset[str]] = []

    def player(name: str, *, meets: bool) -> Play:
        def play(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
            under_way.add(name)
            at_once.append(frozenset(under_way))
            if meets:
                meeting.wait(DEADLINE_S)
            play_all(cells, folder, tell)
            under_way.discard(name)

        return play

    jobs = [job("alone", player("alone", meets=False), "z", alone=True)]
    jobs += [job(name, player(name, meets=True), name) for name in "abcd"]
    cells = Runner(jobs, folder=tmp_path, parallel=2).run()
    assert [cell.verdict for cell in cells] == [Verdict.PASSED] * 5
    assert at_once[-1] == {"alone"}
    assert max(map(len, at_once)) == 2


def test_the_watcher_is_told(tmp_path: Path) -> None:
    watch = Watch()
    Runner([job("one", play_all, "a", "b")], folder=tmp_path, watcher=watch).run()
    assert watch.lines == ["start one", "passed a", "passed b", "end one"]


def test_a_run_that_is_stopped_kills_the_peers_and_skips_the_rest(tmp_path: Path) -> None:
    begun, killed = threading.Event(), threading.Event()

    def waits(cells: Sequence[Cell], folder: Path, tell: Tell) -> None:
        tell(passed(cells[0]))
        begun.set()
        assert killed.wait(DEADLINE_S)
        raise PeerError("broker ended")

    jobs = [job("waits", waits, "a", "b"), job("never", play_all, "c")]
    runner = Runner(jobs, folder=tmp_path, parallel=1, end_peers=killed.set)
    stopper = threading.Thread(target=lambda: (begun.wait(DEADLINE_S), runner.stop()))
    stopper.start()
    cells = runner.run()
    stopper.join()
    assert runner.was_stopped
    assert [(cell.verdict, cell.detail) for cell in cells] == [
        (Verdict.PASSED, ""),
        (Verdict.SKIPPED, ENDED),
        (Verdict.SKIPPED, ENDED),
    ]
    assert list(tmp_path.iterdir()) == []


def test_nothing_to_play(tmp_path: Path) -> None:
    assert Runner([], folder=tmp_path).run() == ()
