"""N3 to N9 over simulated producers, consumers, restarts, kills and power cuts in virtual time.
`make sim` has the long form."""

from __future__ import annotations

import os

import pytest

from .main import play_any

RUNS = int(os.environ.get("TROCKET_MODEL_RUNS", "200"))


@pytest.mark.slow
def test_nothing_is_lost_whatever_happens():
    played = play_any(RUNS)
    print(f"{played} programs were played")
    assert played >= RUNS
