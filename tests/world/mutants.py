"""All mutants of all scopes: what the simulations are there to find."""

from __future__ import annotations

from .broker import mutants as broker
from .broker import pop_mutants as pops
from .cluster import mutants as cluster
from .failover import mutants as failover
from .mutant import Mutant
from .store import mutants as store

MUTANTS: list[Mutant] = [
    *store.MUTANTS, *broker.MUTANTS, *pops.MUTANTS, *cluster.MUTANTS, *failover.MUTANTS,
]  # fmt: skip
