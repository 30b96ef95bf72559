"""Runs of the simulated cluster, the first ones and those that failed once; a failing seed says how
it is run again. `make sim` has the long form."""

from __future__ import annotations

import os

import pytest

from .cluster import MODES
from .faults import FAULTS, JUMPS_FROM
from .main import run_seeds

FIRST = int(os.environ.get("TROCKET_CLUSTER_SEED", "0"))
EACH = len(FAULTS)
COUNT = EACH * len(MODES)
"""Each fault comes first once in each mode (`plan_of`)."""
FAILED_ONCE = (1162, 1830, 2233, 3046, 3179, 3269, 5537, 5923, 6875, 7746, 9287)
"""Each for another reason, named by the commit that fixed it."""


@pytest.mark.slow
@pytest.mark.parametrize("start", range(FIRST, FIRST + COUNT, EACH))
def test_every_promise_holds_whatever_happens(start):
    report = run_seeds(range(start, start + EACH))
    assert report.count == EACH
    assert [failure.text() for failure in report.failures] == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(JUMPS_FROM, JUMPS_FROM + EACH, 11))
def test_every_promise_holds_while_clocks_jump(start):
    report = run_seeds(range(start, start + 11))
    assert report.count == 11
    assert [failure.text() for failure in report.failures] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_what_failed_once_holds(seed):
    report = run_seeds(range(seed, seed + 1))
    assert [failure.text() for failure in report.failures] == []
