"""`trocket interop`: flags, progress, reports, exit statuses; jobs made up, and real ones."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.kit.matrix import first_of
from trocket.cli.main import main
from trocket.interop import providers
from trocket.interop.jobs import Job, OnCell
from trocket.interop.report.cells import Cell, Kind, Run, Verdict

from ..kit.waiting import wait_until
from .conftest import Command

DEADLINE_S = 60.0


def owed(feature: str, broker: str = "trocket") -> Cell:
    return Cell(Kind.WIRE, feature, "wire", broker, Verdict.SKIPPED)


def with_verdict(cell: Cell, verdict: Verdict, detail: str = "") -> Cell:
    return Cell(cell.kind, cell.feature, cell.client, cell.broker, verdict, detail=detail)


def give(monkeypatch: pytest.MonkeyPatch, *jobs: Job) -> None:
    """Let these be the jobs of the wire, and of nothing else."""
    empty = dict.fromkeys(Kind, lambda wanted: [])
    monkeypatch.setattr(providers, "PROVIDERS", {**empty, Kind.WIRE: lambda wanted: list(jobs)})


def job(name: str, verdict: Verdict, *cells: Cell, detail: str = "") -> Job:
    def play(wanted: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        for cell in wanted:
            on_cell(with_verdict(cell, verdict, detail))

    return Job(name, cells, play)


@pytest.mark.slow
def test_all_passed_is_status_0_and_prints_a_matrix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, job("one", Verdict.PASSED, owed("a"), owed("b")))
    assert main(["interop", "run"]) == 0
    captured = capsys.readouterr()
    assert "\nwire  trocket         2        0         0          0\n" in captured.out
    assert "versions: trocket " in captured.out
    assert "2 cells: 2 passed, 0 quirk, 0 failed, 0 skipped; " in captured.out


@pytest.mark.slow
def test_a_failure_is_status_1_and_printed_in_detail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(
        monkeypatch,
        job("ours", Verdict.FAILED, owed("a"), detail="expected 1\ngot 2 \x1b[31m"),
        job("apache", Verdict.PASSED, owed("a", "apache-5.5.0")),
    )
    assert main(["interop", "run", "--parallel", "1"]) == 1
    captured = capsys.readouterr()
    expected = "✗ wire/a/wire/trocket/none\n    expected 1\n    got 2 \\x1b[31m\n"
    assert expected in captured.out
    worse = "passed on Apache's broker, but not on trocket:\n    wire/a/wire/apache-5.5.0/none\n"
    assert worse in captured.out


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(["conftest.py", "tests/conftest.py"]))
def test_a_conftest_of_the_current_folder_has_no_effect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """The one of trocket's checkout has a scheduler that spreads a job's cells over processes."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(
        "def pytest_collection_modifyitems(items):\n"
        "    raise RuntimeError('the conftest.py of the current folder was loaded')\n"
    )
    monkeypatch.chdir(tmp_path)
    give(monkeypatch, job("one", Verdict.PASSED, owed("a"), owed("b")))
    assert main(["interop", "run"]) == 0


