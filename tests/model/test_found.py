"""Programs in which the model once found a fault, or was wrong itself."""

from __future__ import annotations

import pytest

from .game import play
from .programs import Die, Prepare, Program, Wait
from .transactions import Decision


@pytest.mark.parametrize("writes", range(1, 13))
def test_a_check_that_a_crash_lost_counts(writes: int) -> None:
    """The broker counts a check before it sends it; killed in between, it parks one check early."""
    half = Prepare(producer=0, queue=0, tag="a", decision=Decision.COMMIT, level=0, says="nothing")
    steps = [half, Die(writes=writes, kept_writes=None), Wait(61_000)]
    play(Program(sync=True, check_max=2, seed=0, steps=steps))
