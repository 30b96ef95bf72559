"""Random SQL92 filters evaluated by us and by Apache's own classes, for as long as one likes.

    python -m tests.interop.sql92_expressions --seconds 300 --seed 7

stops at the first difference, with exit status 1; without --seed it makes one up and prints it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

from trocket.interop.oracle import Oracle
from trocket.interop.oracle_checks import SqlVerdict, our_sql_verdict, sql_verdicts
from trocket.interop.sql92_expressions import Expressions, Pair

VERSION = "5.5.0"
EXPRESSIONS_PER_BATCH = 500


def evaluated(oracle: Oracle, pairs: list[Pair]) -> Iterator[tuple[Pair, SqlVerdict, SqlVerdict]]:
    """Each pair with our verdict and Apache's."""
    for pair, theirs in zip(pairs, sql_verdicts(oracle, pairs), strict=True):
        yield pair, our_sql_verdict(*pair), theirs


def main(arguments: list[str] | None = None) -> int:
    """Run until the time is over or a difference is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.sql92_expressions")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--version", default=VERSION, help="of Apache RocketMQ")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    expressions = Expressions(options.seed)
    counts: Counter[str] = Counter()
    with Oracle(options.version) as oracle:
        deadline_s = time.monotonic() + options.seconds
        while time.monotonic() < deadline_s:
            pairs = expressions.pairs(EXPRESSIONS_PER_BATCH)
            for pair, ours, theirs in evaluated(oracle, pairs):
                if ours != theirs:
                    print(f"after {counts.total()} pairs: {pair!r}: ours {ours}, Apache's {theirs}")
                    return 1
                counts[ours[0]] += 1
    print(f"{counts.total()} pairs without a difference: {dict(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