@pytest.mark.slow
def test_every_report_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give(monkeypatch, job("one", Verdict.QUIRK, owed("a"), detail="quirks.md, a row"))
    files = {name: tmp_path / f"run.{name}" for name in ("json", "junit", "html")}
    arguments = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    assert main(["interop", "run", *arguments]) == 0
    run = Run.from_json(files["json"].read_bytes())
    assert [(cell.feature, cell.verdict) for cell in run.cells] == [("a", Verdict.QUIRK)]
    assert run.versions["trocket"]
    again = [tmp_path / f"again.{name}" for name in ("html", "xml", "md")]
    arguments = ["--html", str(again[0]), "--junit", str(again[1]), "--markdown", str(again[2])]
    assert main(["interop", "report", str(files["json"]), *arguments]) == 0
    for page in (files["html"], again[0]):
        text = page.read_text(encoding="utf-8")
        assert "test_cell[wire/a/wire/trocket/none]" in text
        assert run.versions["trocket"] in text
    for document in (files["junit"], again[1]):
        (suite,) = ElementTree.parse(document).getroot()
        assert {name: suite.get(name) for name in ("name", "tests", "failures", "skipped")} == {
            "name": "trocket interop", "tests": "1", "failures": "0", "skipped": "0",
        }  # fmt: skip
        (difference,) = suite.iter("property")
        assert difference.get("value") == "quirks.md, a row"
    assert "# Compatibility" in again[2].read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_selection_plays_and_lists_only_what_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(
        monkeypatch,
        job("one", Verdict.PASSED, owed("send"), owed("pull")),
        job("two", Verdict.PASSED, owed("query")),
    )
    assert main(["interop", "run", "--list", "-s", "PULL", "-s", "query"]) == 0
    names = ["wire/pull/wire/trocket/none", "wire/query/wire/trocket/none"]
    assert capsys.readouterr().out.splitlines() == names
    assert main(["interop", "run", "--select", "wire/pull/"]) == 0
    captured = capsys.readouterr()
    assert "1 cell: 1 passed" in captured.out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--broker", "apache-new"], "there is no peer 'apache-new'"),
        (["--client", "cobol"], "--client: unknown name 'cobol'; choose from java-5.5.0, "),
        (["--fault", "fire"], "--fault: unknown name 'fire'; choose from none, restart, "),
        (["--select", "no such cell"], "no cell with 'no such cell' in its name"),
        (["--html", "/nowhere/run.html"], "cannot write /nowhere/run.html: "),
        (["--json", "/tmp"], "cannot write /tmp: "),
        (["--kind", "dance"], "dance"),
        (["--parallel", "0"], "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_right_is_status_2_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    expected: str,
) -> None:
    give(monkeypatch, job("one", Verdict.PASSED, owed("a")))
    assert main(["interop", "run", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err


def test_a_report_of_what_is_no_run_is_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    assert main(["interop", "report", str(path)]) == 2
    assert f"cannot read {path}: No such file" in capsys.readouterr().err
    path.write_text('{"started_at": 7}')
    assert main(["interop", "report", str(path)]) == 2
    assert (
        f"{path} is not a file written by `trocket interop run --json`: " in capsys.readouterr().err
    )


@pytest.mark.parametrize("command", ["run", "report", "diff", "record"])
def test_every_command_has_help_with_an_example_and_is_in_the_docs(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["interop", command, "--help"]) == 0
    example = f"trocket interop {command}"
    assert f"Example: {example}" in " ".join(capsys.readouterr().out.split())
    page = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
    assert example in page.read_text(encoding="utf-8")


def test_every_kind_has_its_jobs() -> None:
    wanted = providers.Wanted(brokers=("trocket", "apache-5.5.0"))
    for kind in Kind:
        cells = [cell for job in providers.find_jobs([kind], wanted) for cell in job.owed]
        assert {cell.kind for cell in cells} == {kind}
        assert len({cell.name for cell in cells}) == len(cells) > 10


# ---- as processes of their own -----------------------------------------------------------

SCENARIO = [
    "interop", "run", "--kind", "scenario", "--broker", "trocket", "--client", "python-trio",
    "--fault", "none",
]  # fmt: skip
"""Needs neither Java nor Go."""


@pytest.mark.slow
def test_a_scenario_is_played_and_reported(start: Callable[..., Command], tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    command = start(*SCENARIO, "--select", "send_sync", "--json", str(path))
    status, out, error = command.end_within(DEADLINE_S)
    assert status == 0, error
    (cell,) = Run.from_json(path.read_bytes()).cells
    assert (cell.name, cell.verdict) == (
        "scenario/send_sync/python-trio/trocket/none",
        Verdict.PASSED,
    )
    assert "1 cell: 1 passed" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", first_of([signal.SIGTERM, signal.SIGINT]), ids=lambda number: number.name
)
def test_a_signal_ends_a_run_with_everything_that_it_started(
    start: Callable[..., Command], tmp_path: Path, number: signal.Signals
) -> None:
    folder, path = tmp_path / "tmp", tmp_path / "run.json"
    folder.mkdir()
    command = start(*SCENARIO, "--json", str(path), environment={"TMPDIR": str(folder)})
    wait_until(lambda: bool(started_in(folder)))
    status, out, error = command.end_within(DEADLINE_S, number)
    assert status == 130, error
    wait_until(lambda: not started_in(folder))
    assert list(folder.iterdir()) == []
    run = json.loads(path.read_bytes())
    assert len(run["cells"]) > 20
    assert "failed" not in {cell["verdict"] for cell in run["cells"]}
    assert f"written: {path}" in error
    assert "skipped" in out


def started_in(folder: Path) -> list[int]:
    """Processes whose working directory is in a folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
        except OSError:
            continue
    return found
