"""The search over programs of a broker: as many as there is time for."""

from __future__ import annotations

import argparse

from hypothesis import HealthCheck, given, settings

from .game import play
from .programs import Program, programs


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


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this scope."""
    parser.add_argument("--runs", type=int, default=10_000, help="how many programs")


def run(options: argparse.Namespace) -> int:
    """Play programs until one breaks a promise, which is then made small and printed."""
    played = play_any(options.runs)
    print(f"{played} programs were played, and nothing was lost")
    return 0
