"""Jobs for `spark-submit` and `trocket pipeline`: each is a `main(argv)` in a module of its name.

`spark-submit` runs them as files, so they use absolute imports, as a user's program does. Common
code is in `running.py`; for each job, `demo/` has a module that generates data with known answers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

JOBS: Final[dict[str, str]] = {
    "archive_parquet": "Archive topics as Parquet, each message once; --verify finds missing ones",
    "dlq_report": "Report on dead letters: counts by group, reason and age, keys, samples",
    "replay": "Send dead letters back to their topics, at a limited rate, with an audit log",
    "trades_ohlc": "Aggregate trades to bars: open, high, low, close, volume, VWAP per window",
    "order_reconcile": "Send alerts for orders that are not paid or not shipped in time",
    "lag_and_store_report": "Report on lag, messages about to expire, and disk usage, as HTML",
}
"""Summaries by name: the only list of jobs, for the command, the docs and the tests."""


def load(name: str) -> Any:
    """The module of a job.

    Raises: ModuleNotFoundError: pyspark is not installed.
    """
    return import_module(f"{__name__}.{name}")
