"""N3 to N9 over simulated producers, consumers, restarts, kills and power cuts in virtual time."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from .game import play
from .programs import Program, programs

RUNS = int(os.environ.get("TROCKET_MODEL_RUNS", "500"))


def play_any(runs: int) -> int:
    """Play any programs; how many were played. Raises: Broken, for the smallest that is found."""
    played = 0

    @settings(
        max_examples=runs,
        deadline=None,
        print_blob=True,
        # A program is a hundred drawn values, and up to half a second of real brokers.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(programs())
    def play_one(program: Program) -> None:
        nonlocal played
        played += 1
        play(program)

    play_one()
    return played


@pytest.mark.slow
def test_nothing_is_lost_whatever_happens():
    played = play_any(RUNS)
    print(f"{played} programs were played")
    assert played >= RUNS
