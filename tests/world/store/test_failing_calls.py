"""Each call to the disk fails once, each fsync for ever, in three workloads and both modes."""

from __future__ import annotations

import os

import pytest

from ...kit.matrix import some_of
from .failing_calls import WORKLOADS, cases, check_case, describe
from .runs import MODES

SEED = int(os.environ.get("TROCKET_SIM_SEED", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", some_of(MODES, lambda mode: mode == "M1"))
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_failing_call_loses_nothing_acknowledged_and_shows_nothing_refused(workload, mode):
    count = 0
    problems = []
    checked: set[bytes] = set()
    for case in cases(workload, mode, SEED):
        count += 1
        problem = check_case(workload, mode, SEED, case, checked)
        if problem:
            problems.append(f"{describe(workload, mode, SEED, case)}: {problem}")
    print(f"{workload} {mode} seed {SEED}: {count} failing calls, {len(checked)} ends")
    assert problems == []
    assert count > 300
