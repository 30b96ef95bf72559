"""Runs of the simulated set, the first ones and those that failed once; a failing seed says how it
is run again. `make sim` has the long form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..cluster.main import run_seeds
from ..search import quiet
from .faults import FAULTS, plan_of
from .main import FAILOVER
from .world import SetPlan, play

FIRST = int(os.environ.get("TROCKET_FAILOVER_SEED", "0"))
COUNT, EACH = 100, 10
SEEDS = (3, 6, 2635)
ROOT = Path(__file__).resolve().parent.parent.parent.parent
APART = "{master, clients} | {slaves, controllers}"
FAILED_ONCE = (
    (45, SetPlan(3, 3, True, False, "plain", ["partition one-way", APART], 12, 0.8)),
    (12, SetPlan(2, 1, False, False, "bursts", [APART, *["clocks jump"] * 3], 15, 0.8)),
    (17, SetPlan(3, 1, True, False, "batches", ["kill"] * 4, 12, 1.6)),
    (10, SetPlan(2, 1, True, True, "plain", ["kill"] * 4, 12, 1.6)),
)
"""Each for another reason, named by the commit that fixed it. Plans of seeds change with the list
of faults."""


@pytest.mark.slow
@pytest.mark.parametrize("start", range(FIRST, FIRST + COUNT, EACH))
def test_every_promise_holds_whatever_happens(start):
    report = run_seeds(range(start, start + EACH), FAILOVER)
    assert report.count == EACH
    assert [failure.text() for failure in report.failures] == []


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "plan"), FAILED_ONCE)
def test_what_failed_once_holds(seed, plan):
    quiet()
    assert play(seed, plan).problem == ""


@pytest.mark.slow
def test_one_seed_leads_to_one_run_in_any_process():
    """Nothing depends on the order of a set, which is another one in each process."""
    program = (
        "from tests.world.search import quiet; quiet();"
        "from tests.world.failover.world import play;"
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


def test_every_fault_comes_first_with_one_and_three_controllers():
    plans = [plan_of(seed) for seed in range(2 * len(FAULTS))]
    met = {(name, plan.controllers) for plan in plans for name in plan.faults}
    assert met >= {(name, count) for name in FAULTS for count in (1, 3)}
