"""`python -m tests.model --runs N`: as many programs as there is time for."""

from __future__ import annotations

import argparse
import sys

from .test_model import play_any


def main() -> int:
    """Play programs until one breaks a promise, which is then made small and printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="how many programs")
    runs = parser.parse_args().runs
    played = play_any(runs)
    print(f"{played} programs were played, and nothing was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
