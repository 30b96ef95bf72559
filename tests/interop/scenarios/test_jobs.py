"""The cells of the scenarios, and their verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trocket.interop.process import PeerError
from trocket.interop.report.cells import Cell, Kind, Verdict
from trocket.interop.scenarios.faults import ALL_FAULTS, FAULT_SCENARIOS
from trocket.interop.scenarios.jobs import FAST_FAULTS, jobs
from trocket.interop.scenarios.programs import Outcome
from trocket.interop.scenarios.table import (
    ALL,
    APACHE_4,
    CLIENTS,
    CPP,
    GO,
    JAVA_5,
    JAVA_42,
    SCENARIOS,
    Scenario,
)
from trocket.interop.scenarios.verdicts import difference, reason_to_skip, with_outcome

SCENARIO = Scenario("feature", {"received": ["a", "b"], "status": "SEND_OK"})
CELL = Cell(Kind.SCENARIO, "feature", JAVA_5, "trocket", Verdict.SKIPPED)


def test_each_feature_client_broker_and_fault_is_one_cell() -> None:
    made = jobs(["trocket", "apache-5.5.0"])
    names = [cell.name for job in made for cell in job.owed]
    assert len(set(names)) == len(names)
    with_faults = len(ALL_FAULTS) * len(FAULT_SCENARIOS)
    assert len(names) == 2 * len(CLIENTS) * (len(SCENARIOS) + with_faults)
    assert "scenario/send_sync/go-2.1.2/trocket/none" in names
    assert "scenario/through_sync/java-4.2.0/apache-5.5.0/kill" in names


def test_a_job_is_one_broker_with_one_fault() -> None:
    made = jobs(["trocket", "apache-5.5.0"], clients=[GO], faults=["none", "kill"])
    assert [job.name for job in made] == [
        "scenarios on trocket",
        "scenarios on trocket, on and on",
        "scenarios on trocket, kill",
        "scenarios on apache-5.5.0",
        "scenarios on apache-5.5.0, on and on",
        "scenarios on apache-5.5.0, kill",
    ]
    for job in made:
        assert {(cell.broker, cell.fault) for cell in job.owed} == {
            (job.owed[0].broker, job.owed[0].fault)
        }


def test_the_fast_cut_has_few_faults() -> None:
    made = jobs(["trocket"], is_fast=True)
    faults = {cell.fault: {c.client for c in job.owed} for job in made for cell in job.owed}
    assert faults == {
        "none": set(CLIENTS),
        **{fault: set(clients) for fault, clients in FAST_FAULTS.items()},
    }


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"clients": ["java-1.0"]}, ValueError),
        ({"faults": ["flood"]}, ValueError),
    ],
    ids=["client", "fault"],
)
def test_an_unknown_name_is_refused(
    arguments: dict[str, list[str]], error: type[Exception]
) -> None:
    with pytest.raises(error, match="there are"):
        jobs(["trocket"], **arguments)


def test_an_unknown_broker_is_refused() -> None:
    with pytest.raises(PeerError, match="kafka"):
        jobs(["kafka"])


def test_what_a_client_lacks_is_skipped_with_the_reason(tmp_path: Path) -> None:
    job, _ = jobs(["trocket"], clients=[CPP], faults=["none"])
    lacking = job.selected(lambda cell: cell.feature == "transaction")
    assert lacking is not None
    cells: list[Cell] = []
    lacking.play(lacking.owed, tmp_path, cells.append)
    assert [(cell.verdict, cell.detail) for cell in cells] == [
        (Verdict.SKIPPED, "cpp-python-0.4.4 lacks it")
    ]


@pytest.mark.parametrize("fault", ["restart", "kill", "namesrv-gone"])
def test_an_external_cluster_is_left_alone(tmp_path: Path, fault: str) -> None:
    (job,) = jobs(["rocketmq://127.0.0.1:1"], clients=["python-trio"], faults=[fault])
    cells: list[Cell] = []
    job.play(job.owed, tmp_path, cells.append)
    assert {cell.verdict for cell in cells} == {Verdict.SKIPPED}
    assert {cell.detail for cell in cells} == {
        "the harness does not run rocketmq://127.0.0.1:1 and cannot stop it"
    }
    assert len(cells) == len(job.owed)


def test_a_cluster_that_does_not_answer_is_skipped(tmp_path: Path) -> None:
    job, _ = jobs(["rocketmq://127.0.0.1:1"], clients=["python-trio"], faults=["none"])
    cells: list[Cell] = []
    job.play(job.owed, tmp_path, cells.append)
    tried = [cell for cell in cells if "lacks it" not in cell.detail]
    assert {cell.verdict for cell in tried} == {Verdict.SKIPPED}
    assert all("127.0.0.1:1" in cell.detail for cell in tried)


def test_a_broker_that_lacks_a_feature_is_not_asked() -> None:
    timer = next(scenario for scenario in SCENARIOS if scenario.name == "later_timer")
    assert reason_to_skip(timer, JAVA_5, APACHE_4) == "apache-4.9.7 lacks it"
    assert reason_to_skip(timer, JAVA_5, "docker-4.9.7") == "docker-4.9.7 lacks it"
    assert reason_to_skip(timer, JAVA_5, "apache-5.5.0") is None


def test_a_pair_that_lacks_a_feature_is_not_asked() -> None:
    pull = next(scenario for scenario in SCENARIOS if scenario.name == "pull_subscribed")
    reason = "java-5.5.0 cannot do that on apache-4.9.7"
    assert reason_to_skip(pull, JAVA_5, APACHE_4) == reason
    assert reason_to_skip(pull, GO, APACHE_4) is None
    assert reason_to_skip(pull, JAVA_5, "trocket") is None


def test_what_a_client_cannot_do_without_harm_is_left_out() -> None:
    scenario = next(one for one in FAULT_SCENARIOS if one.name == "through_async")
    assert "panics" in (reason_to_skip(scenario, GO, "trocket") or "")
    assert "opaque id" in (reason_to_skip(scenario, JAVA_42, "trocket") or "")
    assert reason_to_skip(scenario, JAVA_5, "trocket") is None


def test_what_differs_stands_side_by_side() -> None:
    expected = {"same": 1, "received": ["a"], "never": True}
    reported = {"same": 1, "received": ["a", "ü"], "more": 2}
    assert difference(expected, reported).splitlines() == [
        "received:",
        '  expected ["a"]',
        '  reported ["a", "ü"]',
        "never:",
        "  expected true",
        "  reported (missing)",
        "more:",
        "  expected (nothing)",
        "  reported 2",
    ]


def test_a_wrong_fact_fails_the_cell() -> None:
    wrong = Outcome({"received": ["b", "a"], "status": "SEND_OK"}, "", seconds=1.5)
    cell = with_outcome(CELL, SCENARIO, wrong)
    assert (cell.verdict, cell.seconds) == (Verdict.FAILED, 1.5)
    assert "received" in cell.detail
    assert "status" not in cell.detail


def test_right_facts_pass_the_cell() -> None:
    right = Outcome({"received": ["a", "b"], "status": "SEND_OK"}, "", "a note")
    cell = with_outcome(CELL, SCENARIO, right)
    assert (cell.verdict, cell.detail) == (Verdict.PASSED, "a note")


def test_an_error_fails_the_cell_even_with_the_right_facts() -> None:
    cell = with_outcome(CELL, SCENARIO, Outcome(dict(SCENARIO.expected), "it broke"))
    assert (cell.verdict, cell.detail.splitlines()[0]) == (Verdict.FAILED, "it broke")


def test_an_empty_answer_is_not_right() -> None:
    assert with_outcome(CELL, SCENARIO, Outcome({}, "")).verdict is Verdict.FAILED


@pytest.mark.parametrize("key", ["on trocket", f"{JAVA_5} on trocket"])
def test_a_difference_of_our_own_broker_is_a_quirk(key: str) -> None:
    ours = replace(SCENARIO, differs={key: {"status": "FLUSHED"}}, quirk="row 7")
    reported = Outcome({"received": ["a", "b"], "status": "FLUSHED"}, "")
    cell = with_outcome(CELL, ours, reported)
    assert (cell.verdict, cell.detail) == (Verdict.QUIRK, "row 7")
    apaches = with_outcome(replace(CELL, broker="apache-5.5.0"), ours, reported)
    assert apaches.verdict is Verdict.FAILED


def test_each_difference_of_our_own_broker_names_its_quirk() -> None:
    for scenario in SCENARIOS:
        has = any(scenario.is_quirk(client, "trocket") for client in ALL)
        assert bool(scenario.quirk) == has, scenario.name
