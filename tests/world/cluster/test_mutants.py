"""The simulation finds what it is there to find: clusters that break a promise."""

from __future__ import annotations

import pytest

from .cluster import play
from .mutants import MUTANTS

SEEDS = range(40)
"""What a fault meets depends on the seed."""


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.apply.__name__)
def test_a_broken_cluster_is_found_out(mutant, monkeypatch):
    assert play(0, mutant.plan).problem == ""  # a sound one passes
    mutant.apply(monkeypatch)
    problems = (play(seed, mutant.plan).problem for seed in SEEDS)
    found = next((problem for problem in problems if problem), "")
    assert found
    assert found.startswith(mutant.promises)
