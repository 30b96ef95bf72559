"""The runner: one seed is one run, and a failure says how it is seen again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trocket.store.status import PutMessageStatus
from trocket.store.writing.durability import SlaveAcks

from ..__main__ import main
from .cluster import MODES, TOPOLOGIES, play
from .faults import FAULTS, plan_of

ROOT = Path(__file__).resolve().parents[3]
SEEDS = (33, 70, 102, 130)


def test_there_are_the_33_faults_of_the_test_plan():
    assert len(FAULTS) == 33


def test_every_fault_comes_first_in_every_mode_and_meets_every_topology():
    plans = [plan_of(seed) for seed in range(6 * 4 * 33)]
    met = {(name, plan.mode) for plan in plans[: 4 * 33] for name in plan.faults}
    assert met >= {(name, mode) for name in FAULTS for mode in MODES}
    met = {(name, plan.topology) for plan in plans for name in plan.faults}
    assert met >= {(name, topology) for name in FAULTS for topology in TOPOLOGIES}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_one_seed_leads_to_one_run(seed):
    assert play(seed).trace == play(seed).trace


@pytest.mark.slow
def test_one_seed_leads_to_one_run_in_any_process():
    """Nothing depends on the order of a set, which is another one in each process."""
    program = (
        "from tests.world.search import quiet; quiet();"
        "from tests.world.cluster.cluster import play;"
        f"print([play(seed).trace for seed in {SEEDS}])"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }  # fmt: skip
    assert len(traces) == 1


@pytest.mark.slow
def test_the_summary_counts_runs_and_faults(capsys):
    assert main(["cluster", "--seeds", "3", "--from", "40", "--processes", "1"]) == 0
    output = capsys.readouterr().out
    assert "3 runs from seed 40" in output
    assert "0 failures" in output
    for name in FAULTS:
        assert name in output


@pytest.mark.slow
def test_a_failure_is_told_with_what_shows_it_again(monkeypatch, capsys):
    """A SYNC_MASTER that waits for no slave."""
    monkeypatch.setattr(
        SlaveAcks, "wait", lambda self, offset, callback: callback(PutMessageStatus.PUT_OK)
    )
    first = next(seed for seed in range(1000) if plan_of(seed).mode == "M2")
    assert main(["cluster", "--seeds", "8", "--from", str(first), "--processes", "1"]) == 1
    found = re.search(r"cluster --seed (\d+) --trace", capsys.readouterr().out)
    assert found
    assert main(["cluster", "--seed", found[1], "--trace"]) == 1
    assert "N1" in capsys.readouterr().out
    monkeypatch.undo()
    assert main(["cluster", "--seed", found[1]]) == 0
