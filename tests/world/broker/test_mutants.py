"""The oracle finds what it is there to find: brokers that break a promise."""

from __future__ import annotations

import pytest

from ..broken import Broken
from .game import play
from .mutants import MUTANTS
from .programs import Program

SEEDS = range(10)
"""In which order two things of one moment happen depends on the seed."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.apply.__name__)
def test_a_broken_broker_is_found_out(mutant, monkeypatch):
    programs = [Program(mutant.sync, 2, seed, mutant.steps) for seed in SEEDS]
    play(programs[0])  # a sound one passes
    mutant.apply(monkeypatch)
    with pytest.raises(Broken) as found:
        play_all(programs)
    assert found.value.promise.startswith(mutant.promise)


def play_all(programs):
    for program in programs:
        play(program)
