"""The runner: counts, exit status, and how a failure is reported and replayed."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

from trocket.store.log.commit_log import CommitLog

from ..__main__ import main
from . import main as search
from .checks import check_store
from .engine import check_run, shorten
from .runs import record_run
from .workloads import WORKLOADS


def test_one_seed_leads_to_one_run_and_one_set_of_images():
    first, second = (record_run("put", "M1", 3) for _ in range(2))
    assert first.session.disk.journal == second.session.disk.journal
    assert first.history.events == second.history.events


@pytest.mark.parametrize("mode", ["M0", "M1"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_workload_runs_through_and_promises_something(workload, mode):
    run = record_run(workload, mode, 5)
    assert run.problem == ""
    moment = run.session.moment
    lanes = run.history.expectation(moment, power=True).lanes
    assert any(lane.required for each in lanes.values() for lane in each)


@pytest.mark.slow
def test_the_report_counts_images_by_workload_and_kind(capsys):
    arguments = ["store", "--images", "200", "--processes", "1", "--workload", "config", "--json"]
    assert main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["images"] >= 200
    assert report["images"] == sum(report["by_workload"]["config"].values())
    assert report["failures"] == []


@pytest.mark.slow
def test_a_failure_is_told_with_what_shows_it_again(monkeypatch, capsys):
    """A store that leaves torn tails where they are."""
    monkeypatch.setattr(CommitLog, "zero", lambda *_: None)
    monkeypatch.setattr(search, "shorten", partial(shorten, tries_max=3))
    count = ["store", "--images", "300", "--processes", "1", "--seed", "6"]
    assert main([*count, "--workload", "put"]) == 1
    output = capsys.readouterr().out
    found = re.search(r"--workload put --mode (M\d) --replay (\S+)", output)
    assert found, output
    mode, case = found.groups()
    arguments = ["store", "--workload", "put", "--mode", mode, "--replay", case]
    assert main(arguments) == 1
    again = capsys.readouterr().out
    assert "as short as it gets" in again
    monkeypatch.undo()
    assert main(arguments) == 0


@pytest.mark.slow
def test_a_failing_run_is_made_shorter(monkeypatch):
    monkeypatch.setattr(CommitLog, "zero", lambda *_: None)
    run = record_run("put", "M0", 6)
    failures = check_run(run, failures_max=1).failures
    short = shorten(failures[0], lambda other: True, tries_max=8)
    assert len(short.steps) < len(run.steps) / 2
    assert check_run(short, failures_max=1).failures


def test_a_message_that_changes_is_noticed():
    """The check itself: one byte of one record in memory."""
    run = record_run("put", "M0", 2)
    store = run.session.store
    expected = run.history.expectation(run.session.moment, power=False)
    assert check_store(store, expected).violations == []
    victim = next(each for each in run.history.sent if each.record and each.queue_offset == 0)
    victim.record = victim.record[:-1] + bytes([victim.record[-1] ^ 1])
    assert check_store(store, expected).violations[0].startswith("N2")
