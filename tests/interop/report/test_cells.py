"""Runs as data: counted, kept as JSON, compared with Apache's."""

from __future__ import annotations

import pytest

from trocket.interop.report.cells import Cell, Kind, Run, Verdict, worse_than


def cell(broker: str, verdict: Verdict, feature: str = "send") -> Cell:
    return Cell(Kind.SCENARIO, feature, "go", broker, verdict, detail="ü", frames=("> 10",))


def test_json_there_and_back() -> None:
    run = Run("2026-11-22T03:00:00Z", 1.5, {"go": "1.26"}, (cell("trocket", Verdict.FAILED),))
    assert Run.from_json(run.to_json()) == run
    assert run.failed[0].name == "scenario/send/go/trocket/none"
    assert run.counts()[Verdict.FAILED] == 1
    assert run.counts()[Verdict.SKIPPED] == 0


def test_runs_played_in_parts_are_one() -> None:
    first = Run("2026-11-22T04:00:00Z", 2.0, {"go": "1.26", "apache brokers": "5.5.0"},
        (cell("trocket", Verdict.FAILED), cell("apache-5.5.0", Verdict.PASSED)))  # fmt: skip
    again = Run("2026-11-22T05:00:00Z", 1.0, {"go": "1.26", "apache brokers": "4.9.7, 5.5.0"},
        (cell("trocket", Verdict.PASSED), cell("apache-4.9.7", Verdict.PASSED)))  # fmt: skip
    run = Run.together([first, again])
    assert (run.started_at, run.seconds) == ("2026-11-22T04:00:00Z", 3.0)
    assert run.versions == {"go": "1.26", "apache brokers": "5.5.0, 4.9.7"}
    assert [(each.broker, each.verdict) for each in run.cells] == [
        ("trocket", Verdict.PASSED),
        ("apache-5.5.0", Verdict.PASSED),
        ("apache-4.9.7", Verdict.PASSED),
    ]
    assert Run.together([first]) == first


def test_what_is_no_run() -> None:
    with pytest.raises(ValueError, match="started_at"):
        Run.from_json(b"{}")


@pytest.mark.parametrize(
    ("ours", "count"),
    [(Verdict.PASSED, 0), (Verdict.QUIRK, 0), (Verdict.FAILED, 1), (Verdict.SKIPPED, 1)],
)
def test_what_passes_for_apache_must_pass_for_ours(ours: Verdict, count: int) -> None:
    apaches = [cell("apache", Verdict.PASSED), cell("apache", Verdict.FAILED, "other")]
    assert len(worse_than([cell("trocket", ours)], apaches)) == count


def test_a_missing_cell_is_worse() -> None:
    assert len(worse_than([], [cell("apache", Verdict.PASSED)])) == 1


def test_what_is_worse_is_looked_for_among_apaches_brokers_and_in_the_same_kind() -> None:
    def run(*cells: Cell) -> Run:
        return Run("2026-11-22T03:00:00Z", 1.0, {}, cells)

    failed, passed = cell("trocket", Verdict.FAILED), cell("apache-5.5.0", Verdict.PASSED)
    over = cell("apache-5.5.0 over trocket", Verdict.PASSED)
    assert run(failed, passed, over).worse == [passed]
    assert run(passed).worse == []
    oracle = Cell(Kind.ORACLE, "frames", "oracle", "apache-5.5.0", Verdict.PASSED)
    assert run(failed, oracle).worse == []
