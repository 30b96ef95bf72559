"""The simulations find what they are there to find: mutants that break a promise."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .search import quiet

CASES = [
    pytest.param(
        mutant, id=mutant.name, marks=[pytest.mark.slow] if mutant.search.scope != "broker" else []
    )
    for mutant in MUTANTS
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", CASES)
def test_a_mutant_is_found_out(mutant, monkeypatch):
    quiet()
    assert mutant.search.sound() == ""
    mutant.apply(monkeypatch)
    found = next(filter(None, mutant.search.problems()), "")
    print(found)
    assert found
    assert found.startswith(mutant.promises)
