"""The search over seeds of a set whose master controllers elect."""

from __future__ import annotations

import argparse

from ..cluster.main import Scope, add_seed_options, run_search
from .faults import FAULTS, plan_of
from .world import play

FAILOVER = Scope("failover", play, plan_of, tuple(FAULTS))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this scope."""
    add_seed_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run all seeds, or one again; returns the exit status."""
    return run_search(FAILOVER, options, options.first)
