"""Benchmarks, each side by side with what it is compared to in one run; see docs/performance.md.

Run from a checkout: `python -m trocket.bench.wire`, `python -m trocket.bench.official`.
"""
