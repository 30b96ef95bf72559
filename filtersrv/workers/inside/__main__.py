"""The program that the filter server starts: see `launcher`."""

import importlib
import sys

# The folder of this package, after the library's; gone again before uploaded code is here.
sys.path.append(__file__.removesuffix("/inside/__main__.py"))
main = importlib.import_module("inside.launcher").main
sys.path.pop()

if __name__ == "__main__":
    main()
