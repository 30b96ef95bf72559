"""The simulation finds what it is there to find: stores that break a promise."""

from __future__ import annotations

import pytest

from .engine import check_run
from .mutants import MUTANTS
from .runs import record_run

SEED_COUNT = 6


@pytest.mark.slow
@pytest.mark.parametrize("broken", MUTANTS, ids=lambda broken: broken.name)
def test_a_broken_store_is_found_out(broken, monkeypatch, caplog):
    caplog.set_level("CRITICAL", "trocket")
    broken.apply(monkeypatch)
    count = 0
    seeds = range(broken.seed, broken.seed + SEED_COUNT)
    for seed in seeds:
        for mode in broken.modes:
            run = record_run(broken.workload, mode, seed)
            report = check_run(run, depth2=True, failures_max=1)
            count += report.count
            if report.failures:
                print(f"found after {count} images: {report.failures[0].problem}")
                return
    pytest.fail(f"{broken.name}: {count} images of seeds {[*seeds]} look well")
