"""The simulations as a program: one world, whose scope is a store, a broker, a cluster or a set.

    python -m tests.world store                              # 25,000 crash images
    python -m tests.world store --images 1000000 --depth2    # what `make sim` does
    python -m tests.world store --workload roll --mode M1 --replay 7:113:random2
    python -m tests.world broker --runs 20000                # any programs
    python -m tests.world cluster --seeds 20000              # from seed 0
    python -m tests.world cluster --seeds 500 --from 90000
    python -m tests.world cluster --seed 114 --trace         # one run again, with its history
    python -m tests.world failover --seeds 5000              # a set with controllers

Exit status 0 when every promise holds, 1 when one does not or it was ended before (Ctrl-C).
docs/testing.md says what is simulated.
"""

from __future__ import annotations

import argparse
import sys

from .broker import main as broker
from .cluster import main as cluster
from .failover import main as failover
from .search import quiet
from .store import main as store

SCOPES = {"store": store, "broker": broker, "cluster": cluster, "failover": failover}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.world", None, __doc__, formatter_class=form)
    scopes = parser.add_subparsers(required=True, metavar="|".join(SCOPES))
    for name, scope in SCOPES.items():
        one = scopes.add_parser(name, help=scope.__doc__, description=scope.__doc__)
        scope.add_options(one)
        one.set_defaults(run=scope.run)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run; returns the exit status."""
    options = parse(arguments)
    quiet()
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
