"""See sim.py."""

import sys

from .sim import main

if __name__ == "__main__":
    sys.exit(main())
