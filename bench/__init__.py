"""Benchmarks, each with its reference in the same run; see docs/performance.md.

Run from a checkout: `python -m trocket.bench.wire`, `python -m trocket.bench.official`.
"""
