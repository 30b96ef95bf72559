"""The benchmark of the embedded broker: each case once or twice, and its table."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from trocket.bench import embedded


@pytest.mark.parametrize("case", ["tcp", "memory", "restart", "advance"])
def test_a_case_measures_its_rounds(case: str) -> None:
    outcome = embedded.MEASURES[case](3)
    assert (outcome.case, outcome.rounds) == (case, 3)
    assert 0 < outcome.min_ms <= outcome.median_ms <= outcome.max_ms


def test_the_aim_is_compared_with_the_median() -> None:
    assert embedded.outcome("memory", [1.0, 9.0, 50.0]).is_reached is True
    assert embedded.outcome("memory", [11.0, 12.0]).is_reached is False
    assert embedded.outcome("restart", [1.0, 1.0]).is_reached is None


@pytest.mark.slow
def test_the_table_and_the_json() -> None:
    app = embedded.typer.Typer()
    app.command()(embedded.main)
    run = CliRunner().invoke
    shown = run(app, ["--case", "memory", "--rounds", "2"])
    assert shown.exit_code == 0
    assert "memory" in shown.output
    results = json.loads(run(app, ["--case", "memory", "--rounds", "2", "--json"]).output)
    assert [each["case"] for each in results] == ["memory"]
    assert run(app, ["--case", "nonsense"]).exit_code == 2
