"""Runs of both benchmarks of scale: their exit status, and what a stopped run leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from trocket.bench import scale_broker, scale_namesrv
from trocket.bench.scale_broker import Part
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_meter import Curves, Found, Task
from trocket.bench.scale_namesrv_peers import Size

Measure = Callable[[Found], list[Curve]]
Run = Callable[..., Result]


@pytest.fixture(params=["broker", "namesrv"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a benchmark whose part `fake` is a function, with further options."""

    def run_one(measure: Measure, *options: str) -> Result:
        async def of_namesrv(_: Size, found: Found) -> list[Curve]:
            return measure(found)

        def of_broker(task: Task) -> list[Curve]:
            return measure(task.found)

        monkeypatch.setitem(scale_broker.PARTS, "fake", Part(1, of_broker))
        monkeypatch.setitem(scale_namesrv.PARTS, "fake", of_namesrv)
        app = typer.Typer()
        app.command()(scale_broker.main if request.param == "broker" else scale_namesrv.main)
        return CliRunner().invoke(app, ["--part", "fake", *options])

    return run_one


def costs(*values: float, first: int = 1) -> Measure:
    """A curve that claims not to grow, of sizes that grow tenfold."""

    def measure(found: Found) -> list[Curve]:
        curves = Curves("things", found)
        for place, value in enumerate(values):
            curves.add("a thing", "ms", 0, first * 10**place, value)
        return curves.all()

    return measure


def stopped(found: Found) -> list[Curve]:
    costs(3.0)(found)
    raise KeyboardInterrupt


def points_in(path: Path) -> list[tuple[int, float]]:
    (curve,) = json.loads(path.read_text())["curves"]
    return [(point["size"], point["cost"]) for point in curve["points"]]


@pytest.mark.parametrize(("values", "status"), [((2.0, 2.1, 2.2), 0), ((2.0, 4.0, 8.0), 1)])
def test_the_exit_status_says_whether_claims_are_kept(
    run: Run, values: tuple[float, ...], status: int
) -> None:
    result = run(costs(*values))
    assert result.exit_code == status
    assert ("GROWS FASTER" in result.stdout) == bool(status)


def test_a_run_that_is_stopped_keeps_its_points(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    result = run(stopped, "--json", str(path))
    assert result.exit_code != 0
    assert points_in(path) == [(1, 3.0)]
    assert "a thing" in result.stdout
    assert "a thing: 3 ms at 1 things" in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_further_run_adds_its_points(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    assert run(costs(2.0, 2.0), "--json", str(path)).exit_code == 0
    assert run(costs(9.0, first=100), "--json", str(path)).exit_code == 1
    assert points_in(path) == [(1, 2.0), (10, 2.0), (100, 9.0)]
    whole = json.loads(path.read_text())
    assert [each["parts"] for each in whole["runs"]] == [["fake"], ["fake"]]
    assert not whole["curves"][0]["keeps"]


def test_another_file_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text('{"curves": 3}')
    result = run(costs(2.0), "--json", str(path))
    assert result.exit_code == 2
    assert path.read_text() == '{"curves": 3}'


@pytest.mark.parametrize("sizes", ["", "0", "10,1", "1,1", "1,x", "-1", "1,"])
def test_sizes_are_rising_numbers(sizes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scale_broker.PARTS, "fake", Part(1, lambda task: costs(1.0)(task.found)))
    app = typer.Typer()
    app.command()(scale_broker.main)
    result = CliRunner().invoke(app, ["--part", "fake", "--sizes", sizes])
    assert result.exit_code == 2
