"""The plan of an official benchmark, and its report as tables, JSON and part of a document."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from trocket.bench.official import contenders, main, merged
from trocket.bench.official_figures import (
    BrokerResult,
    Figures,
    Memory,
    Report,
    WarmUp,
    WorkloadResult,
    first_minute_rows,
    memory_rows,
    steady_rows,
)
from trocket.bench.official_load import WORKLOADS
from trocket.bench.official_report import (
    BEGIN,
    END,
    markdown,
    notes,
    tables,
    write_into,
)

APACHE, OURS, PURE = "apache-5.5.0", "trocket", "trocket TROCKET_PURE=1"
FIGURES = Figures(
    seconds=30.0,
    send_per_s=1234.5,
    send_ms=2.0,
    broker_cpu_us=30.0,
    clients_cpu_us=40.0,
    other_cores=0.1,
)


def result(workload: str, *, is_steady: bool = True, error: str = "") -> WorkloadResult:
    warm_up = WarmUp(seconds=91.0, is_steady=is_steady, windows={"Producer": [1200, 1300, 1234]})
    return WorkloadResult(
        workload=workload,
        brokers=[
            BrokerResult(
                broker=name,
                first_minute=FIGURES,
                warm_up=warm_up,
                rounds=[FIGURES],
                memory=Memory(start_s=1.0, idle_mb=2.0, resident_mb=3.0, anonymous_mb=4.0),
            )
            for name in (APACHE, OURS)
        ],
        error=error,
    )


def report() -> Report:
    return Report(facts={"date": "today"}, workloads=[result("producer"), result("batch")])


@pytest.mark.parametrize(
    ("only", "environments", "expected"),
    [
        ("", [], [APACHE, OURS]),
        ("", ["TROCKET_PURE=1"], [APACHE, OURS, PURE]),
        ("ours", ["TROCKET_PURE=1"], [OURS, PURE]),
        ("ours", [], [OURS]),
        ("apache", ["TROCKET_PURE=1"], [APACHE]),
    ],
)
def test_apache_is_the_reference_and_each_environment_is_one_more_broker(
    only: str, environments: list[str], expected: list[str]
) -> None:
    assert [one.name for one in contenders(only, "5.5.0", environments)] == expected


def test_one_broker_may_have_several_variables() -> None:
    found = contenders("ours", "5.5.0", ["A=1,B="])
    assert found[1].environment == {"A": "1", "B": ""}


@pytest.mark.parametrize(
    ("only", "environment"), [("theirs", "A=1"), ("", "A"), ("", "=1"), ("", "A=1,B")]
)
def test_a_malformed_plan_is_refused(only: str, environment: str) -> None:
    with pytest.raises(typer.BadParameter):
        contenders(only, "5.5.0", [environment])


def test_few_and_many_queues_are_measured() -> None:
    assert [name for name, one in WORKLOADS.items() if one.is_few] == ["together"]
    assert WORKLOADS["together_1024"].is_consumed


def test_steady_state_first_minute_and_memory_are_apart() -> None:
    workloads = report().workloads
    steady, first, memory = tables(report())
    assert steady.row_count == len(steady_rows(workloads))
    assert first.row_count == len(first_minute_rows(workloads))
    assert memory.row_count == len(memory_rows(workloads)) == 8


def test_a_note_names_what_never_became_steady_and_its_windows() -> None:
    lines = notes([result("batch", is_steady=False, error="the disk is full")])
    assert lines[0] == (
        "batch, apache-5.5.0: NOT STEADY after 91 s of load;"
        " last windows: Producer 1,200, 1,300, 1,234"
    )
    assert lines[-1] == "batch: ERROR, ended early: the disk is full"


def test_notes_say_what_limited_each_broker_and_which_rounds_were_repeated() -> None:
    slow = result("batch")
    slow.repeated = 2
    lines = notes([slow])
    assert lines[1] == (
        "batch, apache-5.5.0: limited by neither the broker (0.04 cores) nor the machine (0%)"
    )
    assert lines[-1] == (
        "batch: 2 rounds were repeated, in which apache-5.5.0 was slower than in its best one"
    )


def test_a_document_has_only_its_results_replaced(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(path, report())
    text = path.read_text()
    assert text == f"before\n{BEGIN}\n\n{markdown(report())}\n\n{END}\nafter\n"
    assert "| producer | sent msg/s | 1,234 | 1,234 | 1 |" in text
    write_into(path, report())
    assert path.read_text() == text


def test_a_document_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("before")
    with pytest.raises(ValueError, match=r"README\.md has no lines"):
        write_into(path, report())
    assert path.read_text() == "before"


def test_runs_are_merged_and_facts_that_differ_are_all_kept() -> None:
    one = Report(facts={"code": "a", "date": "x"}, workloads=[result("producer")])
    other = Report(facts={"code": "a", "date": "y"}, workloads=[result("batch")])
    found = merged([one, other])
    assert found.facts == {"code": "a", "date": "x; y"}
    assert [each.workload for each in found.workloads] == ["producer", "batch"]


def run_saved(tmp_path: Path, found: Report, *options: str) -> tuple[int, str]:
    path = tmp_path / "saved.json"
    path.write_bytes(msgspec.json.encode(found))
    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--saved", str(path), *options])
    return done.exit_code, done.stdout


def test_saved_results_are_printed_again(tmp_path: Path) -> None:
    code, printed = run_saved(tmp_path, report(), "--json")
    assert code == 0
    assert json.loads(printed) == msgspec.to_builtins(report())


def test_an_error_of_one_workload_is_printed_and_makes_the_exit_code_1(tmp_path: Path) -> None:
    found = report()
    found.workloads.append(result("transactions", error="Producer ended"))
    code, printed = run_saved(tmp_path, found)
    assert code == 1
    assert "transactions: ERROR, ended early: Producer ended" in printed
