"""A thousand runs of the simulated cluster; a failing seed says how it is run again."""

from __future__ import annotations

import os

import pytest

from .sim import run_seeds

FIRST = int(os.environ.get("TROCKET_CLUSTER_SEED", "0"))
EACH = 100


@pytest.mark.slow
@pytest.mark.parametrize("start", range(FIRST, FIRST + 1000, EACH))
def test_every_promise_holds_whatever_happens(start):
    report = run_seeds(range(start, start + EACH))
    assert report.runs == EACH
    assert [failure.text() for failure in report.failures] == []
