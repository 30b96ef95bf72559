"""The program that the filter server starts: see `launcher`."""

import importlib
import sys

# Append the folder of this package; it is removed again before uploaded code runs.
sys.path.append(__file__.removesuffix("/inside/__main__.py"))
main = importlib.import_module("inside.launcher").main
sys.path.pop()

if __name__ == "__main__":
    main()
