"""`trocket interop diff`: the table, the counts, the exit status."""

from __future__ import annotations

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from trocket.cli.interop.diff import diff, summary
from trocket.interop.jobs import Job
from trocket.interop.report.cells import Cell, Kind, Verdict

app = typer.Typer()
app.command()(diff)

PASSED = Cell(Kind.WIRE, "HEART_BEAT 34: a [x]", "wire", "b", Verdict.PASSED)
FAILED = Cell(
    Kind.WIRE,
    "PULL_MESSAGE 11: c [x]",
    "wire",
    "b",
    Verdict.FAILED,
    detail="fields.offset: '1' / '2'\ncode: 0 / 1",
    frames=("trocket < PULL", "trocket > SUCCESS"),
)


@pytest.fixture
def played(monkeypatch):
    """Sets which cells the differ will tell; gives what it was asked for."""
    asked: list[tuple[str, list[str]]] = []

    def set_cells(*cells: Cell) -> list[tuple[str, list[str]]]:
        def play(owed, folder, tell):
            names = {cell.name for cell in owed}
            for cell in cells:
                if cell.name in names:
                    tell(cell)

        def jobs(ours, apaches):
            asked.append((ours, list(apaches)))
            return [Job("wire", cells, play)]

        monkeypatch.setattr("trocket.interop.wire_differ.differ.jobs", jobs)
        monkeypatch.setattr("trocket.interop.wire_differ.differ.accounts_jobs", lambda *_: [])
        monkeypatch.setattr("trocket.interop.grpc_differ.differ.jobs", lambda *_: [])
        return asked

    return set_cells


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


def test_without_differences_it_ends_well_and_counts(played):
    asked = played(PASSED)
    result = run()
    assert result.exit_code == 0
    assert asked == [("trocket", ["apache-5.5.0"])]
    assert "HEART_BEAT 34: a [x]" in result.output
    assert "1 passed, 0 quirk, 0 failed, 0 skipped" in result.output
    found = re.search(
        r"of (\d+) served codes, (\d+) get valid requests and (\d+) invalid", result.output
    )
    assert found is not None
    assert len(set(found.groups())) == 1


def test_a_difference_is_shown_in_full_and_fails(played):
    played(PASSED, FAILED)
    result = run("trocket", "apache-4.9.7")
    assert result.exit_code == 1
    for text in (*FAILED.detail.splitlines(), *FAILED.frames):
        assert text in result.output


def test_a_selection_is_all_that_is_played(played):
    played(PASSED, FAILED)
    result = run("--select", "HEART_BEAT")
    assert result.exit_code == 0
    assert "PULL_MESSAGE" not in result.output


def test_json_is_the_cells(played):
    played(PASSED, FAILED)
    result = run("--json")
    assert result.exit_code == 1
    cells = json.loads(result.output)
    assert [cell["verdict"] for cell in cells] == ["passed", "failed"]
    assert cells[1]["frames"] == list(FAILED.frames)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nobody"], "there is no peer 'nobody'"),
        (["trocket", "apache-x"], "there is no peer 'apache-x'"),
        (["--select", "nonsense"], "no request has 'nonsense' in its name"),
    ],
)
def test_wrong_usage_is_reported(played, arguments, text):
    played(PASSED)
    result = run(*arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_the_counts_are_of_the_catalogue():
    first, *servers = summary([PASSED, PASSED])
    assert first == "2 passed, 0 quirk, 0 failed, 0 skipped"
    assert [line.partition(":")[0] for line in servers] == ["name server", "broker"]
